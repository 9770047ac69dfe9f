"""Linear: an affine map of the last axis."""

import numpy as np

from puregraph import initial
from puregraph.errors import need
from puregraph.module import Module
from puregraph.param import Param
from puregraph.shape import product


class Linear(Module):
    """y = x W + b

    Shapes    x (..., i), W (i, o), b (o,) -> y (..., o); any number of leading axes
    Source    Rumelhart, Hinton, Williams 1986, Nature 323, eq. 1
    Raises    ShapeError if x has no axis, or its last one is not i
    """

    reads = ("x", "W")

    def __init__(self, insize, outsize, useBias=True, initscheme=None, wscale=1.0, name=None):
        super().__init__(name)
        self.W = Param((insize, outsize))
        self.W.initial = initial.weights(initscheme, insize, outsize, wscale)
        self.b = Param((outsize,)) if useBias else None

    def dataShapeFrom(self, x):
        insize, outsize = self.W.shape
        need(len(x) >= 1 and x[-1] == insize, f"(..., {insize})", x)
        return (*x[:-1], outsize)

    def updateData(self, x, W, b, out=None):
        y = np.matmul(x, W, out=out)
        return y if b is None else np.add(y, b, out=y)

    def updateGrad(self, grad, x, W, b, y, needs):
        rows = grad.reshape(-1, W.shape[1])
        return (
            grad @ W.T if needs[0] else None,
            x.reshape(-1, W.shape[0]).T @ rows if needs[1] else None,
            rows.sum(axis=0) if needs[2] else None,
        )

    def flopsFrom(self, x):
        insize, outsize = self.W.shape
        return 2 * insize * product(self.dataShapeFrom(x)) + (0 if self.b is None else outsize * product(x[:-1]))

    @classmethod
    def examples(cls):
        yield cls(3, 4), [(5, 3)]
        yield cls(3, 4, useBias=False), [(1, 3)]
        yield cls(2, 3, initscheme="he"), [(2, 3, 2)]
        yield cls(3, 2), [(3,)]
