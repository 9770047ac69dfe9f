"""Strides: the layout that numpy gives a result, computed from the layouts of the operands without any memory.

The last bits of a sum depend on the order of summation, which depends on the layout. To equal the eager step, a
compiled step lays out its values as numpy would.

Source    numpy 2: nditer's ordering of axes, PyArray_NewLikeArray, PyArray_ConcatenateArrays
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

Strides = tuple[int, ...]


def contiguous(shape: Sequence[int], itemsize: int) -> Strides:
    """Row-major strides in bytes."""
    strides, step = [], itemsize
    for size in reversed(shape):
        strides.append(step)
        step *= size if size else 1
    return tuple(reversed(strides))


def isContiguous(shape: Sequence[int], strides: Strides, itemsize: int) -> bool:
    """True if the elements are contiguous in row-major order; axes of length one do not matter."""
    step = itemsize
    for size, stride in zip(reversed(shape), reversed(strides)):
        if size != 1:
            if size == 0:
                return True
            if stride != step:
                return False
            step *= size
    return True


def isDense(shape: Sequence[int], strides: Strides, itemsize: int) -> bool:
    """True if the elements fill their memory without gaps or overlaps, in any axis order, with no negative stride."""
    step = itemsize
    for stride, size in sorted((s, n) for n, s in zip(shape, strides) if n != 1):
        if size and stride != step:
            return False
        step *= size
    return True


def storedOrder(array: object) -> tuple[int, ...] | None:
    """The axes of an array from slowest to fastest; None if it is row-major, has gaps or is on a GPU."""
    if type(array) is not np.ndarray or array.flags.c_contiguous:
        return None
    if not isDense(array.shape, array.strides, array.itemsize):
        return None
    return tuple(sorted(range(array.ndim), key=lambda axis: -array.strides[axis]))


def sameStrides(shape: Sequence[int], a: Strides, b: Strides) -> bool:
    """True if two layouts are equal; axes of length one do not matter, and empty arrays are always equal."""
    return 0 in shape or all(size == 1 or s == t for size, s, t in zip(shape, a, b))


def dense(shape: Sequence[int], order: Sequence[int], itemsize: int) -> Strides:
    """Strides without gaps, for axes listed from slowest to fastest."""
    strides, step = [0] * len(shape), itemsize
    for axis in reversed(order):
        strides[axis] = step
        step *= shape[axis] if shape[axis] else 1
    return tuple(strides)


def broadcastShapes(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """np.broadcast_shapes, of sizes that may be open."""
    rank = max(map(len, shapes))
    result: tuple[int, ...] = ()
    for sizes in zip(*[(1,) * (rank - len(shape)) + shape for shape in shapes]):
        size = next((n for n in sizes if n != 1), 1)
        if any(n not in (1, size) for n in sizes):
            raise ValueError(f"shapes {shapes} do not broadcast")
        result += (size,)
    return result


def aligned(shape: Sequence[int], strides: Strides, rank: int) -> Strides:
    """Strides of an operand at a larger rank, aligned to the last axes; 0 where it is broadcast."""
    return (0,) * (rank - len(shape)) + tuple([0 if n == 1 else s for n, s in zip(shape, strides)])


def falling(strides: Strides) -> bool:
    """True if strides never grow, ignoring zeros."""
    last = None
    for s in strides:
        if s:
            s = abs(s)
            if last is not None and s > last:
                return False
            last = s
    return True


def sortedAxes(operands: Sequence[Strides], rank: int) -> list[int]:
    """The axes in the order that numpy's iterator traverses them, slowest first; operands have full rank."""
    order = list(range(rank))
    for position in range(rank - 2, -1, -1):  # each axis moves inward past slower axes
        axis, goal = order[position], position
        for other in range(position + 1, rank):
            swap = compared(operands, axis, order[other])
            if swap:
                goal = other
            elif swap is not None:
                break
        order.insert(goal, order.pop(position))
    return order


def compared(operands: Sequence[Strides], axis: int, inner: int) -> bool | None:
    """True if an axis is faster than another one further in, False if slower; None if no operand decides."""
    swap = None
    for strides in operands:
        outside, inside = abs(strides[axis]), abs(strides[inner])
        if outside and inside:
            if inside <= outside:
                swap = False  # if operands disagree, row-major order wins
            elif swap is None:
                swap = True
    return swap


