"""Kernels on a device: preprocessing and compiling their text, launching them, and diagnosing what is missing."""
