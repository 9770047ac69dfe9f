"""Elements read and written by an index along an axis: numpy's take_along_axis, and its adjoint with other kinds."""

from __future__ import annotations

import numpy as np

from puregraph.core.base.widen import widened
from puregraph.core.errors import Fault, ShapeError, need
from puregraph.core.shape import normalAxis
from puregraph.ops.cuda.nests.axes import axesOf
from puregraph.ops.cuda.runtime.launch import THREADS, WARP, WAVE, Launch, Scratch, gridFor, stridesOf
from puregraph.ops.cuda.runtime.preprocess import computed, defined, read, stored
from puregraph.ops.gather.reference import areAlike, wrong
from puregraph.ops.kernel import ANYFLOATS, kernel

KINDS = {"set": None, "add": np.add, "multiply": np.multiply, "minimum": np.minimum, "maximum": np.maximum}
JOINS = {"set": "Last", "add": "Sum", "multiply": "Product", "minimum": "Min", "maximum": "Max"}
OUTSIDE_INDEX = -(1 << 40)  # on a GPU the index in place of one that is out of range, which stays out of range in a sum


@kernel
def wrapIndex(index, n):
    """The index of an axis of length n, with negative ones counted from the end.

    Shapes    index (any) -> y the same, of int64
    Raises    IndexError unless all are from -n to n - 1
    """
    check(index, n)
    return np.where(index < 0, index + n, index).astype(np.int64, copy=False)


@wrapIndex.shape
def wrapIndex(index, n):
    """The shape of the index, in int64."""
    return index.shape, np.dtype(np.int64)


@wrapIndex.bounds
def wrapIndex(index, n):
    """Each index is an element of the axis, counted from its start or its end."""
    return index, -n, n


@wrapIndex.cuda
def wrapIndex(y, index, n):
    """A thread takes an index. One that is out of range stays so: no kernel can raise."""
    if index.dtype.kind not in "iu":
        return NotImplemented
    axes = axesOf(y.shape, {"to": stridesOf(y), "fromIndex": stridesOf(index)})
    text = defined({"I": stored(index.dtype), "OUTSIDE": f"{OUTSIDE_INDEX}ll"}) + axes.defined("AXES") + WRAP
    slots = (("pointer", y), ("pointer", index), ("long", y.size), ("long", n), *axes.slots)
    return [Launch("wrapIndex", text, "wrapIndex", slots, gridFor(y.size), (THREADS, 1, 1))] if y.size else []


WRAP = """
extern "C" __global__ void wrapIndex(int64* __restrict__ y, const I* __restrict__ index, int64 count, int64 n,
                                     AXES_PARAMETERS) {
  for (AXES_COUNTER i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
    AXES_OFFSETS
    const int64 at = index[fromIndex] < 0 ? index[fromIndex] + n : index[fromIndex];
    y[to] = at >= 0 && at < n ? at : OUTSIDE;
  }
}
"""


@kernel
def takeAlong(x, index, axis):
    """y[..., i, ...] = x[..., index[..., i, ...], ...] along an axis; negative indices count from its end.

    Shapes    x (*a, n, *b), index (*a, m, *b) integers -> y (*a, m, *b)
    Raises    ShapeError if x has no such axis, or the other axes differ; IndexError for an index out of range
    Source    numpy.take_along_axis; ONNX operator GatherElements
    """
    axis = alike(x.shape, index.shape, axis)
    check(index, x.shape[axis])
    return np.take_along_axis(x, index.astype(np.intp, copy=False), axis)


@takeAlong.shape
def takeAlong(x, index, axis):
    """y as the index, in the dtype of x."""
    alike(x.shape, index.shape, axis)
    return index.shape, x.dtype


@takeAlong.bounds
def takeAlong(x, index, axis):
    """Each index is an element of the axis, counted from its start or its end."""
    n = x.shape[normalAxis(axis, len(x.shape))]
    return index, -n, n


@takeAlong.samples
def takeAlong(x, index, axis):
    """Along the axis that this is within a sample."""
    return takeAlong(x, index, normalAxis(axis, x.ndim - 1) + 1)


@takeAlong.adjoint
def takeAlong(g, y, x, index, axis):
    """Add the gradient to the elements that were read."""
    return putAlong(np.zeros_like(g, shape=x.shape), index, g, axis, "add")


