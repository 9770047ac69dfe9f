"""Elements: ufuncs and other elementwise functions that have no formula."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from puregraph.core.tracer import areRecorded
from puregraph.ops.operation import op

if TYPE_CHECKING:
    from puregraph.core.protocols import AnyArray


@op(np.positive).decompose
def positive(x: AnyArray) -> AnyArray:
    """x itself."""
    return x.copy("K")


@op(np.fabs).decompose
def fabs(x: AnyArray) -> AnyArray:
    """The absolute value of floats."""
    return np.abs(x) if x.dtype.kind == "f" else NotImplemented


@op(np.fmax).decompose
def fmax(x: AnyArray, y: AnyArray) -> AnyArray:
    """max(x, y); if one of them is nan, the other."""
    return np.where(np.isnan(x), y, np.where(np.isnan(y), x, np.maximum(x, y)))


@op(np.fmin).decompose
def fmin(x: AnyArray, y: AnyArray) -> AnyArray:
    """min(x, y); if one of them is nan, the other."""
    return np.where(np.isnan(x), y, np.where(np.isnan(y), x, np.minimum(x, y)))


@op(np.clip).decompose
def clip(x: AnyArray, low: AnyArray | None = None, high: AnyArray | None = None, **options: object) -> AnyArray:
    """min(max(x, low), high); either bound may be missing."""
    if options or not areRecorded(x) or not (x.dtype.kind == "f" or isWithin(x, low) and isWithin(x, high)):
        return NotImplemented
    x = x if low is None else np.maximum(x, low)
    return x if high is None else np.minimum(x, high)


def isWithin(x: AnyArray, bound: Any) -> bool:
    """True if an integer bound fits the dtype, or there is no bound."""
    ends = np.iinfo(x.dtype) if x.dtype.kind in "iu" else None
    return bound is None or ends is not None and type(bound) is int and ends.min <= bound <= ends.max


@op(np.round, np.around).decompose
def rounded(x: AnyArray, decimals: int = 0) -> AnyArray:
    """Round to the nearest integer, halves to even."""
    return np.rint(x) if decimals == 0 and x.dtype.kind == "f" else NotImplemented


@op(np.deg2rad, np.radians).decompose
def radians(x: AnyArray) -> AnyArray:
    """Degrees as radians."""
    return x * (np.pi / 180) if x.dtype.kind == "f" else NotImplemented


@op(np.rad2deg, np.degrees).decompose
def degrees(x: AnyArray) -> AnyArray:
    """Radians as degrees."""
    return x * (180 / np.pi) if x.dtype.kind == "f" else NotImplemented


@op(np.nan_to_num).decompose
def finite(x: AnyArray, copy: bool = True, nan: Any = 0.0, posinf: Any = None, neginf: Any = None) -> AnyArray:
    """Replace nan and both infinities by finite values."""
    if not areRecorded(x) or x.dtype.kind != "f":
        return NotImplemented
    most = float(np.finfo(x.dtype).max)
    x = np.where(np.isnan(x), nan, x)
    x = np.where(x > most, most if posinf is None else posinf, x)
    return np.where(x < -most, -most if neginf is None else neginf, x)
