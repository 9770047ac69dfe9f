"""Pools: windows with dilation, and a last one that may go beyond the end of the input."""

from math import prod

import numpy as np

from puregraph.core.arguments import Counts, Flag, Pairs, Positive
from puregraph.core.base.widen import divided, widened
from puregraph.core.errors import need
from puregraph.core.shape import product
from puregraph.graph.module import Module
from puregraph.ops.convolution.windowgeometry import inner, padded, window
from puregraph.ops.pooling.reference import maxPool, maxPoolGrad


class _Pool(Module):
    """The base: windows of `size`, each `stride` further; with `isOpen` the last one may go beyond the padding."""

    def setWindows(self, size, stride, pad, dilation, isOpen):
        self.size, self.stride, self.dilation, self.isOpen = tuple(size), tuple(stride), tuple(dilation), isOpen
        self.pad = tuple((int(before), int(after)) for before, after in pad)

    def dataShapeFrom(self, x):
        need(len(x) == len(self.size) + 2, f"x (n, c, *spatial) with {len(self.size)} spatial axes", x)
        return (*x[:2], *self.counts(x[2:]))

    def counts(self, lengths):
        """The number of windows along each axis."""
        windowCounts = []
        for n, k, s, (before, after), d in zip(lengths, self.size, self.stride, self.pad, self.dilation):
            over = d * (k - 1) + 1 - after
            need(self.isOpen or n + before >= over, "a window that fits once", n)
            if self.isOpen:  # none begins in the padding at the end
                count = -((max(over, s) - s - n - before) // s)
            else:
                count = (n + before - over) // s + 1
            windowCounts.append(count)
        return windowCounts

    def sides(self, lengths):
        """(before, after): the padding along each axis with which all windows fit."""
        paddings = []
        for n, k, s, (before, after), d, count in zip(
            lengths, self.size, self.stride, self.pad, self.dilation, self.counts(lengths)
        ):
            paddings.append((before, max(after, (count - 1) * s + d * (k - 1) + 1 - n - before)))
        return tuple(paddings)

    def window(self, x):
        """The geometry for an input."""
        spatial = x.shape[2:]
        return window(spatial, self.size, self.stride, self.sides(spatial), self.dilation)

    def flopsFrom(self, x):
        return prod(self.size) * product((*x[:2], *self.counts(x[2:])))


class PoolMax(_Pool):
    """y[n, c, a] = max over t of x[n, c, a stride + t dilation - before], and where in x as one row it was found

    Padding is never chosen. With `columns` the positions inside a channel count down its columns.

    Shapes    x (n, c, *spatial) -> y, indices (n, c, *count)
    Source    ONNX operator MaxPool
    Raises    ShapeError if x has another rank, or is too small for one window
    """

    reads = ("x",)
    keepsDtype = True

    def __init__(
        self,
        size: Counts,
        stride: Counts,
        pad: Pairs,
        dilation: Counts,
        isOpen: Flag = False,
        columns: Flag = False,
        name=None,
    ):
        super().__init__(name)
        self.setWindows(size, stride, pad, dilation, isOpen)
        self.columns = columns

    @property
    def outputNames(self):
        return ("y", "indices")

    def dataShapeFrom(self, x):
        return [super().dataShapeFrom(x)] * 2

    def dataTypeFrom(self, x):
        return [x, np.dtype(np.int64)]

    def options(self, x):
        """The options of the pooling kernel."""
        return self.size, self.stride, self.sides(x.shape[2:]), self.dilation

    def updateData(self, x):
        data = x if x.dtype.kind in "fV" else x.astype(np.float32 if x.dtype.itemsize < 3 else np.float64)
        y, positions = maxPool(data, *self.options(x))
        if self.columns:
            points = np.unravel_index(np.maximum(positions, 0), x.shape[2:])
            positions = np.ravel_multi_index(points[::-1], x.shape[:1:-1])
        starts = np.arange(x.shape[0] * x.shape[1]) * prod(x.shape[2:])
        return y.astype(x.dtype, copy=False), positions + starts.reshape(*x.shape[:2], *(1,) * (x.ndim - 2))

    def updateGrad(self, grad, x, y, indices):
        g = grad[0]
        if g is None:
            return np.zeros_like(x)
        return maxPoolGrad(g, maxPool(x, *self.options(x))[1], x.shape, *self.options(x))

    @classmethod
    def examples(cls):
        yield cls((2,), (2,), ((0, 0),), (1,), True), [(2, 2, 5)]
        yield cls((2, 2), (1, 2), ((1, 0), (0, 1)), (2, 1)), [(1, 2, 4, 5)]


class PoolMean(_Pool):
    """y[n, c, a] = mean over t of x[n, c, a stride + t dilation - before]

    With includePad, padding counts as zeros, otherwise not at all; positions beyond it never count.

    Shapes    x (n, c, *spatial) -> y (n, c, *count)
    Source    ONNX operator AveragePool
    Raises    ShapeError if x has another rank, or is too small for one window
    """

    reads = ()
    needsFloats = True

    def __init__(
        self,
        size: Counts,
        stride: Counts,
        pad: Pairs,
        dilation: Counts,
        isOpen: Flag = False,
        includePad: Flag = False,
        name=None,
    ):
        super().__init__(name)
        self.setWindows(size, stride, pad, dilation, isOpen)
        self.includePad = includePad

    def shares(self, like, x):
        """The number of elements in each window, as float32 on the device of another array."""
        win = self.window(x)
        ones = np.ones_like(like, shape=(1, 1, *x.shape[2:]), dtype=np.float32)
        ones = padded(ones, self.pad, 1) if self.includePad else padded(ones, self.pad)
        paddedOnes = padded(ones, tuple((0, b - a) for (_, a), (_, b) in zip(self.pad, win.pad)))
        return np.maximum(sum(paddedOnes[win.tapIndex(tap)] for tap in win.taps), 1)

    def updateData(self, x):
        return divided(summed(x, self.window(x)), self.shares(x, x))

    def updateGrad(self, grad, x, y):
        return spread(divided(grad, self.shares(grad, x)), self.window(x))

    @classmethod
    def examples(cls):
        yield cls((2,), (2,), ((0, 0),), (1,), True), [(2, 2, 5)]
        yield cls((2, 2), (1, 2), ((1, 0), (0, 1)), (2, 1), includePad=True), [(1, 2, 4, 5)]


class PoolNorm(_Pool):
    """y[n, c, a] = (sum over t of |x[n, c, a stride + t dilation - before]|^p)^(1/p)

    Shapes    x (n, c, *spatial) -> y (n, c, *count)
    Source    ONNX operator LpPool
    Raises    ShapeError if x has another rank, or is too small for one window
    """

    reads = ("x", "y")
    needsFloats = True

    def __init__(
        self, p: Positive, size: Counts, stride: Counts, pad: Pairs, dilation: Counts, isOpen: Flag = False, name=None
    ):
        super().__init__(name)
        self.setWindows(size, stride, pad, dilation, isOpen)
        self.p = p

    def updateData(self, x):
        return (summed(np.abs(x) ** self.p, self.window(x)) ** (1 / self.p)).astype(x.dtype, copy=False)

    def updateGrad(self, grad, x, y):
        share = np.where(y == 0, 0, grad * np.where(y == 0, 1, y) ** (1 - self.p))
        return (spread(share, self.window(x)) * np.abs(x) ** (self.p - 1) * np.sign(x)).astype(x.dtype, copy=False)

    @classmethod
    def examples(cls):
        yield cls(2, (2,), (2,), ((0, 0),), (1,), True), [(2, 2, 5)]
        yield cls(3, (2, 2), (1, 2), ((1, 0), (0, 1)), (2, 1)), [(1, 2, 4, 5)]


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
    return paddedGrad[inner(win.pad, win.full)]
