"""Views: shape, strides and offset of what numpy's views of an array are, computed without an array.

Sizes may be open: nothing here turns one into a number.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from puregraph.ops.ir.strides import reshaped


class ArrayView(NamedTuple):
    """Shape and strides of a view, and the bytes from the start of its array to its first element."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    itemsize: int
    offset: int = 0

    def of(self, shape: Iterable[int], strides: Iterable[int], offset: int = 0) -> ArrayView:
        """A view of this one's memory."""
        return ArrayView(tuple(shape), tuple(strides), self.itemsize, self.offset + offset)


def viewed(function: Any, x: ArrayView, *arguments: Any, **options: Any) -> ArrayView:
    """The view that a function makes of an array.

    Raises    what numpy raises
    """
    rule = RULES.get(function)
    if rule is not None:
        return rule(x, *arguments, **options)
    marks = [1 if n == 1 else 2 for n in x.shape]
    stand = np.lib.stride_tricks.as_strided(np.empty(1, np.bool_), marks, range(1, len(marks) + 1))
    view = function(stand, *arguments, **options)  # axes are moved or left out
    axes = [step - 1 for step in view.strides]
    return x.of([x.shape[a] for a in axes], [x.strides[a] for a in axes])


def indexed(x: ArrayView, key: Any) -> ArrayView:
    """x[key]: of whole numbers, slices, None and an ellipsis."""
    parts = list(key) if type(key) is tuple else [key]
    count = len(parts) - sum(k is None or k is Ellipsis for k in parts)
    if count > len(x.shape):
        raise IndexError(f"too many indices: the array has {len(x.shape)} axes, but {count} were indexed")
    if Ellipsis not in parts:
        parts.append(Ellipsis)
    spot = parts.index(Ellipsis)
    parts[spot : spot + 1] = [slice(None)] * (len(x.shape) - count)
    axes, offset = iter(zip(x.shape, x.strides)), 0
    pairs: list[tuple[int, int]] = []
    for k in parts:
        if k is None:
            pairs.append((1, 0))
            continue
        size, stride = next(axes)
        if isinstance(k, slice):
            first, count, step = sliced(k, size)
            pairs.append((count, stride * step))
        else:
            first = k if isinstance(k, int) else operator.index(k)
            if not -size <= first < size:
                raise IndexError(f"index {k} is out of bounds for an axis of size {size}")
            first = first + size if first < 0 else first
        offset += first * stride
    return x.of([n for n, _ in pairs], [s for _, s in pairs], offset)


def sliced(part: slice, size: int) -> tuple[int, int, int]:
    """The first index of a slice of an axis, the number of elements, and the step."""
    step = 1 if part.step is None else part.step
    if step == 0:
        raise ValueError("slice step cannot be zero")
    low, high = (0, size) if step > 0 else (-1, size - 1)

    def end(index: Any, default: int) -> int:
        if index is None:
            return default
        return min(max(index + size if index < 0 else index, low), high)

    first, last = (
        (end(part.start, low), end(part.stop, high)) if step > 0 else (end(part.start, high), end(part.stop, low))
    )
    distance = (last - first) if step > 0 else (first - last)
    return (first, (distance + abs(step) - 1) // abs(step), step) if distance > 0 else (0, 0, 1)


def flipped(x: ArrayView, axis: Any = None) -> ArrayView:
    """np.flip: the elements of some axes in reverse order."""
    rank = len(x.shape)
    axes = range(rank) if axis is None else [range(rank)[a] for a in (axis if isinstance(axis, tuple) else (axis,))]
    return indexed(x, tuple([slice(None, None, -1) if a in axes else slice(None) for a in range(rank)]))


def broadcastTo(x: ArrayView, shape: Any) -> ArrayView:
    """np.broadcast_to: axes of length one, and new ones, repeat their element."""
    shape = tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)
    missing = len(shape) - len(x.shape)
    sizes, steps = (1,) * missing + x.shape, (0,) * missing + x.strides
    if missing < 0 or any(n not in (m, 1) for n, m in zip(sizes, shape)):
        raise ValueError(f"an array of shape {x.shape} cannot be broadcast to {shape}")
    return x.of(shape, [0 if n == 1 else s for n, s in zip(sizes, steps)])


def onDiagonal(x: ArrayView, offset: int = 0, axis1: int = 0, axis2: int = 1) -> ArrayView:
    """np.diagonal: the diagonal of two axes, as the last one."""
    rank = len(x.shape)
    first, second = range(rank)[axis1], range(rank)[axis2]
    if first == second:
        raise ValueError("axis1 and axis2 cannot be the same")
    rows, columns = x.shape[first] - max(-offset, 0), x.shape[second] - max(offset, 0)
    start = x.strides[second] * offset if offset > 0 else x.strides[first] * -offset
    others = [a for a in range(rank) if a not in (first, second)]
    count = max(0, min(rows, columns))
    steps = (*[x.strides[a] for a in others], x.strides[first] + x.strides[second])
    return x.of((*[x.shape[a] for a in others], count), steps, start if count else 0)


def expanded(x: ArrayView, axis: Any) -> ArrayView:
    """np.expand_dims: new axes of length one; their strides are those of a reshape."""
    axes = axis if isinstance(axis, tuple) else (axis,)
    rank = len(x.shape) + len(axes)
    new, old = {range(rank)[a] for a in axes}, iter(x.shape)
    shape = tuple([1 if a in new else next(old) for a in range(rank)])
    return x.of(shape, reshaped(x.shape, x.strides, shape, x.itemsize) or ())


def windows(x: ArrayView, shape: Any, axis: Any = None, **options: Any) -> ArrayView:
    """sliding_window_view: the windows of some axes, as new axes at the end."""
    sides = tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)
    rank = len(x.shape)
    axes = range(rank) if axis is None else [range(rank)[a] for a in (axis if isinstance(axis, tuple) else (axis,))]
    if len(axes) != len(sides):
        raise ValueError("one side of a window for each axis")
    sizes = list(x.shape)
    for a, side in zip(axes, sides):
        sizes[a] = sizes[a] - side + 1
    if any(n < 0 for n in sides) or any(sizes[a] < 1 for a in axes):
        raise ValueError("the window is larger than its axis")
    return x.of((*sizes, *sides), (*x.strides, *[x.strides[a] for a in axes]))


RULES: dict[Any, Callable[..., ArrayView]] = {
    operator.getitem: indexed,
    np.expand_dims: expanded,
    np.flip: flipped,
    np.broadcast_to: broadcastTo,
    np.diagonal: onDiagonal,
    np.lib.stride_tricks.sliding_window_view: windows,
}
