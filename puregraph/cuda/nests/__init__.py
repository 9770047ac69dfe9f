"""Loop nests as CUDA kernels: elementwise, reductions along rows and columns, transposes, many arrays at once."""
