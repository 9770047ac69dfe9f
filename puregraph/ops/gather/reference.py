"""Gather and scatter-add: reading rows and classes by index, and adding gradients back to where they were read."""

from __future__ import annotations

from math import prod

import numpy as np

from puregraph.core.base.widen import widened
from puregraph.ops.cuda.nests.axes import Axes, axesOf
from puregraph.ops.cuda.nests.contiguous import packed
from puregraph.ops.cuda.runtime.launch import (
    PROCESSORS,
    THREADS,
    Launch,
    Scratch,
    blocksFor,
    gridFor,
    isContiguous,
    stridesOf,
    widest,
)
from puregraph.ops.cuda.runtime.preprocess import areFloats, computed, defined, read, stored
from puregraph.ops.kernel import ANYFLOATS, kernel


@kernel
def gather(table, index):
    """y[i] = table[index[i]], and zero where the index is -1.

    Shapes    table (rows, *width), index (any shape) -> y (*index.shape, *width)
    Raises    IndexError if an index is below -1 or not below rows
    """
    absent = check(index, len(table))
    if not len(table):
        return np.zeros((*index.shape, *table.shape[1:]), dtype=table.dtype)
    y = np.asarray(np.take(table, np.maximum(index, 0) if absent else index, axis=0))
    if absent:
        y[index < 0] = 0
    return y


@gather.shape
def gather(table, index):
    """y (*index.shape, *width)."""
    return (*index.shape, *table.shape[1:]), table.dtype


