"""GPU: a step as graphs of CUDA.

passes     gradients are scaled, calls computed in 16 bits, host decisions predicated, libraries' calls prepared
lower      calls become launches of kernels and calls of libraries
runtime    memory, transfers, captured graphs, and what became of updates

`compile/pipeline.py` has the passes in their order.
"""
