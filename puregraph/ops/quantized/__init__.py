"""Quantized: exact products and convolutions of 8-bit integers, and how their sums are rounded."""
