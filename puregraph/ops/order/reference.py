"""Sort along an axis: the first elements in order, and where they are."""

from __future__ import annotations

from math import log2

import numpy as np

from puregraph.core.errors import Fault, ShapeError
from puregraph.core.shape import normalAxis
from puregraph.ops.cuda.nests.axes import axesOf
from puregraph.ops.cuda.runtime.launch import THREADS, WAVE, Launch, Scratch, gridFor, stridesOf
from puregraph.ops.cuda.runtime.preprocess import defined, read, stored
from puregraph.ops.gather.alongaxis import addAlong
from puregraph.ops.kernel import kernel

SHARED_SORT_ELEMENTS = 2048  # elements of a line that a block sorts in shared memory


@kernel
def sortAlong(x, axis, count, largest=False):
    """values, indices = the `count` least elements along an axis in order, or the largest; of equals the first.

    nan counts as larger than any number.

    Shapes    x (..., n, ...) -> values, indices (..., count, ...), indices of int64
    Raises    ShapeError if x has no such axis, or fewer elements
    Source    ONNX operator TopK
    """
    axis = check(x.shape, axis, count)
    n = x.shape[axis]
    indices = np.argsort(np.flip(x, axis) if largest else x, axis, kind="stable")
    if largest:
        indices = n - 1 - np.flip(indices, axis)
    indices = indices[(slice(None),) * axis + (slice(count),)].astype(np.int64)
    return np.take_along_axis(x, indices, axis), indices


@sortAlong.shape
def sortAlong(x, axis, count, largest=False):
    """values, indices (..., count, ...)."""
    axis = check(x.shape, axis, count)
    shape = (*x.shape[:axis], count, *x.shape[axis + 1 :])
    return [(shape, x.dtype), (shape, np.dtype(np.int64))]


@sortAlong.flops
def sortAlong(y, x, axis, count, largest=False):
    """log2 n comparisons for each element."""
    return int(x.size * log2(max(2, x.shape[axis])))


@sortAlong.samples
def sortAlong(x, axis, count, largest=False):
    """Along the axis that this is within a sample."""
    return sortAlong(x, normalAxis(axis, x.ndim - 1) + 1, count, largest)


@sortAlong.vjp
def sortAlong(g, y, x, axis, count, largest=False):
    """Back to where the elements were."""
    return np.zeros_like(x) if g[0] is None else addAlong(g[0], y[1], axis, x.shape[axis])


@sortAlong.jvp
def sortAlong(function, values, tangents, options):
    """In the order of the values; indices have no tangent."""
    y = function(*values, **options)
    axis = values[1] if len(values) > 1 else options["axis"]
    return y, (np.take_along_axis(tangents[0], y[1], axis), None)


@sortAlong.cuda
def sortAlong(outs, x, axis, count, largest=False):
    """Bitonic sort of keys and indices: by a block in shared memory, of longer lines a step of all lines a launch."""
    y, indices = outs
    axis = check(x.shape, axis, count)
    n = x.shape[axis]
    if stored(x.dtype) is None or y.dtype != x.dtype or n >= 1 << 30:
        return NotImplemented
    if not y.size:
        return []
    padded = 1 << max(1, (n - 1).bit_length())
    others = [(*s[:axis], *s[axis + 1 :]) for s in (x.shape, stridesOf(x), stridesOf(y), stridesOf(indices))]
    axes = axesOf(others[0], dict(zip(("fromX", "toY", "toIndex"), others[1:])))
    lines = x.size // n
    text = defined({"T": stored(x.dtype), "LARGEST": int(largest), "SHARED": SHARED_SORT_ELEMENTS})
    text += axes.defined("LINES") + read("sortalong.h")
    steps = [("long", stridesOf(array)[axis]) for array in (x, y, indices)]
    sizes = (("long", lines), ("int", n), ("int", count), ("int", padded))
    arrays = (("pointer", y), ("pointer", indices), ("pointer", x))
    tail = (*sizes, *steps, *axes.slots)
    block = (THREADS, 1, 1)
    if padded <= SHARED_SORT_ELEMENTS:
        return [Launch("sortAlong", text, "sortLines", (*arrays, *tail), (min(lines, 2 * WAVE), 1, 1), block)]
    keys, order = Scratch((lines, padded), np.uint64), Scratch((lines, padded), np.int32)
    held, grid = (("pointer", keys), ("pointer", order)), gridFor(lines * padded)
    launches = [Launch("sortAlong", text, "sortKeys", (*held, arrays[2], *tail), grid, block)]
    pairs = (("long", lines * padded // 2), ("int", padded))
    for k in range(1, padded.bit_length()):
        for j in range(k - 1, -1, -1):
            stage = (*held, *pairs, ("int", 1 << k), ("int", 1 << j))
            launches.append(Launch("sortAlong", text, "sortStage", stage, gridFor(lines * padded // 2), block))
    put = (*arrays, *held, *tail)
    return [*launches, Launch("sortAlong", text, "sortedOut", put, gridFor(lines * count), block)]


def check(shape, axis, count):
    """The axis counted from the first.

    Raises    ShapeError for an axis with fewer elements
    """
    axis = normalAxis(axis, len(shape))
    if not 0 <= count <= shape[axis]:
        raise ShapeError(Fault(f"a count from 0 to {shape[axis]}", count, module="sortAlong"))
    return axis
