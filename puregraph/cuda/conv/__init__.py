"""Convolutions, pooling and matrix products as kernels of our own, for where no library has a plan."""
