"""Prepend: learned vectors before every sequence."""

import numpy as np

from puregraph.arguments import NotNegative, Size
from puregraph.core import initial
from puregraph.core.param import Param
from puregraph.errors import need
from puregraph.kernels.reduce import unbroadcast
from puregraph.module import Module


class Prepend(Module):
    """y[n, ..., :] = W[0], ..., W[count - 1], x[n, ..., 0], x[n, ..., 1], ...

    The same vectors for all sequences: with a count of 1, the class token of vision transformers.

    Shapes    x (n, ..., t, size), W (count, size) -> y (n, ..., count + t, size)
    Source    Dosovitskiy et al. 2020, arXiv:2010.11929, eq. 1; Darcet et al. 2023, arXiv:2309.16588, for several
    Raises    ShapeError if x has another size
    """

    reads = ()
    flopsPerElement = 0

    def __init__(self, count: Size, size: Size, initscheme="gaussian", wscale: NotNegative = 0.02, name=None):
        super().__init__(name)
        self.W = Param((count, size), initial.weights(initscheme, count, size, wscale))

    def dataShapeFrom(self, x):
        count, size = self.W.shape
        need(len(x) >= 3 and x[-1] == size, f"(n, ..., t, {size})", x)
        return (*x[:-2], x[-2] + count, size)

    def updateData(self, x, W):
        return np.concatenate([np.broadcast_to(W, (*x.shape[:-2], *W.shape)), x], axis=-2)

    def updateGrad(self, grad, x, W, y, needs):
        count = W.shape[0]
        return grad[..., count:, :], unbroadcast(grad[..., :count, :], W.shape) if needs[1] else None

    @classmethod
    def examples(cls):
        yield cls(1, 3), [(2, 4, 3)]
        yield cls(2, 2, initscheme="uniform", wscale=0.1), [(2, 2, 3, 2)]
