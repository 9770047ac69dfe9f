"""Aligned: arrays that begin where a line of the cache does; vectors of others lie in two lines each."""

from __future__ import annotations

from typing import Any

import numpy as np

LINE = 64  # bytes
LARGE = 1 << 26  # bytes, which come from memory, slower than vectors are read


def aligned(array: Any) -> Any:
    """The array itself if it begins so, is on a GPU, or is too large for that to matter; else a copy that does.

    The copy has its axes in the same order in memory.
    """
    if type(array) is not np.ndarray or array.ctypes.data % LINE == 0 or array.nbytes > LARGE or array.dtype.hasobject:
        return array
    room = np.empty(array.nbytes + LINE, np.uint8)
    start = -room.ctypes.data % LINE
    found = np.ndarray(array.shape, array.dtype, room, start, np.empty_like(array).strides)
    found[...] = array
    return found


def addressOf(array: Any) -> int:
    """Where the first number of an array lies."""
    return int(array.__array_interface__["data"][0])