@takeAlong.cuda
def takeAlong(y, x, index, axis):
    """A thread takes an element. An index out of range gives nan: no kernel can raise."""
    if index.dtype.kind not in "iu" or stored(x.dtype) is None or not areAlike(y, x):
        return NotImplemented
    if not y.size:
        return []
    axis = normalAxis(axis, len(x.shape))
    step, source = stridesOf(x)[axis], [s if a != axis else 0 for a, s in enumerate(stridesOf(x))]
    axes = axesOf(y.shape, {"to": stridesOf(y), "fromX": source, "fromIndex": stridesOf(index)})
    names = {"T": stored(y.dtype), "S": stored(x.dtype), "I": stored(index.dtype), "WRONG": wrong(y.dtype)}
    text = defined(names) + axes.defined("AXES") + TAKE
    arrays = [("pointer", array) for array in (y, x, index)]
    slots = (*arrays, ("long", y.size), ("long", x.shape[axis]), ("long", step), *axes.slots)
    return [Launch("takeAlong", text, "takeAlong", slots, gridFor(y.size), (THREADS, 1, 1))]


takeAlong.declare(halves=ANYFLOATS, sampled=(0, 1))


TAKE = """
extern "C" __global__ void takeAlong(T* __restrict__ y, const S* __restrict__ x, const I* __restrict__ index,
                                     int64 count, int64 n, int64 step, AXES_PARAMETERS) {
  for (AXES_COUNTER i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
    AXES_OFFSETS
    const int64 at = index[fromIndex] < 0 ? index[fromIndex] + n : index[fromIndex];
    y[to] = at >= 0 && at < n ? kept<T>(x[fromX + at * step]) : WRONG;
  }
}
"""


@kernel
@widened
def putAlong(x, index, updates, axis, kind="set"):
    """y = x, except that y[..., index[..., i, ...], ...] becomes updates[..., i, ...], for all i in order.

    `kind` "add" and "multiply" add or multiply the update to the element, "minimum" and "maximum" keep the smaller or
    larger, and nan if there is one. Along the other axes the index may be shorter than x.

    Shapes    x (*a, n, *b), index and updates (*a, m, *b) -> y as x
    Raises    ShapeError if x has no such axis, shapes differ, or for an unknown kind; IndexError for an index out of
              range
    Source    ONNX operator ScatterElements
    """
    axis = fitting(x.shape, index.shape, updates.shape, axis, kind)
    index = wrapIndex.reference(index, x.shape[axis])
    grid = np.ogrid[tuple([slice(m) for m in index.shape])]
    key = np.broadcast_arrays(*[index if a == axis else grid[a] for a in range(x.ndim)])
    y = np.array(x, order="C")
    flat, positions = y.reshape(-1), np.ravel_multi_index(key, x.shape).reshape(-1) if index.size else []
    if kind == "set":
        flat[positions] = updates.reshape(-1)
    elif index.size:
        KINDS[kind].at(flat, positions, updates.reshape(-1))  # five times faster flat than by axes
    return y


@putAlong.shape
def putAlong(x, index, updates, axis, kind="set"):
    """y as x."""
    fitting(x.shape, index.shape, updates.shape, axis, kind)
    return x.shape, x.dtype


@putAlong.bounds
def putAlong(x, index, updates, axis, kind="set"):
    """Each index is an element of the axis, counted from its start or its end."""
    n = x.shape[normalAxis(axis, len(x.shape))]
    return index, -n, n


@putAlong.flops
def putAlong(y, x, index, updates, axis, kind="set"):
    """An operation for each update, unless it replaces the element."""
    return 0 if kind == "set" else index.size


@putAlong.samples
def putAlong(x, index, updates, axis, kind="set"):
    """Along the axis that this is within a sample."""
    return putAlong(x, index, updates, normalAxis(axis, x.ndim - 1) + 1, kind)


