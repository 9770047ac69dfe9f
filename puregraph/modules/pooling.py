"""Pooling: maximum or mean of each window, or of each channel."""

from math import prod
from typing import Annotated

import numpy as np

from puregraph.core.arguments import Argument, Count, Flag, Wholes, isNumber
from puregraph.core.base.widen import divided, widened
from puregraph.core.errors import need
from puregraph.core.shape import product
from puregraph.core.tracer import arrayLike
from puregraph.graph.module import Module
from puregraph.modules.windows import needRank, padding, perAxis, poolSides, windowShape, windowSize
from puregraph.ops.convolution.windowgeometry import padded, unpadded, window
from puregraph.ops.pooling.reference import maxPool, maxPoolGrad, meanPool, meanPoolGrad


class _Pool(Module):
    """Base class: windows of `size`, at distances of `stride`; with `ceil` the last may go beyond the padding."""

    rank: int | None = None

    def setWindows(self, size, stride, pad, dilation, ceil):
        """Check and keep the options of the windows."""
        self.size = windowSize(size, self.rank, type(self).__name__)
        self.stride = self.size if stride is None else perAxis(stride, len(self.size), "stride")
        self.dilation = perAxis(dilation, len(self.size), "dilation")
        self.pad, self.ceil = poolSides(pad, self.size, self.stride, self.dilation), ceil

    def dataShapeFrom(self, x):
        needRank(x, len(self.size))
        return (*x[:2], *windowShape(x, self.size, self.stride, self.pad, self.dilation, self.ceil))

    def geometry(self, shape):
        """Size, stride, padding and, other than 1, dilation for an input of this shape."""
        pad = padding(shape[2:], self.size, self.stride, self.pad, self.dilation, self.ceil)
        return self.size, self.stride, pad, *[self.dilation] * (set(self.dilation) != {1})

    def flopsFrom(self, x):
        return prod(self.size) * product(_Pool.dataShapeFrom(self, x))


class MaxPoolNd(_Pool):
    """y[n, c, a] = max over t of x[n, c, a stride + t dilation - before]

    Padding is never chosen, NaN is greater than any other value, and of equal values the first counts: its position,
    flat in *spatial, is the hidden output `indices`, and the gradient goes there. The number of axes is that of `size`;
    the stride is the size unless given. `pad` is an integer, one per axis, (before, after) per axis, or "same": as many
    windows as ceil(length / stride). With `ceil` the last window may go beyond the padding. `useMask` makes positions
    a second output, `mask`, as indices of the flattened x, which MaxUnpool takes; with `columns` in column-major order.

    Shapes    x (n, c, *spatial) -> y, mask (n, c, *count),
              count = (length + before + after - dilation (size - 1) - 1) // stride + 1
    Source    Ranzato, Huang, Boureau, LeCun 2007, Unsupervised Learning of Invariant Feature Hierarchies, section 2
    Raises    ShapeError if x has another rank, or is too small for one window; if a side of pad is not below the size

    >>> MaxPoolNd((2, 2), ceil=True).dataShapeFrom((1, 3, 5, 5))
    (1, 3, 3, 3)
    """

    reads = ("indices",)
    keepsDtype = True
    hidden = ("indices",)

    def __init__(
        self,
        size=2,
        stride=None,
        pad=0,
        name=None,
        *,
        dilation=1,
        ceil: Flag = False,
        useMask: Flag = False,
        columns: Flag = False,
    ):
        super().__init__(name)
        self.setWindows(size, stride, pad, dilation, ceil)
        need(useMask or not columns, "useMask=True for a mask of columns", useMask)
        self.useMask, self.columns = useMask, columns

    @property
    def outputNames(self):
        return ("y", "mask") if self.useMask else ("y",)

    def dataShapeFrom(self, x):
        y = super().dataShapeFrom(x)
        return [y, y] if self.useMask else y

    def dataTypeFrom(self, x):
        super().dataTypeFrom(x)
        return [x, np.dtype(np.int64)] if self.useMask else x

    def hiddenShapeFrom(self, x):
        return [super().dataShapeFrom(x)]

    def hiddenTypeFrom(self, x):
        return [np.dtype(np.int32)]

    def updateData(self, x):
        isFloat = x.dtype.kind in "fV"
        data = x if isFloat else x.astype(np.float32 if x.dtype.itemsize < 3 else np.float64)
        y, indices = maxPool(data, *self.geometry(x.shape))
        y = y if isFloat else y.astype(x.dtype)
        return (y, self.mask(indices, x.shape), indices) if self.useMask else (y, indices)

    def mask(self, indices, shape):
        """Return positions as indices of the flattened x."""
        if self.columns:
            points = np.unravel_index(np.maximum(indices, 0), shape[2:])
            indices = np.ravel_multi_index(points[::-1], shape[:1:-1])
        starts = np.arange(shape[0] * shape[1]) * prod(shape[2:])
        return indices + arrayLike(indices, starts.reshape(*shape[:2], *(1,) * (len(shape) - 2)))

    def updateGrad(self, grad, x, *outputs):
        g = grad[0] if self.useMask else grad
        if g is None:
            return np.zeros_like(x)
        return maxPoolGrad(g, outputs[-1], x.shape, *self.geometry(x.shape))

    @classmethod
    def examples(cls):
        yield cls(size=(2, 1, 2, 2)), [(2, 2, 3, 2, 3, 2)]
        yield cls(size=(3, 2), stride=(1, 2), pad=((2, 0), (1, 1))), [(2, 3, 4, 5)]
        yield cls((2,), ceil=True), [(2, 2, 5)]
        yield cls((2, 2), (1, 2), ((1, 0), (0, 1)), dilation=(2, 1), useMask=True), [(1, 2, 4, 5)]
        yield cls((3, 2), 2, ((-1, 2), (1, 0)), ceil=True, useMask=True, columns=True), [(2, 2, 5, 4)]
        yield cls((3, 2), (2, 3), "same"), [(1, 2, 5, 7)]


