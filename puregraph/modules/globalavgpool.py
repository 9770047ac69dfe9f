"""GlobalAvgPool: the mean of each channel."""

from math import prod

import numpy as np

from puregraph.base.widen import divided
from puregraph.errors import need
from puregraph.module import Module


class GlobalAvgPool(Module):
    """y[n, c] = mean over all positions a of x[n, c, a]

    Shapes    x (n, c, *spatial) -> y (n, c), for any number of spatial axes, at least one
    Source    Lin, Chen, Yan 2014, Network in Network, arXiv:1312.4400, section 3.2
    Raises    ShapeError if x has no spatial axis, or one of length 0
    """

    reads = ()
    flopsPerElement = 1
    needsFloats = True

    def dataShapeFrom(self, x):
        need(len(x) > 2 and all(d >= 1 for d in x[2:]), "(n, c, *spatial), no length 0", x, "wanted some position")
        return x[:2]

    def updateData(self, x):
        return x.mean(axis=tuple(range(2, x.ndim)))

    def updateGrad(self, grad, x, y):
        share = divided(grad, prod(x.shape[2:]))
        return np.broadcast_to(share.reshape(*share.shape, *(1,) * (x.ndim - 2)), x.shape).copy()

    @classmethod
    def examples(cls):
        yield cls(), [(2, 3, 4, 2)]
        yield cls(), [(1, 2, 5)]
        yield cls(), [(2, 2, 3, 1, 2)]
