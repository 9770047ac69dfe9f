"""Convolution (cross-correlation of any rank), and its two gradients, as matrix products after a partial im2col.

One layout serves all three. The first spatial axis, the *rows*, is never unrolled: with the taps of the other
axes beside the channels,

    u[g, h, c, *taps, n, *positions] = x[n, g c, h, *(positions stride + taps dilation)]

the rows that one output row reads are contiguous, so that they are an operand of a matrix product
without a copy. A 3x3 window copies its input three times instead of nine.

Where the rows are dilated, where there are none (rank 1), or where they are too short to fill a product, a row
axis of length one is put in front, and the same code unrolls every axis: im2col. Windows of size one
need none.

Source    Cho and Brand 2017, Memory-efficient Convolution, arXiv:1706.06873
"""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import as_strided

from puregraph.core.base.widen import widened
from puregraph.ops.convolution import cudnn
from puregraph.ops.convolution.cuda import depthwise, direct
from puregraph.ops.convolution.windowgeometry import Window, padded, perAxis, unpadded, window
from puregraph.ops.kernel import CHANNELSLAST, MAKES, READS, Halves, kernel

MIN_PRODUCT_COLUMNS = 64  # columns below which a row does not get its own matrix product
FULL_PRODUCT_COLUMNS = 256  # columns that fill a matrix product
L2_ELEMENTS = 1 << 19  # elements that stay in the L2 cache
MIN_TRANSPOSED_POSITIONS = 1024  # fewest positions for which a slim product is computed transposed
ADDING = 4  # adding overlaps takes this many times as long as copying them


