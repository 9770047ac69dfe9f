"""Native: kernels as machine code, made by LLVM for the CPU at hand, and the threads that run them."""
