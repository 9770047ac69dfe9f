"""From the calls of a schedule to launches of kernels and calls of NVIDIA's libraries."""
