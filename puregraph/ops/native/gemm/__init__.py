"""GEMM in native code: blocking, packing, the microkernel, split-k, and GEMV."""
