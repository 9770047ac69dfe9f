"""Memory as a library sees it: an address, a dtype and strides."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

STORAGE: dict[str, Any] = {
    "float64": np.float64,
    "float32": np.float32,
    "tf32": np.float32,
    "float16": np.float16,
    "bfloat16": np.uint16,
    "int64": np.int64,
    "bits": np.uint8,
}


def flat(array: np.ndarray, kind: str) -> np.ndarray:
    """All elements from the first of an array to its last in memory."""
    stored = np.dtype(STORAGE[kind])
    reach = sum((n - 1) * stride for n, stride in zip(array.shape, array.strides)) + array.itemsize
    if not array.size or array.itemsize != stored.itemsize or min(array.strides, default=0) < 0:
        raise ValueError(f"no memory of {kind}: {array.dtype} {array.shape} with strides {array.strides}")
    return as_strided(array.view(stored), (reach // array.itemsize,), (array.itemsize,))


def pick(elements: np.ndarray, shape: tuple[int, ...], strides: tuple[int, ...], start: int = 0) -> np.ndarray:
    """The elements from `start` on that a library reads for an array of this shape and these strides, in elements.

    Raises    IndexError if they are outside the memory
    """
    last = start + sum((n - 1) * stride for n, stride in zip(shape, strides))
    if last >= len(elements) or start < 0:
        raise IndexError(f"{shape} with strides {strides} from {start} on reaches number {last} of {len(elements)}")
    return as_strided(elements[start:], shape, [stride * elements.itemsize for stride in strides])


def load(stored: np.ndarray, kind: str) -> np.ndarray:
    """Stored elements in the dtype of computation: float32, or float64 for float64."""
    if kind == "bfloat16":
        return (stored.astype(np.uint32) << 16).view(np.float32)
    if kind == "tf32":
        return rounded(stored, 13)
    return stored.astype(np.float32 if kind == "float16" else stored.dtype)


def save(to: np.ndarray, values: np.ndarray, kind: str) -> None:
    """Store results, rounded to nearest."""
    if kind == "bfloat16":
        to[...] = rounded(values, 16).view(np.uint32) >> 16
    else:
        with np.errstate(over="ignore"):
            to[...] = values


def rounded(values: np.ndarray, bits: int) -> np.ndarray:
    """float32 rounded to nearest even, with zeros in its last bits."""
    floats = np.ascontiguousarray(values, dtype=np.float32)
    raw = floats.view(np.uint32)
    half = (raw >> bits & 1) + np.uint32((1 << bits - 1) - 1)
    near = (raw + half) >> bits << bits
    return np.where(np.isnan(floats), raw | np.uint32(1 << 22), near).view(np.float32)
