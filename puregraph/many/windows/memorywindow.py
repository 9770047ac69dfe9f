"""MemoryWindow: memory of each process that all others read without its help."""

from __future__ import annotations

from typing import Any

import numpy as np


class MemoryWindow:
    """An array of each process, of a length of its own; this one is alone.

    Whoever writes to `own` sees to it that nobody reads meanwhile, and that all know: `world.barrier()` does both.
    """

    def __init__(self, size: int, dtype: np.dtype):
        self.own: Any = np.zeros(size, dtype)

    def read(self, rank: int, begin: int, into: np.ndarray) -> None:
        """Fill an array with the elements of process `rank` from `begin` on."""
        into[...] = self.own[begin : begin + into.size]

    def close(self) -> None:
        """Give the memory back; all processes call it, and nobody reads any more."""
        self.own = np.zeros(0, self.own.dtype)
