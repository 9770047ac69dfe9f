"""Kernels for NVIDIA GPUs: what describes them, compiles them, runs them, and runs them without a GPU."""