def iterated(shape: Sequence[int], operands: Sequence[Strides], itemsize: int) -> Strides:
    """The layout of a ufunc's result, from the strides of its operands at full rank."""
    if len(shape) < 2 or all(map(falling, operands)):
        return contiguous(shape, itemsize)
    return dense(shape, sortedAxes(operands, len(shape)), itemsize)


def like(shape: Sequence[int], strides: Strides, itemsize: int) -> Strides:
    """The layout of `np.zeros_like`, `np.copy` and `astype`: axes ordered by their strides."""
    if len(shape) < 2 or isDescending(shape, strides):
        return contiguous(shape, itemsize)
    order = sorted(range(len(shape)), key=lambda axis: -abs(strides[axis]))
    return dense(shape, order, itemsize)


def isDescending(shape: Sequence[int], strides: Strides) -> bool:
    """True if strides never grow."""
    return all(abs(a) >= abs(b) for a, b in zip(strides, strides[1:]))


def joinedAxes(shapes: Sequence[Sequence[int]], operands: Sequence[Strides]) -> list[int]:
    """The axis order of the result of `np.concatenate`, slowest first."""
    rank = len(shapes[0])
    order = list(range(rank))
    for position in range(1, rank):
        axis, goal = order[position], position
        for other in range(position - 1, -1, -1):
            swap = None
            for shape, strides in zip(shapes, operands):
                outer = order[other]
                if shape[axis] != 1 and shape[outer] != 1:
                    if abs(strides[axis]) <= abs(strides[outer]):
                        swap = False
                    elif swap is None:
                        swap = True
            if swap:
                goal = other
            elif swap is not None:
                break
        order.insert(goal, order.pop(position))
    return order


def reshaped(shape: Sequence[int], strides: Strides, wanted: Sequence[int], itemsize: int) -> Strides | None:
    """The strides of a view with another shape; None if numpy has to copy."""
    if 0 in shape:
        return contiguous(wanted, itemsize)
    old = [(n, s) for n, s in zip(shape, strides) if n != 1]
    result: list[int] = []
    i = j = 0
    wanted = list(wanted)
    while i < len(old) and j < len(wanted):
        last, end = i + 1, j + 1
        product, goal = old[i][0], wanted[j]
        while product != goal:
            if product < goal:
                product *= old[last][0]
                last += 1
            else:
                goal *= wanted[end]
                end += 1
        if any(old[k][1] != old[k + 1][0] * old[k + 1][1] for k in range(i, last - 1)):
            return None
        step, group = old[last - 1][1], []
        for size in reversed(wanted[j:end]):
            group.append(step)
            step *= size
        result += reversed(group)
        i, j = last, end
    missing = len(wanted) - len(result)
    step = result[-1] if result else itemsize
    return (*result, *[step] * missing)


def extent(shape: Sequence[int], strides: Strides, itemsize: int) -> tuple[int, int]:
    """The start of the first byte and the end of the last one, relative to the first element."""
    if 0 in shape:
        return 0, 0
    low = sum((n - 1) * s for n, s in zip(shape, strides) if s < 0)
    high = sum((n - 1) * s for n, s in zip(shape, strides) if s > 0)
    return low, high + itemsize


def resolvedShape(size: int, wanted: Any) -> tuple[int, ...]:
    """A shape with -1 replaced by the remaining size."""
    shape = list(wanted) if isinstance(wanted, (tuple, list)) else [wanted]
    shape = [n if isinstance(n, int) else int(n) for n in shape]
    if -1 in shape:
        known = 1
        for n in shape:
            known *= n if n != -1 else 1
        shape[shape.index(-1)] = size // known if known else 0
    return tuple(shape)


def along(axis: int, *keys: Any) -> tuple[Any, ...]:
    """An index for an axis, with full slices before it."""
    return (slice(None),) * axis + keys


def reducedAxes(axis: int | Sequence[int] | None, rank: int) -> set[int]:
    """The reduced axes, as non-negative numbers."""
    if axis is None:
        return set(range(rank))
    return {range(rank)[a] for a in (axis if isinstance(axis, tuple) else (axis,))}
