"""The bridge to PyTorch: graphs as functions and modules of torch.

module = asModule(net)                      parameters in the memory of net.params, for optimizers of torch
y = asFunction(net)(x)                      differentiable by torch, for optimizers of puregraph

torch is imported when one of these is called, not before.
"""

from puregraph.compat.torch.graphmodule import asFunction, asModule
from puregraph.compat.torch.tensors import asArray, asTensor

__all__ = ["asArray", "asFunction", "asModule", "asTensor"]
