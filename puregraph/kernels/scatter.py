"""Scatter: reading rows and classes by index, and adding gradients back to where they were read."""

from __future__ import annotations

from math import prod

import numpy as np

from puregraph.cuda.copy import packed
from puregraph.cuda.launch import THREADS, Launch, isContiguous, spread, widest
from puregraph.cuda.source import stored
from puregraph.kernel import kernel
from puregraph.kernels.widen import widened


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
    """A thread moves up to 16 bytes of a row at a time."""
    if not isContiguous(y):
        return NotImplemented
    if not y.size:
        return []
    made, (table, index) = packed((table, index))
    width = prod(table.shape[1:])
    n = widest(width * y.dtype.itemsize) // y.dtype.itemsize
    text = GATHER.format(T=stored(y.dtype), I=stored(index.dtype), n=n)
    slots = (("pointer", y), ("pointer", table), ("pointer", index), ("long", index.size), ("int", width))
    return [*made, Launch("gather", text, "gather", slots, spread(y.size // n), (THREADS, 1, 1))]


GATHER = """
template <int n>
__device__ static void move({T}* y, const {T}* table, const {I}* index, int64 count, int width) {{
  const int packs = width / n;
  const int64 step = (int64)gridDim.x * blockDim.x;
  for (int64 i = (int64)blockIdx.x * blockDim.x + threadIdx.x; i < count * packs; i += step) {{
    const int64 row = i / packs, from = index[row];
    const int at = (int)(i - row * packs) * n;
    Pack<{T}, n> pack = {{}};
    if (from >= 0) pack = loadPack<n>(table, from * width + at);
    storePack(y, row * width + at, pack);
  }}
}}
extern "C" __global__ void gather({T}* __restrict__ y, const {T}* __restrict__ table, const {I}* __restrict__ index,
                                  int64 count, int width) {{
  if (isAligned(y, sizeof({T}) * {n}) && isAligned(table, sizeof({T}) * {n}))
    move<{n}>(y, table, index, count, width);
  else
    move<1>(y, table, index, count, width);
}}
"""


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
    places = index.astype(np.intp)[:, None] * size + np.arange(size)
    np.add.at(table, places.reshape(-1), grad.reshape(-1))  # five times faster flat than by rows
    return table.reshape(rows, *width)


@scatterAdd.shape
def scatterAdd(grad, index, rows):
    """dtable (rows, *width)."""
    return (rows, *grad.shape[index.ndim :]), grad.dtype


@kernel
def addAt(values, index, size):
    """y[i, index[i, a]] += values[i, a], on zeros, for all a in order; an index of -1 adds nothing.

    Shapes    values, index (rows, count) -> y (rows, size)
    """
    if index.size and index.min() < 0:
        values, index = np.where(index < 0, values.dtype.type(0), values), np.maximum(index, 0)
    y = np.zeros((len(values), size), dtype=values.dtype)
    places = index + np.arange(len(values), dtype=np.intp)[:, None] * size
    np.add.at(y.reshape(-1), places.reshape(-1), values.reshape(-1))  # takes numpy's fast path only flat
    return y


@addAt.shape
def addAt(values, index, size):
    """y (rows, size)."""
    return (values.shape[0], size), values.dtype


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


def check(index, limit):
    """Whether some index is -1; an IndexError unless all lie in -1 .. limit - 1."""
    if not index.size:
        return False
    low, high = index.min(), index.max()
    if low < -1 or high >= limit:
        wrong = low if low < -1 else high
        raise IndexError(f"wanted indices from 0 to {limit - 1}, or -1 for none, got {wrong}; check how they are made")
    return bool(low < 0)
