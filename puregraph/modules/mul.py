"""Mul: the product of any number of inputs."""

from functools import reduce

import numpy as np

from puregraph.base.widen import asResultType, widened
from puregraph.kernels.reduce import unbroadcast
from puregraph.modules.add import _Broadcast


class Mul(_Broadcast):
    """y = x1 x2 ..., element by element; shapes broadcast as numpy's do.

    Shapes    any that broadcast -> their broadcast
    Source    Dauphin, Fan, Auli, Grangier 2017, arXiv:1612.08083, eq. 1: a gate; PuzzleLib's Mul
    Raises    ShapeError if the shapes do not broadcast
    """

    reads = ("xs",)

    def updateData(self, *xs):
        return times(*xs)

    def updateGrad(self, grad, *values, needs):
        *xs, _ = values
        return tuple(
            [
                unbroadcast(times(grad, *xs[:i], *xs[i + 1 :]), x.shape) if wanted else None
                for i, (x, wanted) in enumerate(zip(xs, needs))
            ]
        )


@widened
def times(*xs):
    """The product, from the left; a copy of a lone input."""
    return reduce(np.multiply, asResultType(*xs)) if len(xs) > 1 else xs[0].copy()
