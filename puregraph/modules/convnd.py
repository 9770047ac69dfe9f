"""ConvNd: convolution over any number of axes; Conv1D, Conv2D and Conv3D fix the number."""

from math import prod

from puregraph.arguments import Count, Flag, NotNegative
from puregraph.core.shape import product
from puregraph.kernels.convolution import convolve, convolveData
from puregraph.modules.convbase import _Convolution
from puregraph.modules.windows import needRank, windowShape


class ConvNd(_Convolution):
    """y[n, o, a] = b[o] + sum over c, t of W[o, c, t] x[n, g c, a stride + t dilation - before]

    g c being the channels of the group of o, a and t having one entry per spatial axis, and x zero outside.
    The number of axes is that of `size`. `pad` is an integer, one per axis, a pair (before, after) per axis, or "same"
    (stride 1 only), which leaves every length as it is and puts an odd zero after.

    Shapes    x (n, inmaps, *spatial), W (outmaps, inmaps / groups, *size), b (outmaps,) -> y (n, outmaps, *count),
              count = (length + before + after - dilation (size - 1) - 1) // stride + 1
    Source    Dumoulin and Visin 2016, arXiv:1603.07285, relationship 6; dilation: Yu and Koltun 2016,
              arXiv:1511.07122, eq. 2; groups: Krizhevsky, Sutskever, Hinton 2012, section 3.2
    Raises    ShapeError if x has another rank or number of channels, or is too small for one window; if groups do not
              divide the channels
    """

    def __init__(
        self,
        inmaps: Count,
        outmaps: Count,
        size,
        stride=1,
        pad=0,
        dilation=1,
        useBias: Flag = True,
        initscheme=None,
        wscale: NotNegative = 1.0,
        groups: Count = 1,
        name=None,
    ):
        super().__init__(name)
        self.setWindows(inmaps, outmaps, size, stride, pad, dilation, groups)
        self.setWeights(useBias, initscheme, wscale)

    def dataShapeFrom(self, x):
        needRank(x, len(self.size), self.inmaps)
        return (x[0], self.outmaps, *windowShape(x, self.size, self.stride, self.pad, self.dilation))

    def apply(self, x, W):
        return convolve(x, W, *self.layout)

    def applyAdjoint(self, grad, W, shape):
        return convolveData(grad, W, shape, *self.layout)

    def flopsFrom(self, x):
        terms = self.inmaps // self.groups * prod(self.size)
        return (2 * terms + (self.b is not None)) * product(self.dataShapeFrom(x))

    @classmethod
    def examples(cls):
        yield cls(2, 3, size=(2, 1, 2, 2)), [(2, 2, 3, 2, 3, 2)]
        yield cls(4, 2, size=(3, 2), stride=(2, 1), pad=((2, 0), (1, 2)), dilation=(1, 2), groups=2), [(2, 4, 5, 4)]
        yield cls(1, 2, size=(3,), pad="same", useBias=False), [(1, 1, 4)]
