"""AvgPoolNd: the mean over windows of any number of axes; AvgPool1D and AvgPool2D fix the number."""

from math import prod

from puregraph.arguments import Flag
from puregraph.core.shape import product
from puregraph.kernels.pooling import meanPool, meanPoolGrad
from puregraph.module import Module
from puregraph.modules.windows import needRank, perAxis, poolSides, windowShape, windowSize


class AvgPoolNd(Module):
    """y[n, c, a] = mean over t of x[n, c, a stride + t - before]

    Padding counts as zeros with includePad, and not at all without. The number of axes is that of `size`; the stride is
    the size unless given.

    Shapes    x (n, c, *spatial) -> y (n, c, *count), count = (length + before + after - size) // stride + 1
    Source    LeCun, Bottou, Bengio, Haffner 1998, Gradient-Based Learning Applied to Document Recognition, section II
    Raises    ShapeError if x has another rank, or is too small for one window; if a side of pad is not below the size
    """

    rank = None
    reads = ()
    needsFloats = True

    def __init__(self, size=2, stride=None, pad=0, includePad: Flag = True, name=None):
        super().__init__(name)
        self.size = windowSize(size, self.rank, type(self).__name__)
        self.stride = self.size if stride is None else perAxis(stride, len(self.size), "stride")
        self.pad = poolSides(pad, self.size, self.stride)
        self.includePad = includePad

    def dataShapeFrom(self, x):
        rank = len(self.size)
        needRank(x, rank)
        return (*x[:2], *windowShape(x, self.size, self.stride, self.pad, (1,) * rank))

    def updateData(self, x):
        return meanPool(x, self.size, self.stride, self.pad, self.includePad)

    def updateGrad(self, grad, x, y):
        return meanPoolGrad(grad, x.shape, self.size, self.stride, self.pad, self.includePad)

    def flopsFrom(self, x):
        return prod(self.size) * product(self.dataShapeFrom(x))

    @classmethod
    def examples(cls):
        yield cls(size=(2, 1, 2, 2)), [(2, 2, 3, 2, 3, 2)]
        yield cls(size=(3, 2), stride=(1, 2), pad=((2, 0), (1, 1)), includePad=False), [(2, 3, 4, 5)]
