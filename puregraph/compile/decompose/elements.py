"""Elements: ufuncs and other elementwise functions that have no formula."""

from __future__ import annotations

from typing import Any

import numpy as np

from puregraph.compile.decompose.decomposition import areRecorded, simpler


@simpler(np.positive)
def positive(x: Any) -> Any:
    """x itself."""
    return x.copy("K")


@simpler(np.fabs)
def fabs(x: Any) -> Any:
    """The absolute value of floats."""
    return np.abs(x) if x.dtype.kind == "f" else NotImplemented


@simpler(np.fmax)
def fmax(x: Any, y: Any) -> Any:
    """max(x, y); if one of them is nan, the other."""
    return np.where(np.isnan(x), y, np.where(np.isnan(y), x, np.maximum(x, y)))


@simpler(np.fmin)
def fmin(x: Any, y: Any) -> Any:
    """min(x, y); if one of them is nan, the other."""
    return np.where(np.isnan(x), y, np.where(np.isnan(y), x, np.minimum(x, y)))


@simpler(np.clip)
def clip(x: Any, low: Any = None, high: Any = None, **options: Any) -> Any:
    """min(max(x, low), high); either bound may be missing."""
    if options or not areRecorded(x) or not (x.dtype.kind == "f" or isWithin(x, low) and isWithin(x, high)):
        return NotImplemented
    x = x if low is None else np.maximum(x, low)
    return x if high is None else np.minimum(x, high)


def isWithin(x: Any, bound: Any) -> bool:
    """True if an integer bound fits the dtype, or there is no bound."""
    ends = np.iinfo(x.dtype) if x.dtype.kind in "iu" else None
    return bound is None or ends is not None and type(bound) is int and ends.min <= bound <= ends.max


@simpler(np.round, np.around)
def rounded(x: Any, decimals: int = 0) -> Any:
    """Round to the nearest integer, halves to even."""
    return np.rint(x) if decimals == 0 and x.dtype.kind == "f" else NotImplemented


@simpler(np.deg2rad, np.radians)
def radians(x: Any) -> Any:
    """Degrees as radians."""
    return x * (np.pi / 180) if x.dtype.kind == "f" else NotImplemented


@simpler(np.rad2deg, np.degrees)
def degrees(x: Any) -> Any:
    """Radians as degrees."""
    return x * (180 / np.pi) if x.dtype.kind == "f" else NotImplemented


@simpler(np.nan_to_num)
def finite(x: Any, copy: bool = True, nan: Any = 0.0, posinf: Any = None, neginf: Any = None) -> Any:
    """Replace nan and both infinities by finite values."""
    if not areRecorded(x) or x.dtype.kind != "f":
        return NotImplemented
    most = float(np.finfo(x.dtype).max)
    x = np.where(np.isnan(x), nan, x)
    x = np.where(x > most, most if posinf is None else posinf, x)
    return np.where(x < -most, -most if neginf is None else neginf, x)


@simpler(np.tril)
def tril(x: Any, k: int = 0) -> Any:
    """Zero above a diagonal of the last two axes."""
    rows, columns = x.shape[-2:]
    return np.where(np.tri(rows, columns, k, bool), x, zero(x))


@simpler(np.triu)
def triu(x: Any, k: int = 0) -> Any:
    """Zero below a diagonal of the last two axes."""
    rows, columns = x.shape[-2:]
    return np.where(np.tri(rows, columns, k - 1, bool), zero(x), x)


def zero(x: Any) -> Any:
    """0 in the dtype of x."""
    return x.dtype.type(0)
