"""Convolving: convolutions whose weight is an input."""

import numpy as np

from puregraph.core.arguments import Count, Counts, Pairs, Wholes, optional
from puregraph.core.base.widen import asResultType
from puregraph.core.errors import need
from puregraph.core.shape import product, transposed
from puregraph.graph.module import Module
from puregraph.modules.windows import overMaps, perMap, windowShape
from puregraph.ops.convolution.reference import convolve, convolveData, convolveWeight
from puregraph.ops.convolution.windowgeometry import inner, opposite, padded
from puregraph.ops.reduction.reference import total


class Convolve(Module):
    """y[n, o, a] = b[o] + sum over c, t of W[o, c, t] x[n, g c, a stride + t dilation - before], x being zero outside

    Shapes    x (n, maps, *spatial), W (o, maps / groups, *size), b (o,) -> y (n, o, *count)
    Source    ONNX operator Conv
    Raises    ShapeError if the ranks or channels differ, or x is too small for one window
    """

    reads = ("x", "W")
    needsFloats = True

    def __init__(
        self, stride: Counts = (1,), pad: Pairs = ((0, 0),), dilation: Counts = (1,), groups: Count = 1, name=None
    ):
        super().__init__(name)
        self.stride, self.dilation, self.groups = tuple(stride), tuple(dilation), groups
        self.pad = tuple((int(before), int(after)) for before, after in pad)

    @property
    def layout(self):
        """The options of the convolution kernels."""
        return self.stride, self.pad, self.dilation, self.groups

    def dataShapeFrom(self, x, W, b=None):
        rank = len(self.stride)
        fits = len(x) == len(W) == rank + 2 and x[1] == W[1] * self.groups and W[0] % self.groups == 0
        need(fits, f"x (n, maps, *spatial) and W (o, maps / {self.groups}, *size), {rank} spatial axes", [x, W])
        need(b is None or b == (W[0],), f"a bias of shape ({W[0]},)", b)
        return (x[0], W[0], *windowShape(x, W[2:], self.stride, self.pad, self.dilation))

    def updateData(self, x, W, b=None):
        y = convolve(*asResultType(x, W), *self.layout)
        return y if b is None else y + perMap(b, y)

    def updateGrad(self, grad, x, W, b, y, needs):
        return (
            convolveData(grad, W, x.shape, *self.layout) if needs[0] else None,
            convolveWeight(grad, x, W.shape[2:], *self.layout) if needs[1] else None,
            total(grad, overMaps(grad)) if needs[2] else None,
        )

    def flopsFrom(self, x, W, b=None):
        return 2 * product(W[1:]) * product(self.dataShapeFrom(x, W, b))

    @classmethod
    def examples(cls):
        yield cls((2, 1), ((1, 0), (0, 2)), (1, 2), groups=2), [(2, 4, 5, 4), (2, 2, 3, 2), (2,)]
        yield cls(), [(1, 2, 4), (3, 2, 2)]


class ConvolveTransposed(Module):
    """y[n, o, h] = b[o] + sum over c, t, a with h = a stride + t dilation - before of W[c, o, t] x[n, c, a]

    `postpad` makes y longer at its end; negative sides of `pad` make it longer with zeros.

    Shapes    x (n, maps, *spatial), W (maps, o / groups, *size), b (o,) -> y (n, o, *lengths)
    Source    ONNX operator ConvTranspose
    Raises    ShapeError if the ranks or channels differ, or nothing is left of y
    """

    reads = ("x", "W")
    needsFloats = True

    def __init__(
        self,
        stride: Counts = (1,),
        pad: Pairs = ((0, 0),),
        dilation: Counts = (1,),
        postpad: optional(Wholes) = None,
        groups: Count = 1,
        name=None,
    ):
        super().__init__(name)
        self.stride, self.dilation, self.groups = tuple(stride), tuple(dilation), groups
        self.pad = tuple((int(before), int(after)) for before, after in pad)
        self.postpad = (0,) * len(self.stride) if postpad is None else tuple(postpad)

    @property
    def cut(self):
        """Widths to cut off on both sides; negative widths are added."""
        return tuple((before, after - post) for (before, after), post in zip(self.pad, self.postpad))

    @property
    def layout(self):
        """The options of the convolution kernels, for all that there is of y."""
        return self.stride, 0, self.dilation, self.groups

    def dataShapeFrom(self, x, W, b=None):
        rank = len(self.stride)
        need(len(x) == len(W) == rank + 2 and x[1] == W[0], f"{rank} spatial axes, and channels alike", [x, W])
        need(b is None or b == (W[1] * self.groups,), f"a bias of shape ({W[1] * self.groups},)", b)
        return (x[0], W[1] * self.groups, *self.lengths(x, W, self.cut))

    def lengths(self, x, W, cut):
        """The lengths of y when so much is cut off."""
        return [
            transposed(n, k, s, sum(both), d) for n, k, s, both, d in zip(x[2:], W[2:], self.stride, cut, self.dilation)
        ]

    def wholeShape(self, x, W):
        """The shape of y before anything is cut off."""
        return (x[0], W[1] * self.groups, *self.lengths(x, W, ((0, 0),) * len(self.stride)))

    def updateData(self, x, W, b=None):
        y = convolveData(*asResultType(x, W), self.wholeShape(x.shape, W.shape), *self.layout)
        y = padded(y[inner(self.cut, y.shape[2:])], opposite(tuple((min(a, 0), min(c, 0)) for a, c in self.cut)))
        return np.ascontiguousarray(y) if b is None else y + perMap(b, y)

    def updateGrad(self, grad, x, W, b, y, needs):
        g = padded(grad, self.cut)
        return (
            convolve(g, W, *self.layout) if needs[0] else None,
            convolveWeight(x, g, W.shape[2:], *self.layout) if needs[1] else None,
            total(grad, overMaps(grad)) if needs[2] else None,
        )

    def flopsFrom(self, x, W, b=None):
        return 2 * product(W[1:]) * product(x)

    @classmethod
    def examples(cls):
        yield cls((2,), ((1, 0),), (1,), (1,)), [(2, 2, 3), (2, 3, 3), (3,)]
        yield cls((1, 2), ((-1, 0), (0, 1)), (1, 2), groups=2), [(1, 2, 3, 2), (2, 2, 2, 2)]
