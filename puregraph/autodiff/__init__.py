"""The backward pass as an object to hold, read, change and extend, under the names that its users know.

A tape of Variables (torch, afnio), backward graphs ahead of time (DaceML), and rules registered for them.
"""

from puregraph.algebra import accumulate, seedLike, zeroLike
from puregraph.autodiff.engine import CycleError, backward, grad
from puregraph.autodiff.function import once_differentiable
from puregraph.autodiff.generator import JointGraph, add_backward_pass, make_backward_function
from puregraph.autodiff.graph import GradientEdge, Node, get_gradient_edge
from puregraph.autodiff.implementation import BackwardContext, BackwardImplementation, BackwardResult
from puregraph.autodiff.lean import Descriptor
from puregraph.autodiff.mode import enable_grad, is_grad_enabled, no_grad, set_grad_enabled
from puregraph.autodiff.modules import parameter
from puregraph.autodiff.variable import Variable
from puregraph.errors import AutoDiffException
from puregraph.function import Function

seed_like, zero_like = seedLike, zeroLike

__all__ = [
    "AutoDiffException",
    "BackwardContext",
    "BackwardImplementation",
    "BackwardResult",
    "CycleError",
    "Descriptor",
    "Function",
    "GradientEdge",
    "JointGraph",
    "Node",
    "Variable",
    "accumulate",
    "add_backward_pass",
    "backward",
    "enable_grad",
    "get_gradient_edge",
    "grad",
    "is_grad_enabled",
    "make_backward_function",
    "no_grad",
    "once_differentiable",
    "parameter",
    "seed_like",
    "set_grad_enabled",
    "zero_like",
]
