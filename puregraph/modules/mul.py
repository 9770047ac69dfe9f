"""Mul: the product of any number of inputs."""

from functools import reduce

import numpy as np

from puregraph.core.shape import broadcast, product
from puregraph.errors import need
from puregraph.kernels.reduce import unbroadcast
from puregraph.kernels.widen import widened
from puregraph.module import Module


class Mul(Module):
    """y = x1 x2 ..., element by element; shapes broadcast as numpy's do.

    Shapes    any that broadcast -> their broadcast
    Source    Dauphin, Fan, Auli, Grangier 2017, arXiv:1612.08083, eq. 1: a gate; PuzzleLib's Mul
    Raises    ShapeError if the shapes do not broadcast
    """

    reads = ("xs",)

    def dataShapeFrom(self, *xs):
        need(xs, "at least one input", "none")
        return broadcast(*xs)

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

    def flopsFrom(self, *xs):
        return (len(xs) - 1) * product(self.dataShapeFrom(*xs))

    @classmethod
    def examples(cls):
        yield cls(), [(2, 3), (2, 3)]
        yield cls(), [(2, 3), (3,), (2, 1)]
        yield cls(), [(2, 1), (1, 3)]
        yield cls(), [(2, 3)]


@widened
def times(*xs):
    """The product, from the left; a copy of a lone input."""
    return reduce(np.multiply, xs) if len(xs) > 1 else +xs[0]
