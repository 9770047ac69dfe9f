"""The bridge to PyTorch: graphs as functions and modules of torch, and modules of torch as graphs.

module = asModule(net)                      parameters in the memory of net.params, for optimizers of torch
y = asFunction(net)(x)                      differentiable by torch, for optimizers of puregraph
net = fromTorch(module, (x,))               a Graph with the weights of a module

torch is imported when one of these is called, not before.
"""

from puregraph.compat.torch.dacemodule import DaceModule
from puregraph.compat.torch.exportreader import fromTorch
from puregraph.compat.torch.graphmodule import asFunction, asModule
from puregraph.compat.torch.tensors import asArray, asTensor

__all__ = ["DaceModule", "asArray", "asFunction", "asModule", "asTensor", "fromTorch"]
