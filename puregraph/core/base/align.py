"""Align: arrays that begin at a cache line, so that no vector store crosses two lines."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

CACHE_LINE_BYTES = 64  # bytes
BANDWIDTH_BOUND_BYTES = 1 << 26  # bytes; larger arrays are limited by memory bandwidth, whatever their alignment


def aligned(array: Any) -> Any:
    """The array if it starts at a cache line, is on a GPU, or is too large for that to matter; else an aligned copy.

    The copy keeps the memory order of the axes.
    """
    if (
        type(array) is not np.ndarray
        or array.ctypes.data % CACHE_LINE_BYTES == 0
        or array.nbytes > BANDWIDTH_BOUND_BYTES
        or array.dtype.hasobject
    ):
        return array
    copy = empty(array.shape, array.dtype, np.empty_like(array).strides)
    copy[...] = array
    return copy


def fitting(array: Any, dtype: Any) -> Any:
    """Row-major memory that compiled code may write to, from an array that has no other owner: a view, or a copy.

    The view has a base, which distinguishes shared memory from a rule's new arrays, which mostly have none.
    """
    if not isinstance(array, np.ndarray):
        isNumber = isinstance(array, np.generic)  # arithmetic on arrays without axes gives numpy scalars
        return ownCopy(array, dtype) if isNumber or array.dtype != dtype else array
    isFit = type(array) is np.ndarray and array.flags.carray and array.dtype == dtype
    return array.view() if isFit else ownCopy(array, dtype)


def ownCopy(array: Any, dtype: Any) -> Any:
    """Copy an array to new memory on the same device: row-major, writeable and aligned."""
    if not isinstance(array, (np.ndarray, np.generic)):
        return array.astype(dtype, order="C", copy=True)
    if dtype.hasobject:
        return np.array(array, dtype, order="C")
    copy = empty(array.shape, dtype)
    np.copyto(copy, array, casting="unsafe")
    return copy


def empty(shape: tuple[int, ...], dtype: Any, strides: Any = None) -> Any:
    """Return a new array that begins at a cache line."""
    size = math.prod(shape) * dtype.itemsize
    room = np.empty(size + CACHE_LINE_BYTES, np.uint8)
    return np.ndarray(shape, dtype, room, -room.ctypes.data % CACHE_LINE_BYTES, strides)


def readOnly(array: Any) -> Any:
    """A read-only view of a numpy array; other values are returned unchanged."""
    if type(array) is not np.ndarray:
        return array
    view = array.view()
    view.flags.writeable = False
    return view


def addressOf(array: Any) -> int:
    """The address of the first element of an array."""
    return int(array.__array_interface__["data"][0])