class MaxPool1D(MaxPoolNd):
    """y[n, c, a] = max over t of x[n, c, a stride + t dilation - before]

    As MaxPoolNd over one axis: `size`, `stride` and `dilation` are integers, `pad` an integer, ((before, after),) or
    "same".

    Shapes    x (n, c, l) -> y (n, c, m), m = (l + before + after - dilation (size - 1) - 1) // stride + 1
    Source    Ranzato, Huang, Boureau, LeCun 2007, Unsupervised Learning of Invariant Feature Hierarchies, section 2
    Raises    ShapeError if x has another rank, or is too short for one window; if a side of pad is not below the size

    >>> MaxPool1D(2)(np.array([[[1.0, 5.0, 2.0, 4.0]]]))
    array([[[5., 4.]]])
    """

    rank = 1

    @classmethod
    def examples(cls):
        yield cls(), [(2, 3, 5)]
        yield cls(3, stride=2, pad=((1, 2),)), [(1, 2, 6)]


class MaxPool2D(MaxPoolNd):
    """y[n, c, a] = max over t of x[n, c, a stride + t dilation - before]

    As MaxPoolNd over pairs (height, width): options are an integer or a pair; `pad`, each side below the size, also
    ((top, bottom), (left, right)) or "same".

    Shapes    x (n, c, h, w) -> y (n, c, *count),
              count = (length + before + after - dilation (size - 1) - 1) // stride + 1
    Source    Ranzato, Huang, Boureau, LeCun 2007, Unsupervised Learning of Invariant Feature Hierarchies, section 2
    Raises    ShapeError if x has another rank, or is too small for one window; if a side of pad is not below the size

    >>> y, mask = MaxPool2D(2, useMask=True)(np.arange(16.0).reshape(1, 1, 4, 4))
    >>> mask.tolist()
    [[[[5, 7], [13, 15]]]]
    """

    rank = 2

    @classmethod
    def examples(cls):
        yield cls(), [(2, 3, 4, 5)]
        yield cls((3, 2), stride=(1, 2), pad=(1, 0)), [(2, 2, 4, 6)]
        yield cls(3, stride=2, pad=((2, 1), (0, 1))), [(1, 2, 5, 5)]


class MaxPool3D(MaxPoolNd):
    """y[n, c, a] = max over t of x[n, c, a stride + t dilation - before]

    As MaxPoolNd over triples (depth, height, width): options are an integer or a triple.

    Shapes    x (n, c, d, h, w) -> y (n, c, *count)
    Source    Ranzato, Huang, Boureau, LeCun 2007, Unsupervised Learning of Invariant Feature Hierarchies, section 2
    Raises    ShapeError if x has another rank, or is too small for one window; if a side of pad is not below the size

    >>> MaxPool3D(2).dataShapeFrom((1, 3, 4, 6, 8))
    (1, 3, 2, 3, 4)
    """

    rank = 3

    @classmethod
    def examples(cls):
        yield cls((2, 1, 2), pad=(1, 0, 0)), [(1, 2, 3, 2, 3)]


