"""Backward passes as objects, and rules for them, under the names that users of PyTorch and DaceML know."""

from puregraph.autodiff.implementation import BackwardContext, BackwardImplementation, BackwardResult

__all__ = ["BackwardContext", "BackwardImplementation", "BackwardResult"]
