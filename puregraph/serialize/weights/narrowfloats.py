"""Narrow floats: those of 16 and 8 bits that numpy has no dtype for, as their bits; to float32 and back.

    bfloat16        1 sign, 8 exponent, 7 mantissa bits: the upper half of a float32
    float8_e4m3fn   1, 4, 3 bits, exponent bias 7; no infinity, and all ones are nan: up to 448
    float8_e5m2     1, 5, 2 bits, exponent bias 15: the upper half of a float16, up to 57344

Source    Micikevicius and others, "FP8 Formats for Deep Learning", arXiv:2209.05433
"""

from __future__ import annotations

from functools import cache

import numpy as np

from puregraph.core.errors import CheckpointError

NARROW: dict[str, np.dtype] = {  # the unsigned integers that hold their bits
    "bfloat16": np.dtype(np.uint16),
    "float8_e4m3fn": np.dtype(np.uint8),
    "float8_e5m2": np.dtype(np.uint8),
}


def storedType(dtype: str) -> np.dtype:
    """Return the numpy dtype in which a file's elements of a dtype are read: integers of its bits if numpy has none."""
    return NARROW.get(dtype) or np.dtype(dtype)


def widened(bits: np.ndarray, dtype: str) -> np.ndarray:
    """Return the float32 values of bits, each exactly."""
    if dtype == "bfloat16":
        wide = bits.astype(np.uint32)
        wide <<= 16
        return wide.view(np.float32)
    return valuesOf(dtype)[bits]


@cache
def valuesOf(dtype: str) -> np.ndarray:
    """Return the float32 value of each of the 256 patterns of 8 bits."""
    bits = np.arange(256)
    if dtype == "float8_e5m2":
        return (bits << 8).astype(np.uint16).view(np.float16).astype(np.float32)
    exponent, mantissa = bits >> 3 & 15, bits & 7
    size = np.where(exponent, np.ldexp(8 + mantissa, exponent - 10), np.ldexp(mantissa, -9))
    size[bits & 127 == 127] = np.nan
    return np.where(bits >> 7, -size, size).astype(np.float32)


def narrowed(values: np.ndarray, dtype: str) -> np.ndarray:
    """Return the bits of float32 values, each rounded to the nearest that the dtype has, a tie to the even one.

    Raises    CheckpointError for a value that is too large, an infinite one too if the dtype has none
    """
    single = np.ascontiguousarray(values, np.float32)
    bits = narrow16(single) if dtype == "bfloat16" else narrow8(single, dtype)
    wide = widened(bits, dtype)
    tooLarge = np.isfinite(single) & np.isinf(wide) | ~np.isnan(single) & np.isnan(wide)
    if tooLarge.any():
        raise CheckpointError(f"{np.abs(single[tooLarge]).max():g} is too large for {dtype}")
    return bits


def narrow16(values: np.ndarray) -> np.ndarray:
    """Return float32 values as the bits of bfloat16."""
    bits = values.view(np.uint32)
    result = ((bits + (0x7FFF + (bits >> 16 & 1))) >> 16).astype(np.uint16)
    result[np.isnan(values)] = 0x7FC0
    return result


def narrow8(values: np.ndarray, dtype: str) -> np.ndarray:
    """Return float32 values as the bits of a float of 8 bits; those beyond its largest become infinite or nan."""
    table = valuesOf(dtype)[:128]
    known = table[np.isfinite(table)]
    middles = np.append((known[1:] + known[:-1]) / 2, known[-1] + (known[-1] - known[-2]) / 2)
    size = np.abs(values)
    result = np.searchsorted(middles, size).astype(np.uint8)  # a middle goes down, and from an odd pattern up
    isMiddle = middles[np.minimum(result, len(middles) - 1)] == size
    result += isMiddle.astype(np.uint8) & result & 1
    result[np.isnan(values)] = 127
    return result | np.signbit(values).astype(np.uint8) << 7
