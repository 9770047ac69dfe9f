"""Convolution over more than three axes: the sum, over the taps of the first axis, of convolutions over the others."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from puregraph.ops.convolution.reference import convolve, convolveData, convolveWeight
from puregraph.ops.convolution.windowgeometry import Window, unpadded, window
from puregraph.ops.ir.strides import along
from puregraph.ops.operation import op

if TYPE_CHECKING:
    from collections.abc import Sequence

    from puregraph.core.protocols import AnyArray

MAX_WINDOW_AXES = 3  # most axes of native windows


def split(win: Window) -> tuple[Window, Any]:
    """Split off the window of the first axis; also size, stride, pad and dilation of the others."""
    first = Window(win.spatial[:1], win.size[:1], win.stride[:1], win.pad[:1], win.dilation[:1])
    return first, [setting[1:] for setting in win[1:]]


def tapIndices(first: Window) -> list[Any]:
    """For each tap of the first axis, the index of its elements in all windows of the padded maps."""
    return [along(2, *first.tapIndex(tap)[1:]) for tap in first.taps]


def overFirst(x: Any, do: Callable[..., Any], *options: Any) -> AnyArray:
    """Apply a function of feature maps, with its options, at each position along their first axis.

    Shapes    x (n, c, first, *others)
    """
    n, c, first, *others = x.shape
    y = do(np.moveaxis(x, 2, 1).reshape(n * first, c, *others), *options)
    return np.moveaxis(y.reshape(n, first, *y.shape[1:]), 1, 2)


def alongFirst(x: Any, do: Callable[..., Any], *options: Any) -> AnyArray:
    """Apply a function of one-axis feature maps, with its options, along the first of several axes."""
    n, c, first, *others = x.shape
    y = do(np.moveaxis(x, 2, -1).reshape(n, c * prod(others), first), *options)
    return np.moveaxis(y.reshape(n, c, *others, y.shape[2]), -1, 2)


def padded(x: AnyArray, first: Window) -> AnyArray:
    """Feature maps padded with zeros along their first axis."""
    (pad,) = first.pad
    if min(pad) < 0:
        x = x[:, :, max(0, -pad[0]) : x.shape[2] - max(0, -pad[1])]
        pad = (max(0, pad[0]), max(0, pad[1]))
    return np.pad(x, [(0, 0), (0, 0), pad, *[(0, 0)] * (x.ndim - 3)]) if any(pad) else x


@op(convolve).decompose
def convolved(
    x: AnyArray,
    W: AnyArray,
    stride: Sequence[int],
    pad: Sequence[Sequence[int]],
    dilation: Sequence[int] | None,
    groups: int,
) -> AnyArray | None:
    """Convolution: the sum over the taps of the first axis."""
    if x.ndim - 2 <= MAX_WINDOW_AXES:
        return NotImplemented
    first, (_, *settings) = split(window(x.shape[2:], W.shape[2:], stride, pad, dilation))
    x, total = padded(x, first), None
    for t, index in enumerate(tapIndices(first)):
        y = overFirst(x[index], convolve, W[:, :, t].copy(), *settings, groups)
        total = y if total is None else total + y
    return total


@op(convolveData).decompose
def convolvedData(
    grad: AnyArray,
    W: AnyArray,
    shape: Sequence[int],
    stride: Sequence[int],
    pad: Sequence[Sequence[int]],
    dilation: Sequence[int],
    groups: int,
) -> AnyArray:
    """The data gradient: add the gradient of each tap of the first axis."""
    if len(shape) - 2 <= MAX_WINDOW_AXES:
        return NotImplemented
    first, (_, *settings) = split(window(shape[2:], W.shape[2:], stride, pad, dilation))
    (n, count), n0 = (grad.shape[0], *first.count), shape[0]
    dx = np.zeros_like(grad, shape=(n0, shape[1], *first.full, *shape[3:]))
    for t, index in enumerate(tapIndices(first)):
        inside = (n * count, shape[1], *shape[3:])
        part = overFirst(grad, convolveData, W[:, :, t].copy(), inside, *settings, groups)
        dx[index] = dx[index] + part
    return unpadded(dx, [*first.pad, *[(0, 0)] * (dx.ndim - 3)])


@op(convolveWeight).decompose
def convolvedWeight(
    grad: Any,
    x: AnyArray,
    size: tuple[int, ...],
    stride: Sequence[int],
    pad: Sequence[Sequence[int]],
    dilation: Sequence[int],
    groups: int,
) -> AnyArray:
    """The weight gradient, computed for each tap of the first axis."""
    if x.ndim - 2 <= MAX_WINDOW_AXES:
        return NotImplemented
    first, (sizes, *settings) = split(window(x.shape[2:], size, stride, pad, dilation))
    x, taps = padded(x, first), []
    g = np.moveaxis(grad, 2, 1).reshape(-1, grad.shape[1], *grad.shape[3:])
    for index in tapIndices(first):
        part = np.moveaxis(x[index], 2, 1)
        taps.append(convolveWeight(g, part.reshape(-1, *part.shape[2:]), sizes, *settings, groups))
    return np.stack(taps, axis=2)
