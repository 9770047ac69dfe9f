"""Kernels for NVIDIA GPUs: description, compilation, launch, and emulation on the CPU."""
