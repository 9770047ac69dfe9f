"""Matrix products in native code: GEMM, GEMV and their packing."""
