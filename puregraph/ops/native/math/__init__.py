"""Elementary and special functions on registers, written as LLVM IR."""
