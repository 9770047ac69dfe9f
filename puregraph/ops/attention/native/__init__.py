"""Attention in native code: its operands, and a kernel for each direction."""
