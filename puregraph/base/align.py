"""Align: arrays that begin at a cache line; vectors of others would be stored across two lines each."""

from __future__ import annotations

import math
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
    found = empty(array.shape, array.dtype, np.empty_like(array).strides)
    found[...] = array
    return found


def fitting(array: Any, dtype: Any) -> Any:
    """An array that nobody else has as memory for compiled code, which writes to it row by row: a view, or a copy.

    Arrays in memory that others have so have a base, and what a rule makes has mostly none.
    """
    if not isinstance(array, np.ndarray):
        isNumber = isinstance(array, np.generic)  # what arithmetic makes of an array without axes
        return ownCopy(array, dtype) if isNumber or array.dtype != dtype else array
    isFit = type(array) is np.ndarray and array.flags.carray and array.dtype == dtype
    return array.view() if isFit else ownCopy(array, dtype)


def ownCopy(array: Any, dtype: Any) -> Any:
    """The numbers of an array in new memory of its own, row by row, writeable and aligned, on the same device."""
    if not isinstance(array, (np.ndarray, np.generic)):
        return array.astype(dtype, order="C", copy=True)
    if dtype.hasobject:
        return np.array(array, dtype, order="C")
    found = empty(array.shape, dtype)
    np.copyto(found, array, casting="unsafe")
    return found


def empty(shape: tuple[int, ...], dtype: Any, strides: Any = None) -> Any:
    """A new array that begins where a line of the cache does."""
    size = math.prod(shape) * dtype.itemsize
    room = np.empty(size + LINE, np.uint8)
    return np.ndarray(shape, dtype, room, -room.ctypes.data % LINE, strides)


def readOnly(array: Any) -> Any:
    """An array of numpy through which nobody can write; anything else as it is."""
    if type(array) is not np.ndarray:
        return array
    found = array.view()
    found.flags.writeable = False
    return found


def addressOf(array: Any) -> int:
    """The address of the first element of an array."""
    return int(array.__array_interface__["data"][0])
