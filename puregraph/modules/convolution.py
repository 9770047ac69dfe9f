"""Convolutions of one, two, three and n axes, also with weights that are inputs."""

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from puregraph.core import initial
from puregraph.core.arguments import Count, Flag, NotNegative
from puregraph.core.base.widen import asResultType
from puregraph.core.errors import need
from puregraph.core.param import Param
from puregraph.core.shape import product
from puregraph.graph.module import Module
from puregraph.modules.windows import needRank, overMaps, padding, perAxis, perMap, sides, windowShape, windowSize
from puregraph.ops.convolution.reference import convolve, convolveData, convolveWeight
from puregraph.ops.reduction.reference import total


class _Convolution(Module):
    """Base class of convolutions. A subclass implements `apply` and `applyAdjoint`: ConvNd by convolve and its adjoint,
    DeconvNd by the adjoint and convolve. The first axis of both weights is the output channels of `convolve`."""

    apply: Callable[..., Any]
    reached: Callable[..., Any]
    applyAdjoint: Callable[..., Any]
    rank: int | None = None
    reads = ("x", "W")
    needsFloats = True
    isTransposed = False

    def setWindows(self, inmaps, outmaps, size, stride, pad, dilation, groups):
        """Check and keep the options of the windows."""
        checkMaps(inmaps, outmaps, groups)
        self.size = windowSize(size, self.rank, type(self).__name__)
        self.stride = perAxis(stride, len(self.size), "stride")
        self.dilation = perAxis(dilation, len(self.size), "dilation")
        self.pad = self.sidesOf(pad, self.size, self.stride, self.dilation)
        self.inmaps, self.outmaps, self.groups = inmaps, outmaps, groups

    sidesOf = staticmethod(sides)

    def setWeights(self, useBias, initscheme, wscale):
        """Make W and b."""
        infan, outfan = (maps // self.groups * prod(self.size) for maps in (self.inmaps, self.outmaps))
        first, second = (self.inmaps, self.outmaps) if self.isTransposed else (self.outmaps, self.inmaps)
        self.W = Param((first, second // self.groups, *self.size), initial.weights(initscheme, infan, outfan, wscale))
        self.b = Param((self.outmaps,)) if useBias else None

    def windows(self, size):
        """Stride, padding and dilation of windows of this size."""
        return self.stride, self.pad, self.dilation

    def layout(self, lengths, size):
        """The options of the convolution kernels for inputs of these lengths."""
        stride, pad, dilation = self.windows(size)
        return stride, padding(lengths, size, stride, pad, dilation), dilation, self.groups

    def updateData(self, x, W, b=None):
        x, W, *biases = asResultType(x, W) if b is None else asResultType(x, W, b)
        y = self.apply(x, W)
        return np.add(y, perMap(biases[0], y), out=y) if biases else y

    def updateGrad(self, grad, x, W, b, y, needs):
        size = W.shape[2:]
        gradient, made = (x, self.reached(grad, size)) if self.isTransposed else (grad, x)
        layout = self.layout(made.shape[2:], size)
        return (
            self.applyAdjoint(grad, W, x.shape) if needs[0] else None,
            convolveWeight(gradient, made, size, *layout) if needs[1] else None,
            total(grad, overMaps(grad)) if needs[2] else None,
        )


def checkMaps(inmaps, outmaps, groups):
    """Check that groups divide the input and output channels.

    Raises    ShapeError otherwise
    """
    hint = f"groups={groups} must divide both"
    need(inmaps % groups == outmaps % groups == 0, f"inmaps and outmaps in {groups} groups", (inmaps, outmaps), hint)


class _Forward(_Convolution):
    """Base class of convolutions that are not transposed."""

    def apply(self, x, W):
        return convolve(x, W, *self.layout(x.shape[2:], W.shape[2:]))

    def applyAdjoint(self, grad, W, shape):
        return convolveData(grad, W, shape, *self.layout(shape[2:], W.shape[2:]))


class ConvNd(_Forward):
    """y[n, o, a] = b[o] + sum over c, t of W[o, c, t] x[n, g c, a stride + t dilation - before]

    g c being the channels of the group of o, a and t having one entry per spatial axis, and x zero outside.
    The number of axes is that of `size`. `pad` is an integer, one per axis, a pair (before, after) per axis, or "same",
    which makes count = ceil(length / stride) and puts an odd zero after; a negative side cuts elements off.

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

    def flopsFrom(self, x):
        terms = self.inmaps // self.groups * prod(self.size)
        return (2 * terms + (self.b is not None)) * product(self.dataShapeFrom(x))

    @classmethod
    def examples(cls):
        yield cls(2, 3, size=(2, 1, 2, 2)), [(2, 2, 3, 2, 3, 2)]
        yield cls(4, 2, size=(3, 2), stride=(2, 1), pad=((2, 0), (1, 2)), dilation=(1, 2), groups=2), [(2, 4, 5, 4)]
        yield cls(1, 2, size=(3,), pad="same", useBias=False), [(1, 1, 4)]
        yield cls(2, 2, size=(3, 2), stride=(2, 3), pad="same"), [(1, 2, 5, 7)]
        yield cls(2, 2, size=(2, 2), pad=((-1, 0), (2, -2))), [(1, 2, 4, 5)]


class Conv1D(ConvNd):
    """y[n, o, a] = b[o] + sum over c, t of W[o, c, t] x[n, g c, a stride + t dilation - before]

    g c being the channels of the group that o belongs to, and x zero outside. `size`, `stride` and `dilation` are
    integers; `pad` is an integer, ((before, after),), or "same", which makes m = ceil(l / stride).

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
    or "same", which makes count = ceil(length / stride) and puts an odd row or column of zeros after.

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
    (before, after), or "same", which makes count = ceil(length / stride).

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


class Convolve(_Forward):
    """y[n, o, a] = b[o] + sum over c, t of W[o, c, t] x[n, g c, a stride + t dilation - before]

    A ConvNd whose W and b are inputs. `stride` and `dilation` are an integer or one per axis, `pad` is as for ConvNd.

    Shapes    x (n, maps, *spatial), W (o, maps / groups, *size), b (o,) -> y (n, o, *count)
    Source    ONNX operator Conv; torch.nn.functional.conv2d
    Raises    ShapeError if the ranks or channels differ, or x is too small for one window

    >>> x, W = np.arange(4.0).reshape(1, 1, 4), np.array([[[1.0, -1.0]]])
    >>> Convolve(stride=2)(x, W).tolist()
    [[[-1.0, -1.0]]]
    """

    def __init__(self, stride=1, pad=0, dilation=1, groups: Count = 1, name=None):
        super().__init__(name)
        self.stride, self.pad, self.dilation, self.groups = stride, pad, dilation, groups
        checkWindows(self)

    def windows(self, size):
        return windowsOf(self, size)

    def dataShapeFrom(self, x, W, b=None):
        fits = len(x) == len(W) > 2 and x[1] == W[1] * self.groups and W[0] % self.groups == 0
        need(
            fits and 0 not in W,
            f"x (n, maps, *spatial) and W (o, maps / {self.groups}, *size), groups={self.groups}",
            [x, W],
        )
        need(b is None or b == (W[0],), f"a bias of shape ({W[0]},)", b)
        return (x[0], W[0], *windowShape(x, W[2:], *self.windows(W[2:])))

    def flopsFrom(self, x, W, b=None):
        return 2 * product(W[1:]) * product(self.dataShapeFrom(x, W, b))

    @classmethod
    def examples(cls):
        yield cls((2, 1), ((1, 0), (0, 2)), (1, 2), groups=2), [(2, 4, 5, 4), (2, 2, 3, 2), (2,)]
        yield cls(), [(1, 2, 4), (3, 2, 2)]
        yield cls(2, "same"), [(1, 2, 5, 4), (3, 2, 2, 3), (3,)]


def windowsOf(module, size):
    """Stride, padding and dilation of a module whose weights are inputs, for windows of this size."""
    stride, dilation = (perAxis(getattr(module, name), len(size), name) for name in ("stride", "dilation"))
    return stride, module.sidesOf(module.pad, size, stride, dilation), dilation


def checkWindows(module):
    """The rank of the option that has one entry per axis; 1 without any.

    Raises    ShapeError if options fit windows of no rank
    """
    options = [getattr(module, name, 0) for name in ("stride", "pad", "dilation", "postpad")]
    ranks = {len(v) for v in options if isinstance(v, (tuple, list))}
    need(len(ranks) <= 1, "stride, pad, dilation and postpad for as many axes, or as numbers", options)
    rank = next(iter(ranks), 1)
    windowsOf(module, (1,) * rank)
    return rank
