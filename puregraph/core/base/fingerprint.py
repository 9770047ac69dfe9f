"""Fingerprint: a checksum of an array, to detect that it was modified."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np

SUM_LANES = 509  # a prime, so that swapped elements are mostly in different sums
MAX_PLAIN_CHECKSUM_BYTES = 1 << 14  # bytes up to which one checksum is fastest


def fingerprint(x: Any) -> int | None:
    """A checksum that changes with the array's contents; collisions have a chance of 1 in 2^32.

    None for values that are no numpy arrays, and arrays of objects. Long arrays are summed as integers in `SUM_LANES`
    sums, at memory bandwidth.
    """
    if type(x) is not np.ndarray or x.dtype.hasobject:
        return None
    if x.nbytes <= MAX_PLAIN_CHECKSUM_BYTES:
        return zlib.crc32(x.tobytes())
    raw = np.ascontiguousarray(x).reshape(-1).view(np.uint8)
    words = raw[: len(raw) // 8 * 8].view(np.uint64)
    even = len(words) // SUM_LANES * SUM_LANES
    sums = np.add.reduce(words[:even].reshape(-1, SUM_LANES), axis=0)
    return zlib.crc32(raw[8 * even :].tobytes(), zlib.crc32(sums.tobytes()))
