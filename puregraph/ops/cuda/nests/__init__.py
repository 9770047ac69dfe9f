"""Loop nests as CUDA kernels: elementwise, row and column reductions, transposes, many arrays at once."""
