"""Multi-tensor launches: one launch for any number of arrays, divided into chunks of one block each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from puregraph.ops.cuda.runtime.launch import PointerTable, blocksFor

ROW = """
// The row of a table that a block works on: the last whose first block, entry 0, is not behind it
__device__ static inline const int64* rowOf(const int64* table, int rows, int columns) {
  int low = 0, high = rows - 1;
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (table[(int64)middle * columns] <= blockIdx.x)
      low = middle;
    else
      high = middle - 1;
  }
  return table + (int64)low * columns;
}
"""


def chunked(sizes: Sequence[int], whats: Sequence[Sequence[Any]], chunk: int) -> tuple[PointerTable, int]:
    """A table with a row for each array: its first block, its size, and `whats`; and the number of blocks.

    Arrays must not be empty, for their chunks would start where the next one's do.
    """
    rows, blocks = [], 0
    for size, pointers in zip(sizes, whats):
        rows.append((blocks, size, *pointers))
        blocks += blocksFor(size, chunk)
    return PointerTable(rows), blocks