@gather.cuda
def gather(y, table, index):
    """A thread copies up to 16 bytes of a row at a time. An index out of range gives nan: no kernel can raise."""
    if not isContiguous(y) or not areAlike(y, table):
        return NotImplemented
    if not y.size:
        return []
    made, (table, index) = packed((table, index))
    width, elementSize = prod(table.shape[1:]), max(y.dtype.itemsize, table.dtype.itemsize)
    names = {"T": stored(y.dtype), "S": stored(table.dtype), "I": stored(index.dtype)}
    text = GATHER.format(**names, n=widest(width * elementSize) // elementSize, wrong=wrong(y.dtype))
    sizes = (("long", index.size), ("int", width), ("long", table.shape[0]))
    slots = (("pointer", y), ("pointer", table), ("pointer", index), *sizes)
    return [
        *made,
        Launch(
            "gather",
            text,
            "gather",
            slots,
            gridFor(y.size * elementSize // widest(width * elementSize)),
            (THREADS, 1, 1),
        ),
    ]


@gather.bounds
def gather(table, index):
    """Each index is a row, or -1."""
    return index, -1, table.shape[0]


@gather.adjoint
def gather(g, y, table, index):
    """Add the gradient to the rows that were read."""
    return scatterAdd(g, index, table.shape[0])


@gather.samples
def gather(table, index):
    """The rows of one table."""
    return gather(table, index)


gather.declare(halves=ANYFLOATS, sampled=(1,))


GATHER = """
template <int n>
__device__ static void move({T}* y, const {S}* table, const {I}* index, int64 count, int width, int64 rows) {{
  const int packs = width / n;
  const int64 step = (int64)gridDim.x * blockDim.x;
  for (int64 i = (int64)blockIdx.x * blockDim.x + threadIdx.x; i < count * packs; i += step) {{
    const int64 row = i / packs, from = index[row];
    const int at = (int)(i - row * packs) * n;
    Pack<{T}, n> pack = {{}};
    if (from >= 0 && from < rows) {{
      const Pack<{S}, n> got = loadPack<n>(table, from * width + at);
      for (int j = 0; j < n; j++) pack.at[j] = kept<{T}>(got.at[j]);
    }} else if (from != -1) {{
      for (int j = 0; j < n; j++) pack.at[j] = {wrong};
    }}
    storePack(y, row * width + at, pack);
  }}
}}
extern "C" __global__ void gather({T}* __restrict__ y, const {S}* __restrict__ table, const {I}* __restrict__ index,
                                  int64 count, int width, int64 rows) {{
  if (isAligned(y, sizeof({T}) * {n}) && isAligned(table, sizeof({S}) * {n}))
    move<{n}>(y, table, index, count, width, rows);
  else
    move<1>(y, table, index, count, width, rows);
}}
"""


def areAlike(x, y):
    """True if elements of one array can be stored in the other: their dtypes are equal, or both are floats."""
    return x.dtype == y.dtype or areFloats(x, y)


def wrong(dtype):
    """The C expression of what an index out of range gives: nan in a float dtype, else 0."""
    kind = stored(dtype)
    return f"Number<{kind}>::narrow({'NAN' if kind in ('Half', 'Bfloat', 'float', 'double') else '0'})"


@kernel
@widened
def scatterAdd(grad, index, rows):
    """The adjoint of `gather`: dtable[index[i]] += grad[i], for all i in order; an index of -1 adds nothing.

    Shapes    grad (*index.shape, *width), index (any shape) -> dtable (rows, *width)
    Raises    IndexError if an index is below -1 or not below rows
    """
    width = grad.shape[index.ndim :]
    size = prod(width)
    grad, index = grad.reshape(index.size, size), index.reshape(-1)
    if check(index, rows):
        grad, index = grad[index >= 0], index[index >= 0]
    table = np.zeros(rows * size, dtype=grad.dtype)
    flat = index.astype(np.intp)[:, None] * size + np.arange(size)
    np.add.at(table, flat.reshape(-1), grad.reshape(-1))  # five times faster flat than by rows
    return table.reshape(rows, *width)


@scatterAdd.shape
def scatterAdd(grad, index, rows):
    """dtable (rows, *width)."""
    return (rows, *grad.shape[index.ndim :]), grad.dtype


@scatterAdd.cuda
def scatterAdd(dtable, grad, index, rows):
    """Sort the positions by row; sum windows of them; add the partial sums of rows that span windows.

    Indices out of range add nothing.
    """
    return scattered(dtable, None, grad, index, rows)


def scattered(dtable, base, grad, index, rows):
    """The launches of dtable = base + scatterAdd(grad, index, rows); base may be dtable itself, None is for zeros."""
    lead, count = len(index.shape), index.size
    width = prod(grad.shape[lead:])
    inner = axesOf(grad.shape[lead:], {"x": stridesOf(grad)[lead:]})
    if not isContiguous(dtable) or len(inner.shape) > 1 or count >= 1 << 31:
        return NotImplemented
    if not areFloats(dtable, grad) or not (base is None or isContiguous(base) and base.dtype == dtable.dtype):
        return NotImplemented
    if not dtable.size:
        return []
    where = axesOf(index.shape, {"fromIndex": stridesOf(index)})
    rowsOf = axesOf(index.shape, {"fromGrad": stridesOf(grad)[:lead]})
    total = "double" if "double" in (computed(grad.dtype), computed(dtable.dtype)) else "float"
    step, elementSize = inner.strides["x"][0] if inner.size > 1 else 1, max(grad.dtype.itemsize, dtable.dtype.itemsize)
    n = (
        widest(width * elementSize, *(s * elementSize for s in rowsOf.strides["fromGrad"])) // elementSize
        if step == 1
        else 1
    )
    window = WINDOW if count * width // n > MIN_BUSY_ADDITIONS else WINDOW // 4
    share = min(max(blocksFor(rows, 2 * PROCESSORS), 32), RANGE)
    names = {"T": stored(dtable.dtype), "S": stored(grad.dtype), "I": stored(index.dtype), "W": total, "N": n}
    names |= {} if base is None else {"BASE": 1}
    text = defined(names) + where.defined("INDEX") + rowsOf.defined("GRAD") + read("scatter.h")

    order, keys = [("pointer", Scratch((max(count, 1),), np.int32)) for _ in range(2)]
    parts = ("pointer", Scratch((2 * blocksFor(count, window), width), "f8" if total == "double" else "f4"))
    table, grads, indices = [("pointer", x) for x in (dtable, grad, index)]
    size = {"count": ("int", count), "width": ("int", width), "window": ("int", window)}
    start = [] if base is None else [("pointer", base)]
    sort = (
        order,
        keys,
        table,
        *start,
        indices,
        size["count"],
        ("int", rows),
        size["width"],
        ("int", share),
        *where.slots,
    )
    launches = [Launch("scatterAdd", text, "sortRows", sort, (blocksFor(rows, share), 1, 1), (2 * THREADS, 1, 1))]
    if count:
        add = (table, parts, order, keys, grads, *size.values(), ("int", step), *rowsOf.slots)
        join = (table, parts, keys, *size.values())
        work = blocksFor(count, window) * width
        launches.append(Launch("scatterAdd", text, "sumRows", add, gridFor(work // n), (THREADS, 1, 1)))
        launches.append(Launch("scatterAdd", text, "joinRows", join, (blocksFor(work, THREADS), 1, 1), (THREADS, 1, 1)))
    return launches


@scatterAdd.bounds
def scatterAdd(grad, index, rows):
    """Each index is a row, or -1."""
    return index, -1, rows


@scatterAdd.adjoint
def scatterAdd(g, dtable, grad, index):
    """The gradient's rows that were added to."""
    return gather(g, index)


@scatterAdd.samples
def scatterAdd(grad, index, rows):
    """One table for each sample, computed as a single table with separate rows for each."""
    n = len(grad)
    first = (np.cumsum(np.ones_like(index, shape=(n,))) - 1).reshape(n, *(1,) * (index.ndim - 1)) * rows
    dtable = scatterAdd(grad, np.where(index < 0, -1, index + first), n * rows)
    return dtable.reshape(n, rows, *dtable.shape[1:])


scatterAdd.declare(halves=ANYFLOATS, sampled=(0, 1))


RANGE = 4096  # rows whose positions one block sorts
WINDOW = 32  # positions that one thread sums
MIN_BUSY_ADDITIONS = 1 << 22  # with fewer additions, windows are a quarter as long, so that there are more threads


@kernel
def addAt(values, index, size):
    """y[i, index[i, a]] += values[i, a], on zeros, for all a in order; an index of -1 adds nothing.

    Shapes    values, index (rows, count) -> y (rows, size)
    """
    if index.size and index.min() < 0:
        values, index = np.where(index < 0, values.dtype.type(0), values), np.maximum(index, 0)
    y = np.zeros((len(values), size), dtype=values.dtype)
    flat = index + np.arange(len(values), dtype=np.intp)[:, None] * size
    np.add.at(y.reshape(-1), flat.reshape(-1), values.reshape(-1))  # takes numpy's fast path only flat
    return y


@addAt.shape
def addAt(values, index, size):
    """y (rows, size)."""
    return (values.shape[0], size), values.dtype


@addAt.cuda
def addAt(y, values, index, size):
    """A warp computes a row; values for the same index are added one after the other, in order."""
    if not isContiguous(y) or not areAlike(y, values):
        return NotImplemented
    if not y.size:
        return []
    made, (values, index) = packed((values, index))
    rows, count = index.shape
    text = defined({"T": stored(y.dtype), "S": stored(values.dtype), "I": stored(index.dtype)}) + ADD
    sizes = (("int", rows), ("int", count), ("int", size))
    slots = (("pointer", y), ("pointer", values), ("pointer", index), *sizes)
    return [*made, Launch("addAt", text, "addAt", slots, (blocksFor(rows, 8), 1, 1), (THREADS, 1, 1))]


@addAt.adjoint
def addAt(g, y, values, index):
    """The gradient at the positions that were added to."""
    return valuesAt(g, index)


def valuesAt(x, index):
    """x[i, index[i, a]], and zero where the index is -1."""
    return np.where(index < 0, 0, np.take_along_axis(x, np.maximum(index, 0), 1))


addAt.declare(halves=ANYFLOATS)


ADD = """
extern "C" __global__ void addAt(T* y, const S* __restrict__ values, const I* __restrict__ index, int rows, int count,
                                 int size) {
  const int lane = threadIdx.x & 31;
  const int64 row = (int64)blockIdx.x * 8 + (threadIdx.x >> 5);
  if (row >= rows) return;
  T* const to = y + row * size;
  for (int i = lane; i < size; i += 32) to[i] = T();
  __syncwarp();
  for (int start = 0; start < count; start += 32) {
    const bool isThere = start + lane < count;
    const int64 at = isThere ? (int64)index[row * count + start + lane] : -1;
    const int column = at >= 0 && at < size ? (int)at : -1;
    const int ahead = __popc(__match_any_sync(ALL, column) & ((1u << lane) - 1));
    for (int turn = 0; __any_sync(ALL, column >= 0 && ahead >= turn); turn++) {
      if (column >= 0 && ahead == turn) store(to, column, load(to, column) + load(values, row * count + start + lane));
      __syncwarp();
    }
  }
}
"""


@kernel
def takeClass(x, labels):
    """y[n, *s] = x[n, labels[n, *s], *s], and zero where the label is -1.

    Shapes    x (n, classes, *spatial), labels (n, *spatial) -> y (n, *spatial)
    Raises    IndexError if a label is below -1 or not below classes
    """
    absent = check(labels, x.shape[1])
    index = np.maximum(labels, 0) if absent else labels
    if not x.shape[1]:
        return np.zeros(labels.shape, dtype=x.dtype)
    y = np.take_along_axis(x, index[:, None].astype(np.intp), axis=1)[:, 0]
    return np.where(labels < 0, x.dtype.type(0), y) if absent else np.ascontiguousarray(y)


@takeClass.shape
def takeClass(x, labels):
    """y as the labels."""
    return labels.shape, x.dtype


@takeClass.cuda
def takeClass(y, x, labels):
    """A thread a label. A label out of range gives nan: no kernel can raise."""
    if not areAlike(y, x):
        return NotImplemented
    if not y.size:
        return []
    (n, step, *rest) = stridesOf(x)
    axes = axesOf(y.shape, {"to": stridesOf(y), "fromX": (n, *rest), "fromLabels": stridesOf(labels)})
    names = {"T": stored(y.dtype), "S": stored(x.dtype), "I": stored(labels.dtype), "WRONG": wrong(y.dtype)}
    text = defined(names) + axes.defined("AXES") + TAKE
    sizes = (("long", y.size), ("long", x.shape[1]), ("long", step))
    slots = (("pointer", y), ("pointer", x), ("pointer", labels), *sizes, *axes.slots)
    return [Launch("takeClass", text, "takeClass", slots, gridFor(y.size), (THREADS, 1, 1))]


@takeClass.bounds
def takeClass(x, labels):
    """Each label is a class, or -1."""
    return labels, -1, x.shape[1]


@takeClass.adjoint
def takeClass(g, y, x, labels):
    """Put the gradient at the classes that were read."""
    return putClass(g, labels, x.shape[1])


takeClass.declare(halves=ANYFLOATS)


TAKE = """
extern "C" __global__ void takeClass(T* __restrict__ y, const S* __restrict__ x, const I* __restrict__ labels,
                                     int64 count, int64 classes, int64 step, AXES_PARAMETERS) {
  for (AXES_COUNTER i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
    AXES_OFFSETS
    const int64 label = labels[fromLabels];
    y[to] = label >= 0 && label < classes ? kept<T>(x[fromX + label * step]) : label == -1 ? T() : WRONG;
  }
}
"""


@kernel
def putClass(values, labels, classes):
    """The adjoint of `takeClass`: dx[n, labels[n, *s], *s] = values[n, *s], zero elsewhere; -1 puts nothing.

    Shapes    values, labels (n, *spatial) -> dx (n, classes, *spatial)
    Raises    IndexError if a label is below -1 or not below classes
    """
    if check(labels, classes):
        values, labels = np.where(labels < 0, values.dtype.type(0), values), np.maximum(labels, 0)
    dx = np.zeros((len(values), classes, *values.shape[1:]), dtype=values.dtype)
    if classes:
        np.put_along_axis(dx, labels[:, None].astype(np.intp), values[:, None], axis=1)
    return dx


@putClass.shape
def putClass(values, labels, classes):
    """dx (n, classes, *spatial)."""
    return (values.shape[0], classes, *values.shape[1:]), values.dtype


@putClass.cuda
def putClass(dx, values, labels, classes):
    """A thread writes up to 16 bytes at a time. A label out of range writes nothing."""
    if not areAlike(dx, values):
        return NotImplemented
    if not dx.size:
        return []
    sources = {"values": stridesOf(values), "labels": stridesOf(labels)}
    across = {f"from{name.title()}": (s[0], 0, *s[1:]) for name, s in sources.items()}
    axes = axesOf(dx.shape, {"to": stridesOf(dx), **across, "number": (0, 1, *(0 for _ in values.shape[1:]))})
    last = {name: s[-1] for name, s in axes.strides.items()}
    size = dx.dtype.itemsize
    n = widest(axes.shape[-1] * size, *(s * size for s in axes.strides["to"][:-1])) // size if last["to"] == 1 else 1
    strides = {name: (*s[:-1], s[-1] * n) for name, s in axes.strides.items()}
    packs = Axes((*axes.shape[:-1], axes.shape[-1] // n), strides)
    text = defined({"T": stored(dx.dtype), "S": stored(values.dtype), "I": stored(labels.dtype), "N": n})
    text += packs.defined("AXES") + PUT
    inner = [("long", last[name]) for name in (*across, "number")]
    slots = (("pointer", dx), ("pointer", values), ("pointer", labels), ("long", packs.size), *inner, *packs.slots)
    return [Launch("putClass", text, "putClass", slots, gridFor(packs.size), (THREADS, 1, 1))]


@putClass.bounds
def putClass(values, labels, classes):
    """Each label is a class, or -1."""
    return labels, -1, classes


@putClass.adjoint
def putClass(g, y, values, labels):
    """The gradient at the classes that were written."""
    return takeClass(g, labels)


putClass.declare(halves=ANYFLOATS)


PUT = """
extern "C" __global__ void putClass(T* __restrict__ dx, const S* __restrict__ values, const I* __restrict__ labels,
                                    int64 count, int64 valueStep, int64 labelStep, int64 step, AXES_PARAMETERS) {
  const bool isWide = isAligned(dx, sizeof(T) * N);
  for (AXES_COUNTER i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
    AXES_OFFSETS
    Pack<T, N> pack = {};
    for (int j = 0; j < N; j++)
      if (labels[fromLabels + j * labelStep] == number + j * step)
        pack.at[j] = kept<T>(values[fromValues + j * valueStep]);
    if (isWide)
      storePack(dx, to, pack);
    else
      for (int j = 0; j < N; j++) dx[to + j] = pack.at[j];
  }
}
"""


def check(index, limit):
    """True if some index is -1; raises IndexError unless all are in -1 .. limit - 1."""
    if not index.size:
        return False
    low, high = index.min(), index.max()
    if low < -1 or high >= limit:
        wrong = low if low < -1 else high
        raise IndexError(f"wanted indices from 0 to {limit - 1}, or -1 for none, got {wrong}; check how they are made")
    return bool(low < 0)
