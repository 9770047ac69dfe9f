"""Reductions: over no axes or no elements, and reductions composed of sums."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from puregraph.core.base.widen import widen
from puregraph.ops.operation import op
from puregraph.ops.reduction.cumulate import UFUNCS, cumulate
from puregraph.ops.reduction.reference import firstIndex

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import DTypeLike

    from puregraph.core.protocols import AnyArray
    from puregraph.core.rules import ArrayFunction

SAME = (np.max, np.min, np.amax, np.amin, np.mean)


@op(np.sum).decompose
def total(x: Any, axis: Any | None = None, **options: Any) -> Any:
    """Sum over axes: x for no axes, 0 for no elements; integers are widened as numpy does."""
    if not options.keys() <= {"keepdims"}:
        return NotImplemented
    dtype = np.zeros(1, x.dtype).sum().dtype
    if axis == ():
        return x.copy("K") if dtype == x.dtype else x.astype(dtype)
    shape = left(x, axis, **options)
    return np.zeros_like(x, dtype, shape=shape) if x.size == 0 < prod(shape) else NotImplemented


def left(x: Any, axis: Any, keepdims: bool = False) -> tuple[int, ...]:
    """The shape without some axes."""
    axes = {a % x.ndim for a in chosen(x, axis)}
    return tuple([1 if i in axes else n for i, n in enumerate(x.shape) if keepdims or i not in axes])


def chosen(x: AnyArray, axis: int | Sequence[int] | None) -> Any:
    """The axes as a tuple, counted from the front."""
    return range(x.ndim) if axis is None else axis if isinstance(axis, tuple) else (axis,)


def overNone(function: ArrayFunction) -> Any:
    """The decomposition of a reduction over no axes: x itself."""

    def reduced(x: AnyArray, axis: int | Sequence[int] | None = None, **options: object) -> AnyArray:
        isSame = x.dtype.kind == "f" or function is not np.mean
        return x.copy("K") if axis == () and isSame and options.keys() <= {"keepdims"} else NotImplemented

    return reduced


for reduction in SAME:
    op(reduction).decompose(overNone(reduction))


@op(np.var).decompose
def variance(x: Any, axis: Any | None = None, ddof: float = 0, **options: Any) -> Any:
    """sum (x - mean)^2 / (n - ddof)"""
    if x.dtype.kind != "f" or not options.keys() <= {"keepdims"}:
        return NotImplemented
    wide = widen(x)
    centered = wide - wide.mean(axis=axis, keepdims=True)
    count = prod([x.shape[a] for a in chosen(x, axis)])
    return ((centered * centered).sum(axis=axis, **options) / (count - ddof)).astype(x.dtype)


@op(np.std).decompose
def deviation(x: Any, axis: Any | None = None, **options: Any) -> Any:
    """The root of the variance."""
    var = variance(x, axis, **options)
    return var if var is NotImplemented else np.sqrt(var)


@op(np.any).decompose
def some(x: Any, axis: Any | None = None, **options: Any) -> Any:
    """np.any for dtypes other than bool: compare with 0 first."""
    return NotImplemented if x.dtype == bool else np.any(x != 0, axis=axis, **options)


@op(np.all).decompose
def every(x: Any, axis: Any | None = None, **options: Any) -> Any:
    """np.all for dtypes other than bool: compare with 0 first."""
    return NotImplemented if x.dtype == bool else np.all(x != 0, axis=axis, **options)


@op(np.count_nonzero).decompose
def count(x: Any, axis: Any | None = None, **options: object) -> AnyArray:
    """The number of nonzero elements."""
    return (x if x.dtype == bool else x != 0).sum(axis=axis, **options)


def extremum(function: ArrayFunction) -> Any:
    """The decomposition of argmax or argmin: the first index of the extremum that `function` computes."""

    def index(x: Any, axis: Any | None = None, keepdims: bool = False) -> AnyArray:
        if x.size == 0 or axis is None and keepdims:
            return NotImplemented
        x, axis = (x.reshape(-1), 0) if axis is None else (x, axis % x.ndim)
        y = firstIndex(x, function(x, axis=axis, keepdims=True), axis)
        return np.expand_dims(y, axis) if keepdims else y

    return index


op(np.argmax).decompose(extremum(np.max))
op(np.argmin).decompose(extremum(np.min))


@op(np.ptp).decompose
def spread(x: Any, axis: Any | None = None, **options: Any) -> AnyArray:
    """max - min"""
    return x.max(axis=axis, **options) - x.min(axis=axis, **options)


def cumulative(kind: str, first: int | None) -> Any:
    """The decomposition of a cumulative function: as integers and floats are widened; `first` is the axis by default.
    float16 is added up in float16 by numpy, and left to it."""

    def along(x: Any, axis: int | None = first, dtype: DTypeLike | None = None) -> AnyArray:
        dtype = UFUNCS[kind].accumulate(np.ones(1, x.dtype), dtype=dtype).dtype
        if first is None:
            dtype = (np.cumsum if kind == "sum" else np.cumprod)(np.ones(1, x.dtype), dtype=dtype).dtype
        if dtype.itemsize < 4 or dtype.kind not in "iuf":
            return NotImplemented
        x, axis = (x.reshape(-1), 0) if axis is None else (x, axis)
        return cumulate(x.astype(dtype, copy=False), axis, kind)

    return along


op(np.cumsum).decompose(cumulative("sum", None))
op(np.cumprod).decompose(cumulative("product", None))
for kind, ufunc in UFUNCS.items():
    op(ufunc.accumulate).decompose(cumulative(kind, 0))
