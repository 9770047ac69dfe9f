"""Packed arrays: what a stage sends to another one, with the order in which it is stored.

Sums over several axes depend, in their last bits, on that order: so a stage computes what it would with all others
around it.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from puregraph.ops.ir.strides import dense, storedOrder


def packed(array: np.ndarray) -> np.ndarray:
    """The bytes of an array as they are stored, and behind them its axes, the slowest first."""
    order = storedOrder(array) or tuple(range(array.ndim))
    stored = np.ascontiguousarray(array.transpose(order)).reshape(-1)
    return np.concatenate([stored.view(np.uint8), np.array(order, np.uint8)])


def blank(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Memory for a packed array of this shape."""
    return np.empty(math.prod(shape) * dtype.itemsize + len(shape), np.uint8)


def unpacked(data: np.ndarray, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """The array in packed bytes."""
    order = data[data.size - len(shape) :].tolist()
    return np.ndarray(shape, dtype, data, 0, dense(shape, order, dtype.itemsize))
