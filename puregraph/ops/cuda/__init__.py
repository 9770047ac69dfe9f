"""Kernels for NVIDIA GPUs: description, compilation and launch."""
