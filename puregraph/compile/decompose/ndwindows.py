"""N-d windows: convolution and pooling over more than three axes, as windows of the other axes along the first.

A convolution is the sum, over the taps of the first axis, of convolutions over the others; a mean over windows is a
mean over the first axis of means over the others. For a maximum all windows are one overlapping strided view.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from puregraph.compile.decompose.decomposition import along, simpler
from puregraph.ops.reference.convolution import convolve, convolveData, convolveWeight
from puregraph.ops.reference.pooling import maxPool, maxPoolGrad, meanPool, meanPoolGrad
from puregraph.ops.reference.scatter import addAt
from puregraph.ops.reference.windowgeometry import Window, inner, window

MOST = 3  # most axes of native windows
EXACT = 1 << 24  # integers below this are exact as floats


def split(win: Window) -> tuple[Window, Any]:
    """Split off the window of the first axis; also size, stride, pad and dilation of the others."""
    first = Window(win.spatial[:1], win.size[:1], win.stride[:1], win.pad[:1], win.dilation[:1])
    return first, [setting[1:] for setting in win[1:]]


def tapIndices(first: Window) -> list[Any]:
    """The index, for each tap of the first axis, of the elements that all windows have there, in padded maps."""
    return [along(2, *first.tapIndex(tap)[1:]) for tap in first.taps]


def overFirst(x: Any, do: Callable[..., Any], *options: Any) -> Any:
    """Apply a function of feature maps, with its options, at each position along their first axis.

    Shapes    x (n, c, first, *others)
    """
    n, c, first, *others = x.shape
    y = do(np.moveaxis(x, 2, 1).reshape(n * first, c, *others), *options)
    return np.moveaxis(y.reshape(n, first, *y.shape[1:]), 1, 2)


def alongFirst(x: Any, do: Callable[..., Any], *options: Any) -> Any:
    """Apply a function of one-axis feature maps, with its options, along the first of several axes."""
    n, c, first, *others = x.shape
    y = do(np.moveaxis(x, 2, -1).reshape(n, c * prod(others), first), *options)
    return np.moveaxis(y.reshape(n, c, *others, y.shape[2]), -1, 2)


def padded(x: Any, first: Window) -> Any:
    """Feature maps padded with zeros along their first axis."""
    (pad,) = first.pad
    return np.pad(x, [(0, 0), (0, 0), pad, *[(0, 0)] * (x.ndim - 3)]) if any(pad) else x


@simpler(convolve)
def convolved(x: Any, W: Any, stride: Any, pad: Any, dilation: Any, groups: int) -> Any:
    """Convolution: the sum over the taps of the first axis."""
    if x.ndim - 2 <= MOST:
        return NotImplemented
    first, (_, *settings) = split(window(x.shape[2:], W.shape[2:], stride, pad, dilation))
    x, total = padded(x, first), None
    for t, index in enumerate(tapIndices(first)):
        y = overFirst(x[index], convolve, W[:, :, t].copy(), *settings, groups)
        total = y if total is None else total + y
    return total


@simpler(convolveData)
def convolvedData(grad: Any, W: Any, shape: Any, stride: Any, pad: Any, dilation: Any, groups: int) -> Any:
    """The data gradient: add the gradient of each tap of the first axis."""
    if len(shape) - 2 <= MOST:
        return NotImplemented
    first, (_, *settings) = split(window(shape[2:], W.shape[2:], stride, pad, dilation))
    (n, count), n0 = (grad.shape[0], *first.count), shape[0]
    dx = np.zeros_like(grad, shape=(n0, shape[1], *first.full, *shape[3:]))
    for t, index in enumerate(tapIndices(first)):
        inside = (n * count, shape[1], *shape[3:])
        part = overFirst(grad, convolveData, W[:, :, t].copy(), inside, *settings, groups)
        dx[index] = dx[index] + part
    return dx[along(2, *inner(first.pad, first.full)[1:])]


@simpler(convolveWeight)
def convolvedWeight(grad: Any, x: Any, size: Any, stride: Any, pad: Any, dilation: Any, groups: int) -> Any:
    """The weight gradient, computed for each tap of the first axis."""
    if x.ndim - 2 <= MOST:
        return NotImplemented
    first, (sizes, *settings) = split(window(x.shape[2:], size, stride, pad, dilation))
    x, taps = padded(x, first), []
    g = np.moveaxis(grad, 2, 1).reshape(-1, grad.shape[1], *grad.shape[3:])
    for index in tapIndices(first):
        part = np.moveaxis(x[index], 2, 1)
        taps.append(convolveWeight(g, part.reshape(-1, *part.shape[2:]), sizes, *settings, groups))
    return np.stack(taps, axis=2)


@simpler(meanPool)
def meanPooled(x: Any, size: Any, stride: Any, pad: Any, includePad: bool = True) -> Any:
    """Mean pooling as a mean of means."""
    if x.ndim - 2 <= MOST:
        return NotImplemented
    first, (*settings, _) = split(window(x.shape[2:], size, stride, pad))
    return alongFirst(overFirst(x, meanPool, *settings, includePad), meanPool, *first[1:4], includePad)


@simpler(meanPoolGrad)
def meanPooledGrad(grad: Any, shape: Any, size: Any, stride: Any, pad: Any, includePad: bool = True) -> Any:
    """The gradient of mean pooling, as that of a mean of means."""
    if len(shape) - 2 <= MOST:
        return NotImplemented
    n, c, length, *others = shape
    first, (*settings, _) = split(window(shape[2:], size, stride, pad))
    merged = (n, c * prod(grad.shape[3:]), length)
    grad = alongFirst(grad, meanPoolGrad, merged, *first[1:4], includePad)
    return overFirst(grad, meanPoolGrad, (n * length, c, *others), *settings, includePad)


@simpler(maxPool)
def maxPooled(x: Any, size: Any, stride: Any, pad: Any, dilation: Any = 1) -> Any:
    """The maximum of each window and its first position."""
    win = window(x.shape[2:], size, stride, pad, dilation)
    if len(win.size) <= MOST or x.size == 0 or prod(win.spatial) >= EXACT or x.dtype != np.float32:
        return NotImplemented
    positions = np.arange(prod(win.spatial), dtype=np.float32).reshape(1, 1, *win.spatial)
    around = [(0, 0), (0, 0), *win.pad]
    views, taps = seen(np.pad(x, around, constant_values=-np.inf), win), tuple(range(-len(win.size), 0))
    positions = seen(np.pad(positions, around, constant_values=EXACT), win)
    y = views.max(axis=taps, keepdims=True)
    isHere = (views == y) | ((views != views) & (y != y))
    index = np.where(isHere, positions, np.float32(EXACT)).min(axis=taps)
    return y.squeeze(taps), np.where(index == EXACT, np.float32(-1), index).astype(np.int32)


def seen(x: Any, win: Window) -> Any:
    """The windows of padded feature maps as a view (n, c, *count, *size)."""
    reach = [d * (k - 1) + 1 for k, d in zip(win.size, win.dilation)]
    views = np.lib.stride_tricks.sliding_window_view(x, reach, axis=tuple(range(2, x.ndim)))
    steps = [*win.stride, *win.dilation]
    return views[along(2, *[slice(None, None, step) for step in steps])]


@simpler(maxPoolGrad)
def maxPooledGrad(grad: Any, indices: Any, shape: Any, *windows: Any) -> Any:
    """Add each gradient at the position of its maximum."""
    if len(shape) - 2 <= MOST or 0 in shape or 0 in grad.shape:
        return NotImplemented
    n, c, *spatial = shape
    return addAt(grad.reshape(n * c, -1), indices.reshape(n * c, -1), prod(spatial)).reshape(shape)
