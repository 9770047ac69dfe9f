"""From Python to machine code: the IR builder, the just-in-time compiler, and calls of compiled kernels."""
