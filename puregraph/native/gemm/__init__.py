"""Matrix products in native code: blocking, packing, the microkernel, split-k, and products with a vector."""
