"""MaxPoolNd: the maximum over windows of any number of axes; MaxPool1D and MaxPool2D fix the number."""

from math import prod

import numpy as np

from puregraph.core.shape import product
from puregraph.kernels.pooling import maxPool, maxPoolGrad
from puregraph.module import Module
from puregraph.modules.windows import needRank, perAxis, poolSides, windowShape, windowSize


class MaxPoolNd(Module):
    """y[n, c, a] = max over t of x[n, c, a stride + t - before]

    Padding is never chosen, NaN is greater than any other value, and of equal values the first counts: its position,
    flat in *spatial, is the hidden output `indices`, and the gradient goes there. The number of axes is that of `size`;
    the stride is the size unless given.

    Shapes    x (n, c, *spatial) -> y (n, c, *count), count = (length + before + after - size) // stride + 1
    Source    Ranzato, Huang, Boureau, LeCun 2007, Unsupervised Learning of Invariant Feature Hierarchies, section 2
    Raises    ShapeError if x has another rank, or is too small for one window; if a side of pad is not below the size
    """

    rank = None
    reads = ("indices",)
    needsFloats = True
    hidden = ("indices",)

    def __init__(self, size=2, stride=None, pad=0, name=None):
        super().__init__(name)
        self.size = windowSize(size, self.rank, type(self).__name__)
        self.stride = self.size if stride is None else perAxis(stride, len(self.size), "stride")
        self.pad = poolSides(pad, self.size, self.stride)

    def dataShapeFrom(self, x):
        rank = len(self.size)
        needRank(x, rank)
        return (*x[:2], *windowShape(x, self.size, self.stride, self.pad, (1,) * rank))

    def hiddenShapeFrom(self, x):
        return [self.dataShapeFrom(x)]

    def hiddenTypeFrom(self, x):
        return [np.dtype(np.int32)]

    def updateData(self, x):
        return maxPool(x, self.size, self.stride, self.pad)

    def updateGrad(self, grad, x, y, indices):
        return maxPoolGrad(grad, indices, x.shape, self.size, self.stride, self.pad)

    def flopsFrom(self, x):
        return prod(self.size) * product(self.dataShapeFrom(x))

    @classmethod
    def examples(cls):
        yield cls(size=(2, 1, 2, 2)), [(2, 2, 3, 2, 3, 2)]
        yield cls(size=(3, 2), stride=(1, 2), pad=((2, 0), (1, 1))), [(2, 3, 4, 5)]
