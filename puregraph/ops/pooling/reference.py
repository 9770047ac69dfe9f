"""Pooling: maximum and mean over windows of any rank, and their gradients."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from puregraph.core.base.widen import widen, widened
from puregraph.core.tracer import dataOf
from puregraph.ops.convolution.windowgeometry import padded, perAxis, unpadded, window
from puregraph.ops.gather.reference import addAt, valuesAt
from puregraph.ops.kernel import CHANNELSLAST, Halves, kernel
from puregraph.ops.pooling import cuda as pooling

L2_ELEMENTS = 1 << 17  # elements processed at a time, so that the copy of each tap stays in the L2 cache


@kernel
def maxPool(x, size, stride, pad, dilation=1):
    """y[n, c, a] = max over t of x[n, c, a stride + t dilation - before], and its flat position in *spatial.

    The first maximum wins, NaN is greater than any number, padding is never chosen: a window of padding alone
    gives -inf and -1. One entry per spatial axis, or one integer for all: size, stride, dilation, and pad
    as (before, after).

    Shapes    x (n, c, *spatial) -> y, indices (n, c, *count), indices being int32 and flat in *spatial
    """
    win = window(x.shape[2:], size, stride, pad, dilation)
    shape = x.shape[:2] + win.count
    channels = x.reshape(prod(x.shape[:2]), *win.spatial)
    y = np.empty((len(channels), *win.count), dtype=x.dtype)
    indices = np.empty(y.shape, dtype=np.int32)
    for few in chunks(len(channels), win):
        y[few], indices[few] = maxima(widen(channels[few]), win)
    return y.reshape(shape), indices.reshape(shape)


@maxPool.shape
def maxPool(x, size, stride, pad, dilation=1):
    """y and indices (n, c, *count)."""
    shape = x.shape[:2] + window(x.shape[2:], size, stride, pad, dilation).count
    return [(shape, x.dtype), (shape, np.dtype(np.int32))]


@maxPool.cuda
def maxPool(outs, x, size, stride, pad, dilation=1):
    """A thread computes one maximum, or the maxima of contiguous channels."""
    y, indices = outs
    return pooling.maxPool(y, indices, x, window(x.shape[2:], size, stride, pad, dilation))


@maxPool.flops
def maxPool(outs, x, size, *window, **options):
    """Operations: each window reads each of its elements once."""
    return outs[0].size * prod(perAxis(size, x.ndim - 2))


@maxPool.vjp
def maxPool(g, outs, x, size, stride, pad, dilation=1):
    """Add the gradient at the positions of the maxima."""
    return None if g[0] is None else maxPoolGrad(g[0], dataOf(outs[1]), x.shape, size, stride, pad, dilation)


@maxPool.jvp
def maxPool(function, values, tangents, options):
    """The tangent at the position of each maximum; 0 for a window that is all padding."""
    y, indices = function(*values, **options)
    t = tangents[0].reshape(*y.shape[:2], -1)
    positions = indices.reshape(*y.shape[:2], -1)
    picked = np.take_along_axis(t, np.maximum(positions, 0).astype(np.intp), axis=2)
    return (y, indices), (np.where(positions < 0, 0, picked).astype(y.dtype, copy=False).reshape(y.shape), None)


maxPool.declare(layout=CHANNELSLAST, halves=Halves((0,), 1))


def chunks(count, win):
    """Slices of a few channels."""
    step = max(1, L2_ELEMENTS // max(1, prod(win.full)))
    return [slice(i, i + step) for i in range(0, count, step)]


def maxima(x, win):
    """Maximum and its position for a few channels x (m, *spatial)."""
    x = padded(x, win.pad, -np.inf)
    values = [np.ascontiguousarray(x[win.tapIndex(tap)]) for tap in win.taps]
    y = values[0].copy()
    for value in values[1:]:
        np.maximum(y, value, out=y)
    tap = np.zeros(y.shape, dtype=np.min_scalar_type(len(values)))
    missed = np.ones(y.shape, dtype=bool)
    for miss in misses(values, y, win):
        missed &= miss
        tap += missed
    indices = np.take(offsets(win), tap)
    indices += corners(win)
    return y, np.where(missed, np.int32(-1), indices) if missed.any() else indices


def misses(values, y, win):
    """For each position in the window, whether the maximum y of the windows is elsewhere."""
    hasNan, hasPad = np.isnan(y).any(), any(map(any, win.pad)) and np.isneginf(y).any()
    outside: Any = padded(np.zeros(win.spatial, dtype=bool), win.pad, True) if hasPad else None
    for tap, value in zip(win.taps, values):
        miss = value != y
        if hasNan:
            miss &= value == value
        if hasPad:
            miss |= outside[win.tapIndex(tap)]
        yield miss


def offsets(win):
    """The flat distance of each position in a window from the first; one more, of any value, for none."""
    steps = [prod(win.spatial[axis + 1 :]) for axis in range(len(win.spatial))]
    flat = [sum(t * d * step for t, d, step in zip(tap, win.dilation, steps)) for tap in win.taps]
    return np.array([*flat, 0], dtype=np.int32)


def corners(win):
    """The flat position of the first element of each window, (*count); it may be outside the input."""
    flat = np.zeros((), dtype=np.int32)
    for length, count, stride, (before, _) in zip(win.spatial, win.count, win.stride, win.pad):
        flat = flat[..., None] * np.int32(length) + (np.arange(count, dtype=np.int32) * stride - before)
    return flat


@kernel
@widened
def maxPoolGrad(grad, indices, shape, size=None, stride=None, pad=None, dilation=1):
    """dx[n, c, indices[n, c, a]] += grad[n, c, a], for all a in order; an index of -1 adds nothing.

    The geometry of the windows, where given, changes no result, but lets a GPU search only the windows over a position.

    Shapes    grad, indices (n, c, *count), shape (n, c, *spatial) -> dx of that shape
    """
    channels = prod(shape[:2])
    grad, indices = (a.reshape(channels, prod(a.shape[2:])) for a in (grad, indices))
    return addAt(grad, indices, prod(shape[2:])).reshape(shape)


@maxPoolGrad.shape
def maxPoolGrad(grad, indices, shape, size=None, stride=None, pad=None, dilation=1):
    """dx of the shape that is given."""
    return tuple(shape), grad.dtype


@maxPoolGrad.cuda
def maxPoolGrad(dx, grad, indices, shape, size=None, stride=None, pad=None, dilation=1):
    """A thread gathers the gradient of one position; without a window, from all windows of its channel."""
    win = None if size is None else window(shape[2:], size, stride, pad, dilation)
    return pooling.maxPoolGrad(dx, grad, indices, win)


@maxPoolGrad.adjoint
def maxPoolGrad(g, dx, grad, indices, shape, *windows):
    """The gradient at the positions of the maxima."""
    channels = prod(shape[:2])
    return valuesAt(g.reshape(channels, -1), indices.reshape(channels, -1)).reshape(indices.shape)


maxPoolGrad.declare(layout=CHANNELSLAST, halves=Halves((0,), 1))


@kernel
@widened
def meanPool(x, size, stride, pad, includePad=True):
    """y[n, c, a] = mean over t of x[n, c, a stride + t - before]; padding counts as zeros, or not at all.

    Shapes    x (n, c, *spatial) -> y (n, c, *count)
    """
    win = window(x.shape[2:], size, stride, pad)
    channels = x.reshape(prod(x.shape[:2]), *win.spatial)
    y = np.empty((len(channels), *win.count), dtype=x.dtype)
    share = area(win, includePad, x.dtype)
    for few in chunks(len(channels), win):
        y[few] = sums(channels[few], win) / share
    return y.reshape(*x.shape[:2], *win.count)


@meanPool.shape
def meanPool(x, size, stride, pad, includePad=True):
    """y (n, c, *count)."""
    return x.shape[:2] + window(x.shape[2:], size, stride, pad).count, x.dtype


@meanPool.cuda
def meanPool(y, x, size, stride, pad, includePad=True):
    """A thread sums one window, or the windows of contiguous channels."""
    return pooling.meanPool(y, x, window(x.shape[2:], size, stride, pad), includePad)


@meanPool.flops
def meanPool(y, x, size, *window, **options):
    """Operations: each window reads each of its elements once."""
    return y.size * prod(perAxis(size, x.ndim - 2))


@meanPool.adjoint
def meanPool(g, y, x, size, stride, pad, includePad=True):
    """Distribute the gradient evenly over each window."""
    return meanPoolGrad(g, x.shape, size, stride, pad, includePad)


meanPool.declare(layout=CHANNELSLAST, halves=Halves((0,), 1))


def sums(x, win):
    """The sum of each window, one axis after the other."""
    x = padded(x, win.pad)
    for axis, (count, k, s) in enumerate(zip(win.count, win.size, win.stride), start=1):
        x = sum(x[part] for part in parts(axis, count, k, s))
    return x


@kernel
@widened
def meanPoolGrad(grad, shape, size, stride, pad, includePad=True):
    """The adjoint of `meanPool`: each position gets an equal share of the gradient of each window over it.

    Shapes    grad (n, c, *count), shape (n, c, *spatial) -> dx of that shape
    """
    win = window(shape[2:], size, stride, pad)
    channels = grad.reshape(prod(shape[:2]), *win.count)
    dx = np.empty((len(channels), *win.spatial), dtype=grad.dtype)
    share = area(win, includePad, grad.dtype)
    for few in chunks(len(channels), win):
        dx[few] = shares(channels[few] / share, win)
    return dx.reshape(shape)


@meanPoolGrad.shape
def meanPoolGrad(grad, shape, size, stride, pad, includePad=True):
    """dx of the shape that is given."""
    return tuple(shape), grad.dtype


@meanPoolGrad.cuda
def meanPoolGrad(dx, grad, shape, size, stride, pad, includePad=True):
    """A thread gathers the gradient of one position."""
    return pooling.meanPoolGrad(dx, grad, window(shape[2:], size, stride, pad), includePad)


@meanPoolGrad.adjoint
def meanPoolGrad(g, dx, grad, shape, size, stride, pad, includePad=True):
    """The mean of the gradient over each window."""
    return meanPool(g, size, stride, pad, includePad)


meanPoolGrad.declare(layout=CHANNELSLAST, halves=Halves((0,), 1))


def shares(grad, win):
    """The transpose of `sums`: each position gets the value of each window over it."""
    for axis, (count, k, s) in enumerate(zip(win.count, win.size, win.stride), start=1):
        x = np.zeros((*grad.shape[:axis], win.full[axis - 1], *grad.shape[axis + 1 :]), dtype=grad.dtype)
        for part in parts(axis, count, k, s):
            x[part] += grad
        grad = x
    return unpadded(grad, win.pad)


def parts(axis, count, size, stride):
    """Along one axis: the index of the elements of all windows at each of their positions."""
    stop = stride * (count - 1) + 1 if count else 0
    return [(slice(None),) * axis + (slice(t, t + stop, stride),) for t in range(size)]


def area(win, includePad, dtype):
    """The divisor of a window's sum: its size, or that of its part inside the input (at least one)."""
    if includePad:
        return prod(win.size)
    counts = np.ones((), dtype=dtype)
    for length, k, s, (before, _), count in zip(*win[:4], win.count):
        first = np.arange(count) * s - before
        on = np.minimum(first + k, length) - np.maximum(first, 0)
        counts = counts[..., None] * np.maximum(on, 1).astype(dtype)
    return counts