class AvgPoolNd(_Pool):
    """y[n, c, a] = mean over t of x[n, c, a stride + t dilation - before]

    Padding counts as zeros with includePad, and not at all without; with a `divisor` sums are divided by it instead.
    The number of axes is that of `size`; the stride is the size unless given. `pad` is an integer, one per axis,
    (before, after) per axis, or "same": as many windows as ceil(length / stride). With `ceil` the last window may go
    beyond the padding; elements there never count.

    Shapes    x (n, c, *spatial) -> y (n, c, *count),
              count = (length + before + after - dilation (size - 1) - 1) // stride + 1
    Source    LeCun, Bottou, Bengio, Haffner 1998, Gradient-Based Learning Applied to Document Recognition, section II
    Raises    ShapeError if x has another rank, or is too small for one window; if a side of pad is not below the size

    >>> AvgPoolNd((2,), ceil=True)(np.array([[[1.0, 5.0, 2.0]]]))
    array([[[3., 2.]]])
    """

    reads = ()
    needsFloats = True

    def __init__(
        self,
        size=2,
        stride=None,
        pad=0,
        includePad: Flag = True,
        name=None,
        *,
        dilation=1,
        ceil: Flag = False,
        divisor: Count | None = None,
    ):
        super().__init__(name)
        self.setWindows(size, stride, pad, dilation, ceil)
        self.includePad, self.divisor = includePad, divisor

    def isKernel(self, geometry):
        """Return True if the kernel `meanPool` divides by the same numbers as these options."""
        return self.divisor is None and len(geometry) == 3 and not (self.ceil and self.includePad)

    def shares(self, x, shape):
        """Return the divisor of each window, on the device of x: how many of its elements count, at least one."""
        if self.divisor is not None:
            return self.divisor
        pad = padding(shape[2:], self.size, self.stride, self.pad, self.dilation) if self.includePad else None
        win, divisors = self.window(shape), np.ones((), np.float32)
        for i, (length, k, s, (before, _), d) in enumerate(zip(*win)):
            taps = np.arange(win.count[i])[:, None] * s - before + np.arange(k) * d
            least, end = (-pad[i][0], length + pad[i][1]) if pad else (0, length)
            divisors = divisors[..., None] * ((least <= taps) & (taps < end)).sum(axis=1)
        return arrayLike(x, np.maximum(divisors, 1).astype(np.float32))

    def window(self, shape):
        """The geometry of the kernels."""
        return window(shape[2:], *self.geometry(shape))

    def updateData(self, x):
        geometry = self.geometry(x.shape)
        if self.isKernel(geometry):
            return meanPool(x, *geometry, self.includePad)
        return divided(summed(x, self.window(x.shape)), self.shares(x, x.shape))

    def updateGrad(self, grad, x, y):
        geometry = self.geometry(x.shape)
        if self.isKernel(geometry):
            return meanPoolGrad(grad, x.shape, *geometry, self.includePad)
        return spread(divided(grad, self.shares(grad, x.shape)), self.window(x.shape))

    @classmethod
    def examples(cls):
        yield cls(size=(2, 1, 2, 2)), [(2, 2, 3, 2, 3, 2)]
        yield cls(size=(3, 2), stride=(1, 2), pad=((2, 0), (1, 1)), includePad=False), [(2, 3, 4, 5)]
        yield cls((2,), ceil=True), [(2, 2, 5)]
        yield cls((2, 2), (1, 2), ((1, 0), (0, 1)), dilation=(2, 1)), [(1, 2, 4, 5)]
        yield cls((3, 2), 2, 1, False, ceil=True), [(1, 2, 4, 5)]
        yield cls((3, 2), (2, 3), "same", divisor=5), [(1, 2, 5, 7)]


class AvgPool1D(AvgPoolNd):
    """y[n, c, a] = mean over t of x[n, c, a stride + t dilation - before]

    As AvgPoolNd over one axis: `size`, `stride` and `dilation` are integers, `pad` an integer, ((before, after),) or
    "same".

    Shapes    x (n, c, l) -> y (n, c, m), m = (l + before + after - dilation (size - 1) - 1) // stride + 1
    Source    LeCun, Bottou, Bengio, Haffner 1998, Gradient-Based Learning Applied to Document Recognition, section II
    Raises    ShapeError if x has another rank, or is too short for one window; if a side of pad is not below the size

    >>> AvgPool1D(2)(np.array([[[1.0, 5.0, 2.0, 4.0]]]))
    array([[[3., 3.]]])
    """

    rank = 1

    @classmethod
    def examples(cls):
        yield cls(), [(2, 3, 5)]
        yield cls(3, stride=2, pad=((1, 2),)), [(1, 2, 6)]
        yield cls(3, stride=1, pad=1, includePad=False), [(2, 1, 4)]


