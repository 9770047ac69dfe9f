"""The block formats of GGUF, widened to float32 by numpy.

    q4_0 q5_0 q8_0   32 elements with one scale d:              d (q - 8), d (q - 16), d q
    q4_1 q5_1        and a minimum m:                            d q + m
    q2_k q4_k q5_k   256 elements in groups with small scales s and minima m of 4 or 6 bits:   d s q - e m
    q3_k q6_k        256 elements in groups of 16:               d s (q - 4), d s (q - 32)

d, m and e are float16, q are unsigned and of as many bits as the name says. Each function takes blocks as an array
(blocks, bytes) of uint8 and returns (blocks, elements) of float32; but for one sum all of its products are exact.

Source    the block structures of ggml (ggml-common.h), as the GGUF format names them
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np


def halfAt(blocks: np.ndarray, at: int) -> np.ndarray:
    """Return the float16 at a byte of every block, as a column of float32."""
    return np.ascontiguousarray(blocks[:, at : at + 2]).view("<f2").astype(np.float32)


def bitsOf(values: np.ndarray, shifts: list[int], mask: int) -> np.ndarray:
    """Return the bits of bytes (blocks, n) at several shifts, one after the other: (blocks, shifts, n)."""
    return values[:, None, :] >> np.array(shifts, np.uint8)[None, :, None] & mask


def nibbles(values: np.ndarray) -> np.ndarray:
    """Return the lower four bits of all bytes, then the upper ones, as (blocks, 2 n)."""
    return bitsOf(values, [0, 4], 15).reshape(len(values), -1)


def fifthBits(values: np.ndarray) -> np.ndarray:
    """Return the 32 bits of four bytes, each as 16 or 0."""
    return np.unpackbits(values, axis=1, bitorder="little") << 4


def q40(blocks: np.ndarray) -> np.ndarray:
    """Bytes: d, 16 of nibbles."""
    return halfAt(blocks, 0) * (nibbles(blocks[:, 2:]).astype(np.float32) - 8)


def q41(blocks: np.ndarray) -> np.ndarray:
    """Bytes: d, m, 16 of nibbles."""
    return halfAt(blocks, 0) * nibbles(blocks[:, 4:]).astype(np.float32) + halfAt(blocks, 2)


def q50(blocks: np.ndarray) -> np.ndarray:
    """Bytes: d, 4 of fifth bits, 16 of nibbles."""
    values = nibbles(blocks[:, 6:]) | fifthBits(blocks[:, 2:6])
    return halfAt(blocks, 0) * (values.astype(np.float32) - 16)


def q51(blocks: np.ndarray) -> np.ndarray:
    """Bytes: d, m, 4 of fifth bits, 16 of nibbles."""
    values = nibbles(blocks[:, 8:]) | fifthBits(blocks[:, 4:8])
    return halfAt(blocks, 0) * values.astype(np.float32) + halfAt(blocks, 2)


def q80(blocks: np.ndarray) -> np.ndarray:
    """Bytes: d, 32 signed."""
    return halfAt(blocks, 0) * blocks[:, 2:].view(np.int8).astype(np.float32)


def scaled(values: np.ndarray, scales: np.ndarray, groups: int) -> np.ndarray:
    """Return values (blocks, 256) times the scale of their group."""
    return values.astype(np.float32).reshape(len(values), groups, -1) * scales.astype(np.float32)[:, :, None]


def pairs(blocks: np.ndarray) -> np.ndarray:
    """Return 256 numbers of two bits from 64 bytes: 32 bytes hold four runs of 32."""
    halves = [bitsOf(blocks[:, i : i + 32], [0, 2, 4, 6], 3).reshape(len(blocks), 128) for i in (0, 32)]
    return np.concatenate(halves, axis=1)


def q2k(blocks: np.ndarray) -> np.ndarray:
    """Bytes: 16 of s and m in nibbles, 64 of pairs of bits, d, e."""
    scales, values = blocks[:, :16], pairs(blocks[:, 16:80])
    minima = halfAt(blocks, 82) * (scales >> 4).astype(np.float32)
    return (scaled(values, halfAt(blocks, 80) * (scales & 15), 16) - minima[:, :, None]).reshape(-1, 256)


def q3k(blocks: np.ndarray) -> np.ndarray:
    """Bytes: 32 of third bits, 64 of pairs of bits, 12 of s (6 bits, less 32), d."""
    high = bitsOf(blocks[:, :32], list(range(8)), 1).reshape(-1, 256) << 2
    values = (pairs(blocks[:, 32:96]) | high).astype(np.float32) - 4
    packed = blocks[:, 96:108]
    upper = bitsOf(packed[:, 8:], [0, 2, 4, 6], 3).reshape(-1, 16) << 4
    scales = (nibbles(packed[:, :8]) | upper).astype(np.float32) - 32
    return scaled(values, halfAt(blocks, 108) * scales, 16).reshape(-1, 256)


def sixBits(packed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return eight s and eight m of six bits from 12 bytes."""
    first, second, third = packed[:, :4], packed[:, 4:8], packed[:, 8:]
    scales = np.concatenate([first & 63, third & 15 | first >> 6 << 4], axis=1)
    minima = np.concatenate([second & 63, third >> 4 | second >> 6 << 4], axis=1)
    return scales, minima


