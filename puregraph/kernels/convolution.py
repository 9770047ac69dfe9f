"""Convolution: cross-correlation of any rank, and its two adjoints, as matrix products.

One layout serves all three. The first spatial axis, the *rows*, is never unrolled: with the taps of the remaining axes
laid out beside the channels,

    u[g, h, c, *taps, n, *places] = x[n, g c, h, *(places stride + taps dilation)]

the rows that one output row reads lie next to each other, so that they are an operand of a matrix product without being
copied. A 3x3 window copies its input three times instead of nine.

Where the rows are dilated, where there are none (rank 1), or where they are too short to fill a product, a row axis of
length one is put in front, and the same text unrolls every axis: the usual columns. Windows of size one need none.

Source    Cho and Brand 2017, Memory-efficient Convolution, arXiv:1706.06873
"""

from __future__ import annotations

from itertools import product
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import as_strided

from puregraph.kernel import kernel
from puregraph.kernels.widen import widened
from puregraph.kernels.windows import counts, inner, padded, pairs, perAxis

THIN = 64  # columns below which one row is not worth a matrix product of its own


class Layout(NamedTuple):
    """How windows lie on a map: one entry per spatial axis, the rows first."""

    shape: tuple[int, ...]  # of the data: (n, c, *spatial)
    size: tuple[int, ...]
    stride: tuple[int, ...]
    pad: tuple[tuple[int, int], ...]
    dilation: tuple[int, ...]
    groups: int

    @property
    def rank(self) -> int:
        """Spatial axes, the row axis in front included."""
        return len(self.size)

    @property
    def count(self) -> tuple[int, ...]:
        """Windows along each axis."""
        return counts(self.shape[2:], self.size, self.stride, self.pad, self.dilation)

    @property
    def depth(self) -> int:
        """Terms of the sum behind one output value."""
        return self.shape[1] // self.groups * prod(self.size)

    @property
    def columns(self) -> int:
        """Columns of the matrix product of one output row."""
        return self.shape[0] * prod(self.count[1:])

    @property
    def unrolled(self) -> tuple[int, ...]:
        """The shape of u: (groups, rows, channels, *taps, n, *places)."""
        n, c, h = self.shape[:3]
        return (self.groups, h + sum(self.pad[0]), c // self.groups, *self.size[1:], n, *self.count[1:])


def layout(shape: Any, size: Any, stride: Any, pad: Any, dilation: Any, groups: int) -> Layout:
    """The Layout of a call, with a row axis of length one in front where the rows cannot be used as they lie."""
    rank = len(size)
    stride, pad, dilation = perAxis(stride, rank), pairs(pad, rank), perAxis(dilation, rank)
    lay = Layout(tuple(shape), tuple(size), stride, pad, dilation, groups)
    if rank > 1 and dilation[0] == 1 and lay.shape[0] * prod(lay.count[1:]) >= THIN:
        return lay
    return Layout((*shape[:2], 1, *shape[2:]), (1, *size), (1, *stride), ((0, 0), *pad), (1, *dilation), groups)


@kernel
@widened
def convolve(x, W, stride, pad, dilation, groups):
    """Cross-correlation: y[n, o, a] = sum over c, t of W[o, c, t] x[n, c, a stride + t dilation - before].

    x counts as zero outside. One entry per spatial axis: stride, dilation, and pad as (before, after).

    Shapes    x (n, c, *spatial), W (o, c / groups, *size) -> y (n, o, *count)
    Source    Dumoulin and Visin 2016, arXiv:1603.07285, chapter 2
    """
    if isPoint(x.shape, W.shape[2:], stride, pad):
        return point(x, W, groups)
    lay = layout(x.shape, W.shape[2:], stride, pad, dilation, groups)
    y = correlate(x, W, lay)
    return y.reshape(y.shape[:2] + lay.count[lay.rank - (x.ndim - 2) :])


@kernel
@widened
def convolveData(grad, W, shape, stride, pad, dilation, groups):
    """The adjoint of `convolve` in x: dx[n, c, h] = sum over o, t, a of W[o, c, t] grad[n, o, a].

    The sum runs over all t and a with h = a stride + t dilation - before.

    Shapes    grad (n, o, *count), W (o, c / groups, *size), shape (n, c, *spatial) -> dx of that shape
    Source    Dumoulin and Visin 2016, arXiv:1603.07285, chapter 4
    """
    if isPoint(shape, W.shape[2:], stride, pad):
        return point(grad, turned(W, groups), groups)
    lay = layout(shape, W.shape[2:], stride, pad, dilation, groups)
    grad = grad.reshape(grad.shape[:2] + lay.count)
    mirror = mirrored(lay, grad.shape)
    if prod(lay.stride) == 1 and prod(mirror.unrolled) < 4 * prod(lay.unrolled):  # adding up is slower than copying
        return correlate(grad, turned(W, groups), mirror).reshape(shape)
    return spread(grad, W, lay).reshape(shape)


@kernel
@widened
def convolveWeight(grad, x, size, stride, pad, dilation, groups):
    """The adjoint of `convolve` in W: dW[o, c, t] = sum over n, a of grad[n, o, a] x[n, c, a stride + t dilation - before].

    Shapes    grad (n, o, *count), x (n, c, *spatial) -> dW (o, c / groups, *size)
    """
    lay = layout(x.shape, size, stride, pad, dilation, groups)
    g, u = asRows(grad, lay), windows(unroll(x, lay), lay)
    dW = np.zeros((groups, lay.depth, g.shape[2]), dtype=x.dtype)
    term = np.empty_like(dW)
    for a in range(lay.count[0]):
        dW += np.matmul(u[:, a], g[:, a].swapaxes(-1, -2), out=term)
    return fromMatrix(dW.swapaxes(-1, -2), lay).reshape(grad.shape[1], x.shape[1] // groups, *perAxis(size, x.ndim - 2))


def isPoint(shape, size, stride, pad):
    """Whether windows of size one read every place once: a matrix product over the channels, as they lie."""
    rank = len(shape) - 2
    plain = prod(size) == 1 and prod(perAxis(stride, rank)) == 1 and not any(map(sum, pairs(pad, rank)))
    return plain and prod(shape[2:]) >= THIN


def point(x, W, groups):
    """y[n, o] = sum over c of W[o, c] x[n, c], for each group and place."""
    n, c, *spatial = x.shape
    x = np.ascontiguousarray(x).reshape(n, groups, c // groups, prod(spatial))
    y = np.matmul(W.reshape(groups, W.shape[0] // groups, c // groups), x)
    return y.reshape(n, W.shape[0], *spatial)


def correlate(x, W, lay):
    """One matrix product per group and output row: y (n, o, *count)."""
    rows = np.matmul(asMatrix(W, lay)[:, None], windows(unroll(x, lay), lay))
    groups, oh, o = rows.shape[:3]
    rows = rows.reshape(groups, oh, o, lay.shape[0], *lay.count[1:])
    y = np.moveaxis(rows, (3, 0, 2), (0, 1, 2))
    return np.ascontiguousarray(y).reshape(lay.shape[0], groups * o, *lay.count)


def spread(grad, W, lay):
    """The transpose of `correlate`: each gradient row adds to the rows its output row read, then taps fold onto places."""
    g, V = asRows(grad, lay), asMatrix(W, lay).swapaxes(-1, -2)
    u = blank(lay, grad.dtype)
    u[...] = 0
    term = np.empty((lay.groups, lay.depth, g.shape[-1]), dtype=grad.dtype)
    for a in range(lay.count[0]):
        rows = u[:, a * lay.stride[0] :][:, : lay.size[0]]
        rows += np.matmul(V, g[:, a], out=term).reshape(rows.shape)
    return fold(u, lay)


def unroll(x, lay):
    """u[g, h, c, *taps, n, *places] = x[n, g c, h, *(places stride + taps dilation)], x padded."""
    x = padded(x.reshape(lay.shape), lay.pad)
    ns, cs, hs, *rest = x.strides
    taps = [step * d for step, d in zip(rest, lay.dilation[1:], strict=True)]
    places = [step * s for step, s in zip(rest, lay.stride[1:], strict=True)]
    strides = (cs * (lay.shape[1] // lay.groups), hs, cs, *taps, ns, *places)
    u = blank(lay, x.dtype)
    np.copyto(u, as_strided(x, u.shape, strides, writeable=False))
    return u


def blank(lay, dtype):
    """Room for u."""
    lead = lay.unrolled[: -lay.rank]
    return np.empty((*lead, pitch(lay, dtype.itemsize)), dtype=dtype)[..., : lay.columns].reshape(lay.unrolled)


def pitch(lay, itemsize):
    """Numbers from one row of columns to the next: where the rows would all fall into the same cache sets, a few more."""
    return lay.columns + (64 // itemsize if lay.columns * itemsize % 512 == 0 else 0)


def fold(u, lay):
    """The transpose of `unroll`: x (n, c, *spatial), each place the sum of what the taps have for it."""
    n, c, *spatial = lay.shape
    full = tuple(length + sum(both) for length, both in zip(spatial, lay.pad, strict=True))
    x = np.zeros((lay.groups, full[0], c // lay.groups, n, *full[1:]), dtype=u.dtype)
    for taps in product(*map(range, lay.size[1:])):
        places = tuple(
            slice(t * d, t * d + s * (count - 1) + 1, s)
            for t, d, s, count in zip(taps, lay.dilation[1:], lay.stride[1:], lay.count[1:], strict=True)
        )
        x[(..., *places)] += u[(slice(None),) * 3 + taps]
    x = np.moveaxis(x, (3, 0, 2, 1), (0, 1, 2, 3))[inner(lay.pad, full)]
    return np.ascontiguousarray(x).reshape(lay.shape)


def windows(u, lay):
    """The view (groups, output rows, depth, n places) of u, whose rows overlap."""
    row = pitch(lay, u.itemsize) * u.itemsize
    height = lay.depth // lay.size[0] * row
    shape = (lay.groups, lay.count[0], lay.depth, lay.columns)
    strides = (lay.unrolled[1] * height, lay.stride[0] * height, row, u.itemsize)
    return as_strided(u, shape, strides, writeable=False)


def asRows(grad, lay):
    """grad (n, o, *count) as (groups, output rows, o, n places)."""
    n, o = grad.shape[:2]
    rows = grad.reshape(n, lay.groups, o // lay.groups, *lay.count)
    rows = np.moveaxis(rows, (1, 3, 2, 0), (0, 1, 2, 3))
    return np.ascontiguousarray(rows).reshape(lay.groups, lay.count[0], o // lay.groups, lay.columns)


def asMatrix(W, lay):
    """W (o, c, *size) as (groups, o, depth), in the order of u: rows, channels, taps."""
    o, c = W.shape[:2]
    W = W.reshape(lay.groups, o // lay.groups, c, *lay.size).swapaxes(2, 3)
    return np.ascontiguousarray(W).reshape(lay.groups, o // lay.groups, lay.depth)


def fromMatrix(M, lay):
    """The inverse of `asMatrix`: (groups, o, c, *size), contiguous."""
    groups, o, depth = M.shape
    M = M.reshape(groups, o, lay.size[0], lay.shape[1] // groups, *lay.size[1:])
    return np.ascontiguousarray(M.swapaxes(2, 3))


def turned(W, groups):
    """W (o, c, *size) with inputs and outputs exchanged within each group, and turned by half a turn: (groups c, o, *size)."""
    o, c, *size = W.shape
    W = W.reshape(groups, o // groups, c, *size).swapaxes(1, 2).reshape(groups * c, o // groups, *size)
    return np.flip(W, tuple(range(2, W.ndim)))


def mirrored(lay, shape):
    """The Layout whose correlation with the turned weight undoes a Layout of stride one; `shape` is the gradient's."""
    reach = tuple(d * (k - 1) for d, k in zip(lay.dilation, lay.size, strict=True))
    pad = tuple(
        (r - before, length + before - count)
        for r, (before, _), length, count in zip(reach, lay.pad, lay.shape[2:], lay.count, strict=True)
    )
    return lay._replace(shape=shape, pad=pad)
