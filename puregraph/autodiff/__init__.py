"""Backward passes as objects, and rules for them, under the names that users of PyTorch and DaceML know."""

from puregraph.autodiff.generator import (
    BackwardFunction,
    ForwardFunction,
    JointGraph,
    add_backward_pass,
    make_backward_function,
)
from puregraph.autodiff.gradients import GradientGraph
from puregraph.autodiff.implementation import BackwardContext, BackwardImplementation, BackwardResult
from puregraph.autodiff.lean import Descriptor, LeanGraph
from puregraph.autodiff.twins import Exposed, Outline, Parameter, Seed

__all__ = [
    "BackwardContext",
    "BackwardFunction",
    "BackwardImplementation",
    "BackwardResult",
    "Descriptor",
    "Exposed",
    "ForwardFunction",
    "GradientGraph",
    "JointGraph",
    "LeanGraph",
    "Outline",
    "Parameter",
    "Seed",
    "add_backward_pass",
    "make_backward_function",
]
