"""Writes in place: rows of new elements, stored in a State at positions that are data."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from puregraph.core.device import toHost
from puregraph.ops.cuda.runtime.launch import THREADS, Launch, gridFor, isContiguous, stridesOf
from puregraph.ops.cuda.runtime.preprocess import areFloats, stored
from puregraph.ops.kernel import kernel

if TYPE_CHECKING:
    from puregraph.core.protocols import AnyArray


@kernel
def writeAt(cache: AnyArray, rows: AnyArray, offset: AnyArray) -> AnyArray:
    """cache[n, h, offset[n] + i] = rows[n, h, i]; positions outside the cache are left out. Returns the cache.

    The cache is written in place and must be a State of the rule that calls this. A compiled step writes only the rows.

    Shapes    cache (n, h, s, d), rows (n, h, t, d), offset (n,) integers
    """
    length, count = cache.shape[2], rows.shape[2]
    for sample, start in enumerate(np.asarray(toHost(offset)).tolist()):
        low, high = max(start, 0), min(start + count, length)
        if low < high:
            cache[sample, :, low:high] = rows[sample, :, low - start : high - start]
    return cache


@writeAt.shape
def writeAt(cache, rows, offset):
    """The cache."""
    return cache.shape, cache.dtype


@writeAt.cuda
def writeAt(y, cache, rows, offset):
    """A thread writes single elements; y is the cache."""
    if not isContiguous(y) or not areAlike(y, rows) or offset.dtype.name not in ("int32", "int64"):
        return NotImplemented
    if not rows.size or not y.size:
        return []
    names = {"T": stored(y.dtype), "S": stored(rows.dtype), "I": stored(offset.dtype)}
    sizes = [("int", n) for n in (y.shape[1], y.shape[2], y.shape[3], rows.shape[2])]
    steps = [("long", step) for step in (*stridesOf(rows), *stridesOf(offset))]
    slots = (("pointer", y), ("pointer", rows), ("pointer", offset), ("long", rows.size), *sizes, *steps)
    return [Launch("writeAt", WRITE.format(**names), "writeAt", slots, gridFor(rows.size), (THREADS, 1, 1))]


WRITE = """
extern "C" __global__ void writeAt({T}* __restrict__ y, const {S}* __restrict__ rows, const {I}* __restrict__ offset,
                                   int64 count, int heads, int length, int width, int added, int64 bySample,
                                   int64 byHead, int64 byRow, int64 byColumn, int64 byOffset) {{
  const int64 step = (int64)gridDim.x * blockDim.x;
  for (int64 i = (int64)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {{
    const int column = (int)(i % width), row = (int)(i / width % added);
    const int64 group = i / width / added, sample = group / heads, head = group - sample * heads;
    const int64 at = (int64)offset[sample * byOffset] + row;
    if (at >= 0 && at < length)
      y[(group * length + at) * width + column] =
          kept<{T}>(rows[sample * bySample + head * byHead + row * byRow + column * byColumn]);
  }}
}}
"""


@writeAt.device
def writeAt(cache, rows, offset):
    """The reference, which also runs on CuPy's arrays; the offsets are read on the host."""
    return writeAt.reference(cache, rows, offset)


def areAlike(x, y):
    """True if elements of one array can be stored in the other."""
    return x.dtype == y.dtype or areFloats(x, y)


@writeAt.flops
def writeAt(y, cache, rows, offset):
    """No arithmetic."""
    return 0


writeAt.declare(updates=True)