@putAlong.cuda
def putAlong(y, x, index, updates, axis, kind="set"):
    """A copy of x; then a thread takes the updates of a line in order, or where there are few lines a warp does.

    16-bit floats are computed in float32 and rounded once. An index out of range writes nothing: no kernel can raise.
    """
    isKnown = index.dtype.kind in "iu" and None not in map(stored, (x.dtype, updates.dtype))
    if not isKnown or not areAlike(y, x) or not areAlike(y, updates) or y.dtype == bool and kind != "set":
        return NotImplemented
    if not y.size:
        return []
    axis, wide = normalAxis(axis, len(x.shape)), computed(y.dtype)
    isNarrow = wide != stored(y.dtype)
    total = Scratch(y.shape, np.float32) if isNarrow else y
    steps = [stridesOf(array) for array in (total, index, updates)]
    sizes = [("long", steps[i][axis]) for i in range(3)]
    others = [(*s[:axis], *s[axis + 1 :]) for s in (index.shape, *steps)]
    lines = axesOf(others[0], dict(zip(("to", "fromIndex", "fromUpdates"), others[1:])))
    elements = axesOf(y.shape, {"toTotal": stridesOf(total), "fromX": stridesOf(x), "toY": stridesOf(y)})
    names = {"T": stored(y.dtype), "S": stored(x.dtype), "I": stored(index.dtype), "U": stored(updates.dtype)}
    text = defined({**names, "W": wide, "How": JOINS[kind]}) + lines.defined("LINES") + elements.defined("AXES")
    text += read("putalong.h")
    held, block = ("pointer", total), (THREADS, 1, 1)
    size = (("long", y.size), *elements.slots)
    launches = [Launch("putAlong", text, "putStart", (held, ("pointer", x), *size), gridFor(y.size), block)]
    if index.size:
        count = lines.size
        isWarp = count < WAVE * WARP and index.shape[axis] > 1
        arrays = (held, ("pointer", index), ("pointer", updates))
        slots = (*arrays, ("long", count), ("long", index.shape[axis]), ("long", x.shape[axis]), *sizes, *lines.slots)
        entry, grid = ("putWarps", gridFor(count * WARP)) if isWarp else ("putLines", gridFor(count))
        launches.append(Launch("putAlong", text, entry, slots, grid, block))
    if isNarrow:
        launches.append(Launch("putAlong", text, "putEnd", (("pointer", y), held, *size), gridFor(y.size), block))
    return launches


putAlong.declare(halves=ANYFLOATS, sampled=(0, 1, 2))


def addAlong(g, index, axis, n):
    """dx[index[i]] += g[i] along an axis of length n, on zeros: the adjoint of reading by an index.

    Shapes    g (*a, m, *b), index the same or broadcast to it -> dx (*a, n, *b)
    """
    axis = normalAxis(axis, g.ndim)
    zeros = np.zeros_like(g, shape=(*g.shape[:axis], n, *g.shape[axis + 1 :]))
    return putAlong(zeros, np.broadcast_to(index, g.shape), g, axis, "add")


def readAlong(x, index, axis):
    """x at the index along an axis; along the others the index may be shorter than x.

    Shapes    x (*a, n, *b), index (*a, m, *b) or shorter -> y as the index
    """
    axis = normalAxis(axis, x.ndim)
    isShort = any(n != m for a, (n, m) in enumerate(zip(x.shape, index.shape)) if a != axis)
    part = tuple([slice(None) if a == axis else slice(m) for a, m in enumerate(index.shape)])
    return takeAlong(x[part] if isShort else x, index, axis)


def pointIndex(index, sizes):
    """The row-major position y[i] of the point index[i, 0], index[i, 1], ... in axes of these sizes.

    Shapes    index (*i, k) -> y (*i)
    Raises    IndexError for a coordinate that is out of range
    """
    y = wrapIndex(index[..., 0], sizes[0])
    for k in range(1, len(sizes)):
        y = y * sizes[k] + wrapIndex(index[..., k], sizes[k])
    return y


def check(index, n):
    """Raise    IndexError unless all indices are from -n to n - 1."""
    if index.size and (index.min() < -n or index.max() >= n):
        raise IndexError(f"wanted indices from {-n} to {n - 1}, got {index.min()} to {index.max()}")


def alike(shape, index, axis):
    """The axis counted from the first.

    Raises    ShapeError if the index differs from x along others
    """
    axis = normalAxis(axis, len(shape))
    fits = len(index) == len(shape) and all(a == axis or n == m for a, (n, m) in enumerate(zip(shape, index)))
    need(fits, f"an index as x but along axis {axis}", [shape, index])
    return axis


def fitting(shape, index, updates, axis, kind):
    """The axis counted from the first.

    Raises    ShapeError if index and updates differ, are longer than x along other axes, or for an unknown kind
    """
    axis = normalAxis(axis, len(shape))
    if kind not in KINDS:
        raise ShapeError(Fault(f"one of {', '.join(KINDS)}", repr(kind), module="putAlong"))
    fits = len(index) == len(shape) and all(a == axis or m <= n for a, (n, m) in enumerate(zip(shape, index)))
    wanted = f"index and updates of one shape, no longer than x but along axis {axis}"
    need(fits and tuple(index) == tuple(updates), wanted, [shape, index, updates])
    return axis
