"""GPU: a step as CUDA graphs.

passes     loss scaling, autocast, predication of host decisions, preparation of library calls
lower      turns calls into kernel launches and library calls
runtime    memory, transfers, captured graphs, and the status of updates

`compile/pipeline.py` lists the passes in their order.
"""
