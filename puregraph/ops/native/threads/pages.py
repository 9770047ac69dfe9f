"""Memory from the system, aligned for vectors, in huge pages where it is large."""

from __future__ import annotations

import ctypes
import mmap
from contextlib import suppress

HUGE_PAGE_BYTES = 2 << 20


class AlignedBlock:
    """Zeros at an address that is a multiple of a page, or of 2 MB where there are that many; freed with the object.

    Whole 2 MB of it are in huge pages; the rest is not.
    """

    def __init__(self, size: int) -> None:
        unit = HUGE_PAGE_BYTES if size >= HUGE_PAGE_BYTES else mmap.PAGESIZE
        self.size = max(-(-size // mmap.PAGESIZE), 1) * mmap.PAGESIZE
        self.map = private(self.size + (HUGE_PAGE_BYTES if unit == HUGE_PAGE_BYTES else 0))
        self.start = ctypes.c_char.from_buffer(self.map)  # as long as this lives, the map cannot be closed
        address = ctypes.addressof(self.start)
        self.address = -(-address // unit) * unit
        if unit == HUGE_PAGE_BYTES and hasattr(mmap, "MADV_HUGEPAGE"):
            with suppress(OSError):  # a system built without
                self.map.madvise(mmap.MADV_NOHUGEPAGE)
                self.map.madvise(
                    mmap.MADV_HUGEPAGE, self.address - address, self.size // HUGE_PAGE_BYTES * HUGE_PAGE_BYTES
                )


def private(size: int) -> mmap.mmap:
    """Memory that a forked process has a copy of.

    Raises    MemoryError if there is not that much
    """
    flags = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}
    try:
        return mmap.mmap(-1, size, **flags)  # Windows knows no fork
    except OSError as error:
        raise MemoryError(f"there is no memory for {size:,} bytes: {error}") from error
