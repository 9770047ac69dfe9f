"""Convolutions, pooling and matrix products as own kernels, where no library has a plan."""
