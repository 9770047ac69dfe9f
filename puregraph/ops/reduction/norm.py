"""The Euclidean norm of many arrays taken together."""

from __future__ import annotations

from typing import Any

import numpy as np

from puregraph.core.base.widen import widen
from puregraph.ops.cuda.nests.axes import axesOf
from puregraph.ops.cuda.nests.multitensor import ROW, chunked
from puregraph.ops.cuda.runtime.launch import THREADS, WAVE, Launch, Scratch, blocksFor, isDense, stridesOf
from puregraph.ops.cuda.runtime.preprocess import computed, defined, stored
from puregraph.ops.kernel import READSFLOATS, kernel


@kernel
def norm(*arrays):
    """y = sqrt(sum x^2) over all elements of all arrays, one array after the other, accumulated in float64.

    Shapes    any -> y ()
    """
    with np.errstate(all="ignore"):
        return np.sqrt(sum(np.vdot(x, x).astype(np.float64) for x in map(widen, arrays)))


@norm.shape
def norm(*arrays):
    """A scalar in float64."""
    return (), np.dtype(np.float64)


@norm.cuda
def norm(y, *arrays):
    """A thread block sums a chunk of one array, with a launch per dtype; the last launch adds the parts."""
    if any(computed(x.dtype) not in ("float", "double") for x in arrays):
        return NotImplemented
    arrays = tuple(x for x in arrays if x.size)
    chunk = max(blocksFor(blocksFor(sum(x.size for x in arrays), 2 * WAVE), 4096) * 4096, MIN_CHUNK_ELEMENTS)
    groups: dict[Any, list[Any]] = {}
    for x in arrays:  # without gaps elements may be summed in the order of memory
        groups.setdefault(stored(x.dtype) if isDense(x) else id(x), []).append(x)
    parts = Scratch((max(sum(blocksFor(x.size, chunk) for x in arrays), 1),), np.float64)
    launches, done = [], 0
    for group in groups.values():
        x, text = group[0], defined({"T": stored(group[0].dtype), "N": 16 // group[0].dtype.itemsize})
        slots: tuple[tuple[str, Any], ...] = (("pointer", parts), ("int", done), ("long", chunk))
        if isDense(x):
            table, blocks = chunked([x.size for x in group], [(x,) for x in group], chunk)
            text += ROW + SQUARES
            slots += (("pointer", table), ("int", len(group)))
        else:
            axes, blocks = axesOf(x.shape, {"at": stridesOf(x)}), blocksFor(x.size, chunk)
            text += axes.defined("AXES") + GAPS
            slots += (("pointer", x), ("long", x.size), *axes.slots)
        launches.append(Launch("norm", text, "squares", slots, (blocks, 1, 1), (THREADS, 1, 1)))
        done += blocks
    slots = (("pointer", y), ("pointer", parts), ("int", done))
    return [*launches, Launch("norm", ROOT, "root", slots, (1, 1, 1), (THREADS, 1, 1))]


MIN_CHUNK_ELEMENTS = 1 << 14
SQUARES = """
extern "C" __global__ void __launch_bounds__(256)
    squares(double* __restrict__ parts, int first, int64 chunk, const int64* __restrict__ table, int rows) {
  const int64* const row = rowOf(table, rows, 3);
  const T* const x = reinterpret_cast<const T*>(row[2]);
  const int64 from = (blockIdx.x - row[0]) * chunk, to = min(from + chunk, row[1]);
  const int64 even = isAligned(x, 16) ? from + (to - from) / N * N : from;
  double sum = 0;
  for (int64 i = from + threadIdx.x * N; i < even; i += 256 * N) {
    const Pack<T, N> pack = loadPack<N>(x, i);
#pragma unroll
    for (int j = 0; j < N; j++) {
      const double value = Number<T>::widen(pack.at[j]);
      sum += value * value;
    }
  }
  for (int64 i = even + threadIdx.x; i < to; i += 256) {
    const double value = load(x, i);
    sum += value * value;
  }
  sum = sumBlock(sum);
  if (threadIdx.x == 0) parts[first + blockIdx.x] = sum;
}
"""
GAPS = """
extern "C" __global__ void __launch_bounds__(256)
    squares(double* __restrict__ parts, int first, int64 chunk, const T* __restrict__ x, int64 size, AXES_PARAMETERS) {
  double sum = 0;
  const int64 from = blockIdx.x * chunk, to = min(from + chunk, size);
  for (AXES_COUNTER i = from + threadIdx.x; i < to; i += 256) {
    AXES_OFFSETS
    const double value = load(x, at);
    sum += value * value;
  }
  sum = sumBlock(sum);
  if (threadIdx.x == 0) parts[first + blockIdx.x] = sum;
}
"""
ROOT = """
extern "C" __global__ void __launch_bounds__(256)
    root(double* __restrict__ y, const double* __restrict__ parts, int count) {
  double sum = 0;
  for (int i = threadIdx.x; i < count; i += 256) sum += parts[i];
  sum = sumBlock(sum);
  if (threadIdx.x == 0) *y = sqrt(sum);
}
"""


@norm.device
def norm(*arrays):
    """The reference, which also runs on CuPy's arrays."""
    return norm.reference(*arrays)


norm.declare(halves=READSFLOATS)
