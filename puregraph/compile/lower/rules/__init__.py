"""Lowering rules: the native kernel calls of each Kernel and numpy function; calls without a rule run in numpy.

elementlayout  strides in elements, and copies to another layout
channels       strides and copies of feature maps, channels last
copies         copies, reshapes, concatenation, assignment to slices
gather         gather, scatter-add, labels, random numbers, fills
norm           the norm of all gradients
convolution, pooling, attention, recurrent, pairwisedot    each with its gradients
"""

from puregraph.compile.lower.rules import (  # imported to register their rules
    attention,
    convolution,
    copies,
    gather,
    norm,
    pairwisedot,
    pooling,
    recurrent,
)

__all__ = ["attention", "convolution", "gather", "copies", "norm", "pairwisedot", "pooling", "recurrent"]
