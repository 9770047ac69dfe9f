"""Quantization: integers with a scale and a zero point, and layers of them."""