def eighths(blocks: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return d s q - e m of eight groups of 32."""
    scales, minima = sixBits(blocks[:, 4:16])
    lowest = halfAt(blocks, 2) * minima.astype(np.float32)
    return (scaled(values, halfAt(blocks, 0) * scales, 8) - lowest[:, :, None]).reshape(-1, 256)


def quarters(blocks: np.ndarray) -> np.ndarray:
    """Return 256 nibbles from 128 bytes: 32 bytes hold two runs of 32."""
    return bitsOf(blocks.reshape(-1, 32), [0, 4], 15).reshape(-1, 256)


def q4k(blocks: np.ndarray) -> np.ndarray:
    """Bytes: d, e, 12 of s and m, 128 of nibbles."""
    return eighths(blocks, quarters(blocks[:, 16:]))


def q5k(blocks: np.ndarray) -> np.ndarray:
    """Bytes: d, e, 12 of s and m, 32 of fifth bits, 128 of nibbles."""
    high = bitsOf(blocks[:, 16:48], list(range(8)), 1).reshape(-1, 256) << 4
    return eighths(blocks, quarters(blocks[:, 48:]) | high)


def q6k(blocks: np.ndarray) -> np.ndarray:
    """Bytes: 128 of nibbles, 64 of pairs of bits, 16 of signed s, d; 64 bytes of nibbles hold two runs of 64."""
    low = bitsOf(blocks[:, :128].reshape(-1, 64), [0, 4], 15).reshape(-1, 256)
    values = (low | pairs(blocks[:, 128:192]) << 4).astype(np.float32) - 32
    scales = halfAt(blocks, 208) * blocks[:, 192:208].view(np.int8).astype(np.float32)
    return scaled(values, scales, 16).reshape(-1, 256)


class BlockFormat(NamedTuple):
    """A block format: elements and bytes of a block, and the function that widens blocks."""

    elements: int
    bytes: int
    widen: Callable[[np.ndarray], np.ndarray]


BLOCKFORMATS = {
    "q4_0": BlockFormat(32, 18, q40),
    "q4_1": BlockFormat(32, 20, q41),
    "q5_0": BlockFormat(32, 22, q50),
    "q5_1": BlockFormat(32, 24, q51),
    "q8_0": BlockFormat(32, 34, q80),
    "q2_k": BlockFormat(256, 84, q2k),
    "q3_k": BlockFormat(256, 110, q3k),
    "q4_k": BlockFormat(256, 144, q4k),
    "q5_k": BlockFormat(256, 176, q5k),
    "q6_k": BlockFormat(256, 210, q6k),
}
