"""Kernels as machine code: built through LLVM for this CPU, kept on disk, run by one pool of threads."""
