"""Transposes convolution weights from the users' order to channels last, and gradients back.

    y[k, t, c] = x[k, c, t]    and    y[k, c, t] = x[k, t, c],    where t is the tap of the window

All weights of the same dtypes are one launch: a table has their addresses, a block copies a chunk of one of them.
Elements that are read one after the other are a window apart, but those of a chunk are close, and stay in the cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any

from puregraph.ops.cuda.nests.multitensor import ROW, chunked
from puregraph.ops.cuda.runtime.launch import THREADS, Launch, isContiguous
from puregraph.ops.cuda.runtime.preprocess import defined, stored

if TYPE_CHECKING:
    from types import NotImplementedType

    from puregraph.core.protocols import AnyArray

BLOCK_ELEMENTS = 4096  # elements that a block copies
INDEX32_LIMIT = 2**31  # number of elements from which on a 32-bit index overflows
FLOATS = ("float16", "bfloat16", "float32")


def transposed(xs: Sequence[AnyArray], ys: Sequence[Any]) -> list[Launch] | NotImplementedType:
    """The launches that copy each x (k, c, *window) into y of the same shape: one of the two is row-major, the other
    channels last. NotImplemented for weights of other dtypes."""
    groups: dict[Any, list[tuple[Any, Any, int, int]]] = {}
    for x, y in zip(xs, ys):
        if x.dtype.name not in FLOATS or y.dtype.name not in FLOATS or x.size >= INDEX32_LIMIT:
            return NotImplemented
        sizes = x.shape[1], prod(x.shape[2:])
        if x.size:
            outer, inner = sizes if isContiguous(y) else sizes[::-1]
            groups.setdefault((stored(x.dtype), stored(y.dtype)), []).append((x, y, outer, inner))
    return [launch(read, made, members) for (read, made), members in groups.items()]


def launch(read: str, made: str, members: Sequence[tuple[Any, Any, int, int]]) -> Launch:
    """The launch for weights of the same dtypes."""
    table, blocks = chunked([x.size for x, *_ in members], members, BLOCK_ELEMENTS)
    text = defined({"X": read, "Y": made, "CHUNK": BLOCK_ELEMENTS, "THREADS": THREADS}) + ROW + TRANSPOSE
    return Launch(
        "filters", text, "transpose", (("pointer", table), ("int", len(members))), (blocks, 1, 1), (THREADS, 1, 1)
    )


TRANSPOSE = """
extern "C" __global__ void __launch_bounds__(THREADS) transpose(const int64* __restrict__ table, int rows) {
  const int64* const row = rowOf(table, rows, 6);
  const X* const x = reinterpret_cast<const X*>(row[2]);
  Y* const y = reinterpret_cast<Y*>(row[3]);
  const unsigned outer = (unsigned)row[4], inner = (unsigned)row[5];
  const unsigned from = (unsigned)(blockIdx.x - row[0]) * CHUNK, to = (unsigned)min((int64)from + CHUNK, row[1]);
  for (unsigned i = from + threadIdx.x; i < to; i += THREADS) {
    const unsigned before = i / inner, b = i - before * inner, k = before / outer, a = before - k * outer;
    store(y, i, load(x, (int64)(k * inner + b) * outer + a));
  }
}
"""
