"""Execution of a program on the CPU: inputs, buffers, the executable, its guards, and its fast path."""
