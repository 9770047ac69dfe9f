"""Convolutions as CUDA kernels of puregraph's own, where cuDNN has no plan."""
