"""Lowerings: what native work each Kernel of numpy becomes. What is not here is carried out by its numpy reference.

numbers      how the numbers of a value lie, and the work of laying them otherwise
maps         the same for maps: channels last
moving       copies, reshapes, parts put together or into others
lookup       rows of tables, labels, random numbers, fills
norm         the size of all gradients together
convolution, pooling, attention, recurrent, pairs    each with its gradients
"""

from puregraph.compile.lower.rules import (  # they register
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
