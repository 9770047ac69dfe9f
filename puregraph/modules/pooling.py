"""Pooling: maximum or mean of each window, or of each channel."""

from math import prod

import numpy as np

from puregraph.core.arguments import Flag, Wholes
from puregraph.core.base.widen import divided
from puregraph.core.errors import need
from puregraph.core.shape import product
from puregraph.graph.module import Module
from puregraph.modules.windows import needRank, perAxis, poolSides, windowShape, windowSize
from puregraph.ops.pooling.reference import maxPool, maxPoolGrad, meanPool, meanPoolGrad


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


class MaxPool1D(MaxPoolNd):
    """y[n, c, a] = max over t of x[n, c, a stride + t - before]

    Padding is never chosen, NaN is greater than any other value, and of equal values the first counts. The stride is
    the size unless given; `pad`, below the size, is an integer or ((before, after),).

    Shapes    x (n, c, l) -> y (n, c, m), m = (l + before + after - size) // stride + 1
    Source    Ranzato, Huang, Boureau, LeCun 2007, Unsupervised Learning of Invariant Feature Hierarchies, section 2
    Raises    ShapeError if x has another rank, or is too short for one window; if a side of pad is not below the size
    """

    rank = 1

    @classmethod
    def examples(cls):
        yield cls(), [(2, 3, 5)]
        yield cls(3, stride=2, pad=((1, 2),)), [(1, 2, 6)]


class MaxPool2D(MaxPoolNd):
    """y[n, c, a] = max over t of x[n, c, a stride + t - before]

    a and t being pairs (height, width). Padding is never chosen, NaN is greater than any other value, and of equal
    values the first counts. The stride is the size unless given. Options are an integer or a pair; `pad`, each side
    below the size, also ((top, bottom), (left, right)).

    Shapes    x (n, c, h, w) -> y (n, c, *count), count = (length + before + after - size) // stride + 1
    Source    Ranzato, Huang, Boureau, LeCun 2007, Unsupervised Learning of Invariant Feature Hierarchies, section 2
    Raises    ShapeError if x has another rank, or is too small for one window; if a side of pad is not below the size
    """

    rank = 2

    @classmethod
    def examples(cls):
        yield cls(), [(2, 3, 4, 5)]
        yield cls((3, 2), stride=(1, 2), pad=(1, 0)), [(2, 2, 4, 6)]
        yield cls(3, stride=2, pad=((2, 1), (0, 1))), [(1, 2, 5, 5)]


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


class AvgPool1D(AvgPoolNd):
    """y[n, c, a] = mean over t of x[n, c, a stride + t - before]

    Padding counts as zeros with includePad, and not at all without. The stride is the size unless given; `pad`, below
    the size, is an integer or ((before, after),).

    Shapes    x (n, c, l) -> y (n, c, m), m = (l + before + after - size) // stride + 1
    Source    LeCun, Bottou, Bengio, Haffner 1998, Gradient-Based Learning Applied to Document Recognition, section II
    Raises    ShapeError if x has another rank, or is too short for one window; if a side of pad is not below the size
    """

    rank = 1

    @classmethod
    def examples(cls):
        yield cls(), [(2, 3, 5)]
        yield cls(3, stride=2, pad=((1, 2),)), [(1, 2, 6)]
        yield cls(3, stride=1, pad=1, includePad=False), [(2, 1, 4)]


class AvgPool2D(AvgPoolNd):
    """y[n, c, a] = mean over t of x[n, c, a stride + t - before]

    a and t being pairs (height, width). Padding counts as zeros with includePad, and not at all without. The stride is
    the size unless given. Options are an integer or a pair; `pad`, each side below the size, also
    ((top, bottom), (left, right)).

    Shapes    x (n, c, h, w) -> y (n, c, *count), count = (length + before + after - size) // stride + 1
    Source    LeCun, Bottou, Bengio, Haffner 1998, Gradient-Based Learning Applied to Document Recognition, section II
    Raises    ShapeError if x has another rank, or is too small for one window; if a side of pad is not below the size
    """

    rank = 2

    @classmethod
    def examples(cls):
        yield cls(), [(2, 3, 4, 5)]
        yield cls((3, 2), stride=(1, 2), pad=(1, 0)), [(2, 2, 4, 6)]
        yield cls(3, stride=2, pad=((2, 1), (0, 1)), includePad=False), [(1, 2, 5, 5)]


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


class MaxUnpool(Module):
    """y = 0, but y[indices] = x: each element back to where a maximum was found, counted in all of y as one row.

    The indices are of an output with lengths `natural`; `lengths` are those that y has.

    Shapes    x, indices (n, c, *count) -> y (n, c, *lengths)
    Source    ONNX operator MaxUnpool
    Raises    ShapeError if x and indices differ
    """

    reads = ("indices",)
    keepsDtype = True
    indices = ("indices",)

    def __init__(self, natural: Wholes, lengths: Wholes, name=None):
        super().__init__(name)
        need(len(natural) == len(lengths), f"natural of {len(lengths)} lengths", natural)
        self.natural, self.lengths = tuple(natural), tuple(lengths)

    def dataShapeFrom(self, x, indices):
        need(x == indices, "indices in the shape of x", [x, indices])
        need(len(x) == 2 + len(self.lengths), f"x (n, c, *spatial) with {len(self.lengths)} spatial axes", x)
        return (*x[:2], *self.lengths)

    def positions(self, x, indices):
        """The index of each element in y, flattened."""
        points = np.unravel_index(indices, (*x.shape[:2], *self.natural))
        return np.ravel_multi_index(points, (*x.shape[:2], *self.lengths))

    def updateData(self, x, indices):
        y = np.zeros_like(x, shape=prod(self.dataShapeFrom(x.shape, indices.shape)))
        y[self.positions(x, indices)] = x
        return y.reshape(self.dataShapeFrom(x.shape, indices.shape))

    def updateGrad(self, grad, x, indices, y):
        return grad.ravel()[self.positions(x, indices)], None

    def sample(self, rng, x, indices):
        return [rng.standard_normal(x), rng.permutation(prod(x)).reshape(x)]

    @classmethod
    def examples(cls):
        yield cls((4,), (4,)), [(1, 2, 2), (1, 2, 2)]
