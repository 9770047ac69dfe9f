"""From Python to machine code: instructions, the IR builder, the just-in-time compiler, calls of kernels."""