class AvgPool2D(AvgPoolNd):
    """y[n, c, a] = mean over t of x[n, c, a stride + t dilation - before]

    As AvgPoolNd over pairs (height, width): options are an integer or a pair; `pad`, each side below the size, also
    ((top, bottom), (left, right)) or "same".

    Shapes    x (n, c, h, w) -> y (n, c, *count),
              count = (length + before + after - dilation (size - 1) - 1) // stride + 1
    Source    LeCun, Bottou, Bengio, Haffner 1998, Gradient-Based Learning Applied to Document Recognition, section II
    Raises    ShapeError if x has another rank, or is too small for one window; if a side of pad is not below the size

    >>> AvgPool2D(2, pad="same", includePad=False).dataShapeFrom((1, 3, 5, 5))
    (1, 3, 3, 3)
    """

    rank = 2

    @classmethod
    def examples(cls):
        yield cls(), [(2, 3, 4, 5)]
        yield cls((3, 2), stride=(1, 2), pad=(1, 0)), [(2, 2, 4, 6)]
        yield cls(3, stride=2, pad=((2, 1), (0, 1)), includePad=False), [(1, 2, 5, 5)]


class AvgPool3D(AvgPoolNd):
    """y[n, c, a] = mean over t of x[n, c, a stride + t dilation - before]

    As AvgPoolNd over triples (depth, height, width): options are an integer or a triple.

    Shapes    x (n, c, d, h, w) -> y (n, c, *count)
    Source    LeCun, Bottou, Bengio, Haffner 1998, Gradient-Based Learning Applied to Document Recognition, section II
    Raises    ShapeError if x has another rank, or is too small for one window; if a side of pad is not below the size

    >>> AvgPool3D(2).dataShapeFrom((1, 3, 4, 6, 8))
    (1, 3, 2, 3, 4)
    """

    rank = 3

    @classmethod
    def examples(cls):
        yield cls((2, 1, 2), pad=(1, 0, 0)), [(1, 2, 3, 2, 3)]


AtLeast1 = Annotated[float, Argument("a finite number of at least 1", lambda value: isNumber(value) and value >= 1)]


class LpPoolNd(_Pool):
    """y[n, c, a] = (sum over t of |x[n, c, a stride + t dilation - before]|^p)^(1/p)

    The options of the windows are those of MaxPoolNd. Where y is 0, so is the gradient.

    Shapes    x (n, c, *spatial) -> y (n, c, *count),
              count = (length + before + after - dilation (size - 1) - 1) // stride + 1
    Source    Sermanet, Chintala, LeCun 2012, arXiv:1204.3968, section 2.2; ONNX operator LpPool
    Raises    ShapeError if x has another rank, or is too small for one window; if a side of pad is not below the size

    >>> LpPoolNd(2, (2,))(np.array([[[3.0, 4.0, 5.0, -12.0]]]))
    array([[[ 5., 13.]]])
    """

    reads = ("x", "y")
    needsFloats = True

    def __init__(self, p: AtLeast1 = 2, size=2, stride=None, pad=0, name=None, *, dilation=1, ceil: Flag = False):
        super().__init__(name)
        self.setWindows(size, stride, pad, dilation, ceil)
        self.p = p

    def updateData(self, x):
        win = window(x.shape[2:], *self.geometry(x.shape))
        return (summed(np.abs(x) ** self.p, win) ** (1 / self.p)).astype(x.dtype, copy=False)

    def updateGrad(self, grad, x, y):  # a derived gradient would be nan where y is 0
        win = window(x.shape[2:], *self.geometry(x.shape))
        share = np.where(y == 0, 0, grad * np.where(y == 0, 1, y) ** (1 - self.p))
        return (spread(share, win) * np.abs(x) ** (self.p - 1) * np.sign(x)).astype(x.dtype, copy=False)

    @classmethod
    def examples(cls):
        yield cls(2, (2,), ceil=True), [(2, 2, 5)]
        yield cls(3, (2, 2), (1, 2), ((1, 0), (0, 1)), dilation=(2, 1)), [(1, 2, 4, 5)]
        yield cls(1.5, (2,)), [(2, 1, 4)]


@widened
def summed(x, win):
    """The sum of each window."""
    paddedX = padded(x, win.pad)
    return sum(paddedX[win.tapIndex(tap)] for tap in win.taps)


@widened
def spread(grad, win):
    """The adjoint of `summed`."""
    paddedGrad = np.zeros_like(grad, shape=(*grad.shape[:2], *win.full))
    for tap in win.taps:
        at = win.tapIndex(tap)
        paddedGrad[at] = paddedGrad[at] + grad
    return unpadded(paddedGrad, win.pad)


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
    """y = 0, except y[indices] = x: each element returns to where its maximum was, as an index of the flattened y.

    The indices count in an output with lengths `natural`; y has `lengths`.

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
