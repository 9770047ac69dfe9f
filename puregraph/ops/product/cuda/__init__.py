"""Matrix products on a GPU: cuBLASLt, and kernels of puregraph's own where it has no epilogue."""
