"""MemoryWindow: memory of each process that all others read without its help."""

from __future__ import annotations

from typing import Any

import numpy as np


class MemoryWindow:
    """An array that other processes can read, of any length per process; here for a single process.

    Call `world.barrier()` before and after writing to `own`, so that no other process reads meanwhile.
    """

    def __init__(self, size: int, dtype: np.dtype):
        self.own: Any = np.zeros(size, dtype)

    def read(self, rank: int, begin: int, into: np.ndarray) -> None:
        """Fill an array with the elements of process `rank` from `begin` on."""
        into[...] = self.own[begin : begin + into.size]

    def close(self) -> None:
        """Free the memory. All processes call it, after their last read."""
        self.own = np.zeros(0, self.own.dtype)
