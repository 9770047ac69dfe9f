"""Kernels on a device: preprocess, compile and launch their text, and diagnose missing parts."""
