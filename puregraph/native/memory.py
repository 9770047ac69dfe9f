"""Memory from the system, aligned for vectors, and for large pages where it is large."""

from __future__ import annotations

import ctypes
import mmap
from contextlib import suppress

HUGE = 2 << 20


class Block:
    """Zeros at an address that is a multiple of a page, or of 2 MB where there are that many; freed with the object."""

    def __init__(self, size: int) -> None:
        isHuge = size >= HUGE
        unit = HUGE if isHuge else mmap.PAGESIZE
        self.size = max(-(-size // unit), 1) * unit
        self.map = private(self.size + (HUGE if isHuge else 0))
        self.start = ctypes.c_char.from_buffer(self.map)  # as long as this lives, the map cannot be closed
        address = ctypes.addressof(self.start)
        self.address = -(-address // unit) * unit
        if isHuge and hasattr(mmap, "MADV_HUGEPAGE"):
            with suppress(OSError):  # a system built without
                self.map.madvise(mmap.MADV_HUGEPAGE, self.address - address, self.size)


def private(size: int) -> mmap.mmap:
    """Memory that a forked process has a copy of."""
    if hasattr(mmap, "MAP_PRIVATE"):
        return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return mmap.mmap(-1, size)  # Windows knows no fork
