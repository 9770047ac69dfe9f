"""Position: a learned vector for each position of a sequence, added to its element."""

import numpy as np

from puregraph.arguments import Count, NotNegative, Size
from puregraph.base.widen import widened
from puregraph.core import initial
from puregraph.core.param import Param
from puregraph.errors import need
from puregraph.kernels.reduce import unbroadcast
from puregraph.module import Module


class Position(Module):
    """y[n, ..., t] = x[n, ..., t] + W[t]

    Sequences may be shorter than `length`; the vectors of positions that they do not reach have gradient zero.

    Shapes    x (n, ..., t, size), W (length, size), t <= length -> y as x
    Source    Gehring, Auli, Grangier, Yarats, Dauphin 2017, arXiv:1705.03122, section 3.1
    Raises    ShapeError if x has another size, or more than `length` positions
    """

    reads = ()
    gradAliases = True
    flopsPerElement = 1

    def __init__(self, length: Count, size: Size, initscheme="gaussian", wscale: NotNegative = 0.02, name=None):
        super().__init__(name)
        self.W = Param((length, size), initial.weights(initscheme, length, size, wscale))

    def dataShapeFrom(self, x):
        length, size = self.W.shape
        need(len(x) >= 3 and x[-1] == size, f"(n, ..., t, {size})", x)
        need(length - x[-2] >= 0, f"at most {length} positions", x, "give a larger length, or shorter sequences")
        return x

    def updateData(self, x, W):
        return plus(x, W[: x.shape[-2]])

    def updateGrad(self, grad, x, W, y, needs):
        gW = None
        if needs[1]:
            length, size = W.shape
            used = unbroadcast(grad, grad.shape[-2:])
            gW = np.concatenate([used, np.zeros_like(used, shape=(length - grad.shape[-2], size))], axis=0)
        return grad, gW

    @classmethod
    def examples(cls):
        yield cls(4, 3), [(2, 4, 3)]
        yield cls(5, 2, initscheme="uniform", wscale=0.1), [(2, 2, 3, 2)]
        yield cls(2, 1), [(3, 1, 1)]


@widened
def plus(x, w):
    """The sum."""
    return x + w
