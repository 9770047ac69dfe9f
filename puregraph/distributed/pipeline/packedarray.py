"""Packed arrays: the bytes that one stage sends to another, with the memory order of the axes.

The last bits of sums over several axes depend on that order; with it, a stage computes the same bits as in the
undivided network.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from puregraph.ops.ir.strides import dense, storedOrder


def packed(array: np.ndarray) -> np.ndarray:
    """Return the bytes of an array in memory order, followed by its axes, the slowest first."""
    order = storedOrder(array) or tuple(range(array.ndim))
    stored = np.ascontiguousarray(array.transpose(order)).reshape(-1)
    return np.concatenate([stored.view(np.uint8), np.array(order, np.uint8)])


def blank(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Return uninitialized memory for a packed array of this shape."""
    return np.empty(math.prod(shape) * dtype.itemsize + len(shape), np.uint8)


def unpacked(data: np.ndarray, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Return the array in packed bytes, as a view."""
    order = data[data.size - len(shape) :].tolist()
    return np.ndarray(shape, dtype, data, 0, dense(shape, order, dtype.itemsize))
