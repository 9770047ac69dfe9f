"""Kernels on a device: preprocessing and compiling their text, launching them, and what is missing here."""
