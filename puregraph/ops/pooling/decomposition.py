"""Pooling over more than three axes: means of means; for a maximum all windows are one overlapping strided view."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from puregraph.ops.convolution.decomposition import MAX_WINDOW_AXES, alongFirst, overFirst, split
from puregraph.ops.convolution.windowgeometry import Window, window
from puregraph.ops.gather.reference import addAt
from puregraph.ops.ir.strides import along
from puregraph.ops.operation import op
from puregraph.ops.pooling.reference import maxPool, maxPoolGrad, meanPool, meanPoolGrad

if TYPE_CHECKING:
    from collections.abc import Sequence

    from puregraph.core.protocols import AnyArray

MAX_EXACT = 1 << 24  # integers below this are exact as floats


@op(meanPool).decompose
def meanPooled(
    x: AnyArray, size: Sequence[int], stride: Sequence[int], pad: Sequence[Sequence[int]], includePad: bool = True
) -> AnyArray:
    """Mean pooling as a mean of means."""
    if x.ndim - 2 <= MAX_WINDOW_AXES:
        return NotImplemented
    first, (*settings, _) = split(window(x.shape[2:], size, stride, pad))
    return alongFirst(overFirst(x, meanPool, *settings, includePad), meanPool, *first[1:4], includePad)


@op(meanPoolGrad).decompose
def meanPooledGrad(
    grad: AnyArray,
    shape: Sequence[int],
    size: Sequence[int],
    stride: Sequence[int],
    pad: Sequence[Sequence[int]],
    includePad: bool = True,
) -> AnyArray:
    """The gradient of mean pooling, as that of a mean of means."""
    if len(shape) - 2 <= MAX_WINDOW_AXES:
        return NotImplemented
    n, c, length, *others = shape
    first, (*settings, _) = split(window(shape[2:], size, stride, pad))
    merged = (n, c * prod(grad.shape[3:]), length)
    grad = alongFirst(grad, meanPoolGrad, merged, *first[1:4], includePad)
    return overFirst(grad, meanPoolGrad, (n * length, c, *others), *settings, includePad)


@op(maxPool).decompose
def maxPooled(x: Any, size: Any, stride: Any, pad: Any, dilation: Any = 1) -> Any:
    """The maximum of each window and its first position."""
    win = window(x.shape[2:], size, stride, pad, dilation)
    if len(win.size) <= MAX_WINDOW_AXES or x.size == 0 or prod(win.spatial) >= MAX_EXACT or x.dtype != np.float32:
        return NotImplemented
    positions = np.arange(prod(win.spatial), dtype=np.float32).reshape(1, 1, *win.spatial)
    around = [(0, 0), (0, 0), *win.pad]
    views, taps = seen(np.pad(x, around, constant_values=-np.inf), win), tuple(range(-len(win.size), 0))
    positions = seen(np.pad(positions, around, constant_values=MAX_EXACT), win)
    y = views.max(axis=taps, keepdims=True)
    isHere = (views == y) | ((views != views) & (y != y))
    index = np.where(isHere, positions, np.float32(MAX_EXACT)).min(axis=taps)
    return y.squeeze(taps), np.where(index == MAX_EXACT, np.float32(-1), index).astype(np.int32)


def seen(x: Any, win: Window) -> Any:
    """The windows of padded feature maps as a view (n, c, *count, *size)."""
    reach = [d * (k - 1) + 1 for k, d in zip(win.size, win.dilation)]
    views = np.lib.stride_tricks.sliding_window_view(x, reach, axis=tuple(range(2, x.ndim)))
    steps = [*win.stride, *win.dilation]
    return views[along(2, *[slice(None, None, step) for step in steps])]


@op(maxPoolGrad).decompose
def maxPooledGrad(grad: AnyArray, indices: AnyArray, shape: Sequence[int], *windows: Any) -> AnyArray:
    """Add each gradient at the position of its maximum."""
    if len(shape) - 2 <= MAX_WINDOW_AXES or 0 in shape or 0 in grad.shape:
        return NotImplemented
    n, c, *spatial = shape
    return addAt(grad.reshape(n * c, -1), indices.reshape(n * c, -1), prod(spatial)).reshape(shape)