class ConvLayout(NamedTuple):
    """The geometry of a convolution: n samples, channels in groups, a window, whose first axis is the rows."""

    n: int
    channels: int
    groups: int
    window: Window

    @property
    def depth(self) -> int:
        """Terms of the sum for one output element: the rows of the im2col matrix for one output row."""
        return self.channels // self.groups * prod(self.window.size)

    @property
    def columns(self) -> int:
        """Elements of one output row, over all samples: the columns of that matrix."""
        return self.n * prod(self.window.count[1:])

    @property
    def unrolled(self) -> tuple[int, ...]:
        """The shape of u: (groups, rows, channels, *taps, n, *positions)."""
        win = self.window
        return (self.groups, win.full[0], self.channels // self.groups, *win.size[1:], self.n, *win.count[1:])


def layout(shape, size, stride, pad, dilation, groups):
    """The ConvLayout of a call; a row axis of length one goes in front where rows must be unrolled."""
    lay = ConvLayout(shape[0], shape[1], groups, window(shape[2:], size, stride, pad, dilation))
    if len(shape) > 3 and lay.window.dilation[0] == 1 and lay.columns >= MIN_PRODUCT_COLUMNS:
        return lay
    front: Any = (1,), (1,), (1,), ((0, 0),), (1,)
    return lay._replace(window=Window(*(unit + values for unit, values in zip(front, lay.window))))


@kernel
@widened
def convolve(x, W, stride, pad, dilation, groups):
    """Cross-correlation: y[n, o, a] = sum over c, t of W[o, c, t] x[n, c, a stride + t dilation - before].

    x counts as zero outside. One entry per spatial axis, or one integer for all: stride, dilation, and pad as
    (before, after).

    Shapes    x (n, c, *spatial), W (o, c / groups, *size) -> y (n, o, *count)
    Source    Dumoulin and Visin 2016, arXiv:1603.07285, chapter 2
    """
    lay = layout(x.shape, W.shape[2:], stride, pad, dilation, groups)
    y = pointwise(x, W, groups) if isPointwise(lay) else correlate(x, W, lay)
    return y.reshape(lay.n, len(W), *lay.window.count[2 - x.ndim :])


@convolve.shape
def convolve(x, W, stride, pad, dilation, groups):
    """y (n, o, *count)."""
    win = window(x.shape[2:], W.shape[2:], stride, pad, dilation)
    return (x.shape[0], W.shape[0], *win.count), np.result_type(x.dtype, W.dtype)


@convolve.cuda
def convolve(y, x, W, stride, pad, dilation, groups):
    """A thread block sums a tile of positions and channels; depthwise, a thread sums a few positions."""
    win = window(x.shape[2:], W.shape[2:], stride, pad, dilation)
    return depthwise.forward(y, x, W, win) if isDepthwise(W, groups) else direct.forward(y, x, W, win, groups)


@convolve.epilogue
def convolve(y, x, W, stride, pad, dilation, groups, tail):
    """The direct convolution; a depthwise one has faster launches, which take no epilogue."""
    win = window(x.shape[2:], W.shape[2:], stride, pad, dilation)
    return NotImplemented if isDepthwise(W, groups) else direct.forward(y, x, W, win, groups, tail)


@convolve.flops
def convolve(y, x, W, *window):
    """A multiplication and an addition for each element of the result, channel and tap."""
    return 2 * y.size * prod(W.shape[1:])


@convolve.multilinear
def convolve(g, y, x, W, stride, pad, dilation, groups):
    """Linear in x and in W."""
    lay = (stride, pad, dilation, groups)
    return convolveData(g, W, x.shape, *lay), convolveWeight(g, x, W.shape[2:], *lay), None, None, None, None


convolve.library(cudnn.convolve).declare(layout=CHANNELSLAST, halves=Halves((0, 1), 1), weight=READS)


@kernel
@widened
def convolveData(grad, W, shape, stride, pad, dilation, groups):
    """The adjoint of `convolve` in x: dx[n, c, h] = sum over o, t, a of W[o, c, t] grad[n, o, a].

    The sum runs over all t and a with h = a stride + t dilation - before: the transposed convolution of grad.

    Shapes    grad (n, o, *count), W (o, c / groups, *size), shape (n, c, *spatial) -> dx of that shape
    Source    Dumoulin and Visin 2016, arXiv:1603.07285, chapter 4
    """
    lay = layout(shape, W.shape[2:], stride, pad, dilation, groups)
    mirror = mirrored(lay, grad.shape[1])
    if isPointwise(lay):
        dx = pointwise(grad, flipped(W, groups), groups)
    elif prod(lay.window.stride) > 1 or prod(mirror.unrolled) > ADDING * prod(lay.unrolled):
        dx = correlateTransposed(grad, W, lay)
    else:
        dx = correlate(grad, flipped(W, groups), mirror)
    return dx.reshape(shape)


@convolveData.shape
def convolveData(grad, W, shape, stride, pad, dilation, groups):
    """dx has the shape passed as an argument."""
    return tuple(shape), np.result_type(grad.dtype, W.dtype)


@convolveData.cuda
def convolveData(dx, grad, W, shape, stride, pad, dilation, groups):
    """As `convolve`, but each position sums over the windows that contain it."""
    win = window(shape[2:], W.shape[2:], stride, pad, dilation)
    return depthwise.data(dx, grad, W, win) if isDepthwise(W, groups) else direct.data(dx, grad, W, win, groups)


@convolveData.flops
def convolveData(dx, grad, W, *window):
    """As many operations as the convolution."""
    return 2 * grad.size * prod(W.shape[1:])


@convolveData.multilinear
def convolveData(g, dx, grad, W, shape, stride, pad, dilation, groups):
    """Linear in the gradient and in W."""
    lay = (stride, pad, dilation, groups)
    return convolve(g, W, *lay), convolveWeight(grad, g, W.shape[2:], *lay), *[None] * 5


convolveData.library(cudnn.convolveData).declare(layout=CHANNELSLAST, halves=Halves((0, 1), 1), weight=READS)


@kernel
@widened
def convolveWeight(grad, x, size, stride, pad, dilation, groups):
    """The adjoint of `convolve` in W: dW[o, c, t] = sum over n, a of grad[n, o, a] x[n, c, h].

    There, h = a stride + t dilation - before, and x counts as zero outside.

    Shapes    grad (n, o, *count), x (n, c, *spatial) -> dW (o, c / groups, *size)
    """
    size = perAxis(size, x.ndim - 2)
    lay = layout(x.shape, size, stride, pad, dilation, groups)
    o, isLong = grad.shape[1] // groups, lay.n * prod(lay.window.count) >= MIN_TRANSPOSED_POSITIONS
    dW = np.zeros((groups, lay.depth, o) if isLong else (groups, o, lay.depth), dtype=x.dtype)
    term = np.empty_like(dW)
    for g, u in operands(lay, grad, x):
        left, right = (u, g) if isLong else (g, u)
        dW += np.matmul(left, right.swapaxes(-1, -2), out=term)
    dW = fromMatrix(dW.swapaxes(-1, -2) if isLong else dW, lay)
    return dW.reshape(grad.shape[1], lay.channels // groups, *size)


@convolveWeight.shape
def convolveWeight(grad, x, size, stride, pad, dilation, groups):
    """dW (o, c / groups, *size)."""
    size = perAxis(size, x.ndim - 2)
    return (grad.shape[1], x.shape[1] // groups, *size), np.result_type(grad.dtype, x.dtype)


@convolveWeight.cuda
def convolveWeight(dW, grad, x, size, stride, pad, dilation, groups):
    """A thread block sums a tile of filters and taps, over part of the positions; parts are added in order."""
    win = window(x.shape[2:], size, stride, pad, dilation)
    isThin = isDepthwise(dW, groups)
    return depthwise.weight(dW, grad, x, win) if isThin else direct.weight(dW, grad, x, win, groups)


@convolveWeight.flops
def convolveWeight(dW, grad, *window):
    """As many operations as the convolution."""
    return 2 * grad.size * prod(dW.shape[1:])


@convolveWeight.multilinear
def convolveWeight(g, dW, grad, x, size, stride, pad, dilation, groups):
    """Linear in the gradient and in x."""
    lay = (stride, pad, dilation, groups)
    return convolve(x, g, *lay), convolveData(grad, g, x.shape, *lay), *[None] * 5


@convolveWeight.samples
def convolveWeight(grad, x, size, stride, pad, dilation, groups):
    """The weight gradient of each sample: samples become groups, which are independent."""
    if grad.shape[1] != 1:
        return NotImplemented
    g, u = (a.reshape(1, a.shape[0] * a.shape[2], *a.shape[3:]) for a in (grad, x))
    dW = convolveWeight(g, u, size, stride, pad, dilation, len(x) * groups)
    return dW.reshape(len(x), grad.shape[2], *dW.shape[1:])


convolveWeight.library(cudnn.convolveWeight).declare(halves=Halves((0, 1), 1), weight=MAKES, sampled=(0, 1))


def isDepthwise(W, groups):
    """True if each filter has one channel of several."""
    return groups > 1 and W.shape[1] == 1


def operands(lay, grad, x):
    """Pairs of a gradient (groups, o, positions) and the im2col matrix of its input (groups, depth, positions)."""
    if isPointwise(lay):
        for g, u in zip(grad, x):
            yield g.reshape(lay.groups, -1, prod(g.shape[1:])), u.reshape(lay.groups, -1, prod(u.shape[1:]))
        return
    for few, part in batches(lay):
        g, u = asRows(grad[few], part), windows(im2col(x[few], part), part)
        for a in range(lay.window.count[0]):
            yield g[:, a], u[:, a]


def isPointwise(lay):
    """True for windows of size and stride one without padding: the channels can be multiplied without a copy."""
    win = lay.window
    plain = prod(win.size) == prod(win.stride) == 1 and not any(map(any, win.pad))
    return plain and prod(win.spatial) >= MIN_PRODUCT_COLUMNS


def pointwise(x, W, groups):
    """y[n, o] = sum over c of W[o, c] x[n, c], at each position of each group."""
    n, c = x.shape[:2]
    x = np.ascontiguousarray(x).reshape(n, groups, c // groups, prod(x.shape[2:]))
    return np.matmul(W.reshape(groups, len(W) // groups, c // groups), x)


def correlate(x, W, lay):
    """A matrix product for each group and output row: y (n, groups, o, *count)."""
    M = asMatrix(W, lay)[:, None]
    y = np.empty((lay.n, lay.groups, M.shape[2], *lay.window.count), dtype=x.dtype)
    for few, part in batches(lay):
        rows = np.matmul(M, windows(im2col(x[few], part), part))
        rows = rows.reshape(*rows.shape[:3], part.n, *lay.window.count[1:])
        y[few] = np.moveaxis(rows, (3, 0, 2), (0, 1, 2))
    return y


def correlateTransposed(grad, W, lay):
    """The transpose of `correlate`: a gradient row adds to the rows that its output row read, see `col2im`."""
    V = asMatrix(W, lay).swapaxes(-1, -2)
    dx = np.empty((lay.n, lay.groups, lay.channels // lay.groups, *lay.window.spatial), dtype=grad.dtype)
    for few, part in batches(lay):
        g, u = asRows(grad[few], part), emptyColumns(part, grad.dtype)
        u[...] = 0
        term = np.empty((lay.groups, lay.depth, part.columns), dtype=grad.dtype)
        for a in range(lay.window.count[0]):
            rows = u[:, a * lay.window.stride[0] :][:, : lay.window.size[0]]
            rows += np.matmul(V, g[:, a], out=term).reshape(rows.shape)
        dx[few] = col2im(u, part)
    return dx


def batches(lay):
    """The samples a few at a time, enough to fill a product and few enough for the cache: (slice, ConvLayout)."""
    single = lay._replace(n=1)
    few = max(1, -(-FULL_PRODUCT_COLUMNS // max(1, single.columns)), L2_ELEMENTS // max(1, prod(single.unrolled)))
    for i in range(0, lay.n, few):
        n = min(few, lay.n - i)
        yield slice(i, i + n), lay._replace(n=n)


def im2col(x, lay):
    """u[g, h, c, *taps, n, *positions] = x[n, g c, h, *(positions stride + taps dilation)], x padded."""
    win = lay.window
    x = padded(x.reshape(lay.n, lay.channels, *win.spatial), win.pad)
    ns, cs, hs, *rest = x.strides
    taps = [step * d for step, d in zip(rest, win.dilation[1:])]
    positions = [step * s for step, s in zip(rest, win.stride[1:])]
    u = emptyColumns(lay, x.dtype)
    strides = (cs * (lay.channels // lay.groups), hs, cs, *taps, ns, *positions)
    np.copyto(u, as_strided(x, u.shape, strides, writeable=False))
    return u


def col2im(u, lay):
    """The transpose of `im2col`: x (n, groups, c, *spatial), at each position the sum of its taps."""
    rows = lay.window._replace(size=(1, *lay.window.size[1:]), stride=(1, *lay.window.stride[1:]))
    x = np.zeros((lay.groups, rows.full[0], lay.channels // lay.groups, lay.n, *rows.full[1:]), dtype=u.dtype)
    for tap in rows.taps:
        x[(...,) + rows.tapIndex(tap)[2:]] += u[(slice(None),) * 3 + tap[1:]]
    return unpadded(np.moveaxis(x, (3, 0, 2, 1), (0, 1, 2, 3)), rows.pad)


def emptyColumns(lay, dtype):
    """Uninitialized memory for u."""
    lead = lay.unrolled[: -len(lay.window.size)]
    u = np.empty((*lead, pitch(lay, dtype.itemsize)), dtype=dtype)
    return u[..., : lay.columns].reshape(lay.unrolled)


def pitch(lay, itemsize):
    """Elements from one row of columns to the next: padded where rows would map to the same cache sets."""
    return lay.columns + (64 // itemsize if lay.columns * itemsize % 512 == 0 else 0)


def windows(u, lay):
    """The view (groups, output rows, depth, columns) of u; the input rows of one output row overlap the next's."""
    row = pitch(lay, u.itemsize) * u.itemsize
    height = lay.depth // lay.window.size[0] * row
    shape = (lay.groups, lay.window.count[0], lay.depth, lay.columns)
    strides = (lay.unrolled[1] * height, lay.window.stride[0] * height, row, u.itemsize)
    return as_strided(u, shape, strides, writeable=False)


def asRows(grad, lay):
    """grad (n, o, *count) as (groups, output rows, o, columns)."""
    o, count = grad.shape[1] // lay.groups, lay.window.count
    rows = np.moveaxis(grad.reshape(lay.n, lay.groups, o, *count), (1, 3, 2, 0), (0, 1, 2, 3))
    return np.ascontiguousarray(rows).reshape(lay.groups, count[0], o, lay.columns)


def asMatrix(W, lay):
    """W (o, c, *size) as (groups, o, depth), in the order of u: rows, channels, taps."""
    o, c = len(W) // lay.groups, W.shape[1]
    W = W.reshape(lay.groups, o, c, *lay.window.size).swapaxes(2, 3)
    return np.ascontiguousarray(W).reshape(lay.groups, o, lay.depth)


def fromMatrix(M, lay):
    """The inverse of `asMatrix`: (groups, o, c, *size)."""
    M = M.reshape(*M.shape[:2], lay.window.size[0], lay.channels // lay.groups, *lay.window.size[1:])
    return np.ascontiguousarray(M.swapaxes(2, 3))


def flipped(W, groups):
    """W (o, c, *size), input and output channels exchanged within each group, taps reversed: (groups c, o, *size)."""
    o, c, *size = W.shape
    W = W.reshape(groups, o // groups, c, *size).swapaxes(1, 2).reshape(groups * c, o // groups, *size)
    return np.flip(W, tuple(range(2, W.ndim)))


def mirrored(lay, channels):
    """The ConvLayout in which the gradient and the flipped weight correlate to dx, where strides are one."""
    win = lay.window
    pad = tuple(
        (d * (k - 1) - before, length + before - count)
        for d, k, (before, _), length, count in zip(win.dilation, win.size, win.pad, win.spatial, win.count)
    )
    return lay._replace(channels=channels, window=win._replace(spatial=win.count, stride=(1,) * len(pad), pad=pad))
