"""Add: the sum of any number of inputs."""

from functools import reduce

import numpy as np

from puregraph.base.widen import asResultType, widened
from puregraph.core.shape import broadcast, product
from puregraph.errors import need
from puregraph.kernels.reduce import unbroadcast
from puregraph.module import Module


class _Broadcast(Module):
    """The base of Add and Mul: any number of inputs whose shapes broadcast."""

    keepsDtype = True
    followsValues = True

    def dataShapeFrom(self, *xs):
        need(xs, "at least one input", "none")
        return broadcast(*xs)

    def flopsFrom(self, *xs):
        return (len(xs) - 1) * product(self.dataShapeFrom(*xs))

    @classmethod
    def examples(cls):
        yield cls(), [(2, 3), (2, 3)]
        yield cls(), [(2, 3), (3,), (2, 1)]
        yield cls(), [(2, 1), (1, 3)]
        yield cls(), [(2, 3)]


class Add(_Broadcast):
    """y = x1 + x2 + ..., element by element; shapes broadcast as numpy's do.

    Shapes    any that broadcast -> their broadcast
    Source    He, Zhang, Ren, Sun 2016, arXiv:1512.03385, eq. 1; PuzzleLib's Add
    Raises    ShapeError if the shapes do not broadcast
    """

    reads = ()
    gradAliases = True

    def updateData(self, *xs):
        return total(*xs)

    def updateGrad(self, grad, *values, needs):
        return tuple([unbroadcast(grad, x.shape) if wanted else None for x, wanted in zip(values, needs)])


@widened
def total(*xs):
    """The sum, from the left; a copy of a lone input."""
    return reduce(np.add, asResultType(*xs)) if len(xs) > 1 else xs[0].copy()
