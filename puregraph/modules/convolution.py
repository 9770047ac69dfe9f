"""Convolutions of one, two, three and n axes."""

from math import prod

import numpy as np

from puregraph.core import initial
from puregraph.core.arguments import Count, Flag, NotNegative
from puregraph.core.base.widen import asResultType
from puregraph.core.errors import need
from puregraph.core.param import Param
from puregraph.core.shape import product
from puregraph.graph.module import Module
from puregraph.modules.windows import needRank, overMaps, perAxis, perMap, sides, windowShape, windowSize
from puregraph.ops.convolution.reference import convolve, convolveData, convolveWeight
from puregraph.ops.reduction.reference import total


class _Convolution(Module):
    """A subclass says how its weight is applied, and how gradients go back: ConvNd by convolve and its adjoint,
    DeconvNd the other way around. The weight of both has the channels first that its convolution gives."""

    rank = None
    reads = ("x", "W")
    needsFloats = True
    isTransposed = False

    def setWindows(self, inmaps, outmaps, size, stride, pad, dilation, groups):
        """Check and keep the options of the windows."""
        checkMaps(inmaps, outmaps, groups)
        self.size = windowSize(size, self.rank, type(self).__name__)
        self.stride = perAxis(stride, len(self.size), "stride")
        self.dilation = perAxis(dilation, len(self.size), "dilation")
        self.pad = sides(pad, self.size, self.stride, self.dilation)
        self.inmaps, self.outmaps, self.groups = inmaps, outmaps, groups

    def setWeights(self, useBias, initscheme, wscale):
        """Make W and b."""
        fans = [maps // self.groups * prod(self.size) for maps in (self.inmaps, self.outmaps)]
        first, second = (self.inmaps, self.outmaps) if self.isTransposed else (self.outmaps, self.inmaps)
        self.W = Param((first, second // self.groups, *self.size), initial.weights(initscheme, *fans, wscale))
        self.b = Param((self.outmaps,)) if useBias else None

    @property
    def layout(self):
        """The options of the convolution kernels."""
        return self.stride, self.pad, self.dilation, self.groups

    def updateData(self, x, W, b):
        y = self.apply(*asResultType(x, W))
        return y if b is None else np.add(y, perMap(b, y), out=y)

    def updateGrad(self, grad, x, W, b, y, needs):
        gradient, made = (x, self.reached(grad)) if self.isTransposed else (grad, x)
        return (
            self.applyAdjoint(grad, W, x.shape) if needs[0] else None,
            convolveWeight(gradient, made, self.size, *self.layout) if needs[1] else None,
            total(grad, overMaps(grad)) if needs[2] else None,
        )


def checkMaps(inmaps, outmaps, groups):
    """Check that groups divide the input and output channels.

    Raises    ShapeError otherwise
    """
    hint = f"groups={groups} must divide both"
    need(inmaps % groups == outmaps % groups == 0, f"inmaps and outmaps in {groups} groups", (inmaps, outmaps), hint)


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


class Conv1D(ConvNd):
    """y[n, o, a] = b[o] + sum over c, t of W[o, c, t] x[n, g c, a stride + t dilation - before]

    g c being the channels of the group that o belongs to, and x zero outside. `size`, `stride` and `dilation` are
    integers; `pad` is an integer, ((before, after),), or "same" (stride 1 only), which keeps the length.

    Shapes    x (n, inmaps, l), W (outmaps, inmaps / groups, size), b (outmaps,) -> y (n, outmaps, m),
              m = (l + before + after - dilation (size - 1) - 1) // stride + 1
    Source    Waibel et al. 1989, Phoneme Recognition Using Time-Delay Neural Networks, section II
    Raises    ShapeError if x has another rank or number of channels, or is too short for one window; if groups do not
              divide the channels
    """

    rank = 1

    @classmethod
    def examples(cls):
        yield cls(2, 3, 3), [(2, 2, 5)]
        yield cls(4, 6, 2, stride=2, pad=((2, 1),), dilation=3, groups=2), [(3, 4, 7)]
        yield cls(3, 3, 4, pad="same", groups=3, useBias=False, initscheme="he"), [(1, 3, 4)]


class Conv2D(ConvNd):
    """y[n, o, a] = b[o] + sum over c, t of W[o, c, t] x[n, g c, a stride + t dilation - before]

    g c being the channels of the group that o belongs to, a and t pairs (height, width), and x zero outside. `size`,
    `stride` and `dilation` are an integer or such a pair; `pad` is an integer, a pair, ((top, bottom), (left, right)),
    or "same" (stride 1 only), which keeps height and width and puts an odd row or column of zeros after.

    Shapes    x (n, inmaps, h, w), W (outmaps, inmaps / groups, *size), b (outmaps,) -> y (n, outmaps, *count),
              count = (length + before + after - dilation (size - 1) - 1) // stride + 1 for height and width
    Source    LeCun, Bottou, Bengio, Haffner 1998, Gradient-Based Learning Applied to Document Recognition, section II;
              dilation: Yu and Koltun 2016, arXiv:1511.07122, eq. 2; groups: Krizhevsky et al. 2012, section 3.2
    Raises    ShapeError if x has another rank or number of channels, or is too small for one window; if groups do not
              divide the channels
    """

    rank = 2

    @classmethod
    def examples(cls):
        yield cls(2, 3, 3), [(2, 2, 5, 4)]
        yield cls(1, 2, (3, 2), stride=2, pad=1), [(2, 1, 5, 5)]
        yield cls(4, 6, (2, 3), stride=(1, 2), pad=((0, 2), (3, 1)), dilation=(2, 1), groups=2), [(2, 4, 4, 6)]
        yield cls(3, 6, 3, pad="same", groups=3, useBias=False), [(1, 3, 3, 5)]
        yield cls(3, 2, 1, initscheme="he"), [(2, 3, 2, 3)]
        yield cls(1, 1, 5, stride=3, pad=2, wscale=0.1, initscheme="gaussian"), [(1, 1, 6, 7)]


class Conv3D(ConvNd):
    """y[n, o, a] = b[o] + sum over c, t of W[o, c, t] x[n, g c, a stride + t dilation - before]

    g c being the channels of the group that o belongs to, a and t triples (depth, height, width), and x zero outside.
    `size`, `stride` and `dilation` are an integer or such a triple; `pad` is an integer, a triple, three pairs
    (before, after), or "same" (stride 1 only), which keeps every length.

    Shapes    x (n, inmaps, d, h, w), W (outmaps, inmaps / groups, *size), b (outmaps,) -> y (n, outmaps, *count),
              count = (length + before + after - dilation (size - 1) - 1) // stride + 1 for each of the three
    Source    Ji, Xu, Yang, Yu 2013, 3D Convolutional Neural Networks for Human Action Recognition, eq. 2
    Raises    ShapeError if x has another rank or number of channels, or is too small for one window; if groups do not
              divide the channels
    """

    rank = 3

    @classmethod
    def examples(cls):
        yield cls(2, 3, 2), [(2, 2, 3, 2, 4)]
        yield (
            cls(2, 4, (2, 1, 3), stride=(2, 1, 2), pad=((1, 0), (0, 1), (2, 1)), dilation=(1, 1, 2), groups=2),
            [(1, 2, 3, 3, 4)],
        )
        yield cls(1, 2, 3, pad="same", useBias=False), [(1, 1, 2, 3, 2)]
