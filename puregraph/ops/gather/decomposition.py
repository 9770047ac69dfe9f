"""Gather: class weights, tables whose rows are not contiguous; numpy's indices as those along an axis."""

from __future__ import annotations

import operator
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from puregraph.core.tracer import areRecorded
from puregraph.ops.gather.alongaxis import addAlong, putAlong, takeAlong, wrapIndex
from puregraph.ops.gather.labels import classIndex
from puregraph.ops.gather.lowering import rowLike
from puregraph.ops.gather.reference import gather, scatterAdd, takeClass
from puregraph.ops.gather.writes import isBasic, isMask, putAt
from puregraph.ops.operation import op

if TYPE_CHECKING:
    from puregraph.core.protocols import AnyArray


def isRowMajor(x: Any, lead: int) -> bool:
    """True if rows are contiguous and adjacent; the first `lead` axes index them."""
    return x.dtype != np.float32 or rowLike(x.current, lead) is not None


@op(gather).decompose
def gathered(table: AnyArray, index: Any) -> AnyArray:
    """Values of classes whose indices are known to be in range; otherwise rows of a row-major table."""
    if not areRecorded(table, index) or 0 in table.shape:
        return NotImplemented
    made = index.current.call
    if made is not None and made.function is classIndex and table.shape == (made.arguments[1],):
        n, *spatial = index.shape
        weights = np.broadcast_to(table.reshape(1, -1, *(1,) * len(spatial)), (n, table.shape[0], *spatial))
        return takeClass(weights, index)
    return NotImplemented if isRowMajor(table, 1) else gather(table.copy(), index)


@op(scatterAdd).decompose
def scattered(grad: AnyArray, index: AnyArray, rows: int) -> AnyArray:
    """The gradient, as a row-major array."""
    return NotImplemented if isRowMajor(grad, index.ndim) else scatterAdd(grad.copy(), index, rows)


@op(np.take_along_axis).decompose
def along(arr: Any, indices: Any, axis: int | None = -1) -> AnyArray:
    """The kernel, of arrays that are broadcast along other axes."""
    if axis is None:
        return takeAlong(arr.reshape(-1), whole(indices), 0)
    axis %= arr.ndim
    lead = np.broadcast_shapes(*[besides(x.shape, axis) for x in (arr, indices)])
    arr, indices = (np.broadcast_to(x, (*lead[:axis], x.shape[axis], *lead[axis + 1 :])) for x in (arr, whole(indices)))
    return takeAlong(arr, indices, axis)


def whole(index: Any) -> Any:
    """Indices as int64, which native code reads."""
    return index if index.dtype == np.int64 else index.astype(np.int64)


def besides(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    """A shape with the length 1 along an axis."""
    return (*shape[:axis], 1, *shape[axis + 1 :])


@op(takeAlong).decompose
def taken(x: Any, index: Any, axis: int) -> AnyArray:
    """The same with indices of int64."""
    return takeAlong(x, whole(index), axis) if index.dtype != np.int64 else NotImplemented


@op(putAlong).decompose
def put(x: Any, index: Any, updates: Any, axis: int, kind: str = "set") -> AnyArray:
    """The same with indices of int64."""
    return putAlong(x, whole(index), updates, axis, kind) if index.dtype != np.int64 else NotImplemented


@op(wrapIndex).decompose
def wrap(index: Any, n: int) -> AnyArray:
    """The same with indices of int64."""
    return wrapIndex(whole(index), n) if index.dtype != np.int64 else NotImplemented


class KeyRows(NamedTuple):
    """An index of integers as one of rows: x[key] reads rows `index` of x as (before, n, after), in `shape`."""

    index: Any
    before: int
    after: int
    shape: tuple[int, ...]

    @property
    def spread(self) -> Any:
        """The index for each element: those of a row share one."""
        return np.broadcast_to(self.index.reshape(1, -1, 1), (self.before, self.index.size, self.after))


def keyRows(x: tuple[int, ...], key: Any) -> KeyRows | None:
    """An index by one array of integers along an axis of the shape x, or by several for the first axes; else None."""
    parts = key if type(key) is tuple else (key,)
    at = [i for i, part in enumerate(parts) if getattr(part, "dtype", np.dtype(bool)).kind in "iu"]
    isPlain = all(i in at or type(part) is slice and part == slice(None) for i, part in enumerate(parts))
    if not at or not isPlain or 0 in x or (len(at) > 1 and at != list(range(len(at)))):
        return None
    first, last = at[0], at[-1] + 1
    index = whole(parts[first])
    if len(at) > 1:
        index = wrapIndex(index, x[first])
        for i in at[1:]:
            index = index * x[i] + wrapIndex(whole(parts[i]), x[i])
    return KeyRows(index, prod(x[:first]), prod(x[last:]), (*x[:first], *index.shape, *x[last:]))


@op(operator.getitem).decompose
def picked(x: Any, key: Any) -> AnyArray:
    """Elements by integers, which the kernel reads as rows."""
    rows = keyRows(x.shape, key) if areRecorded(x) else None
    if rows is None:
        return NotImplemented
    return takeAlong(x.reshape(rows.before, -1, rows.after), rows.spread, 1).reshape(rows.shape)


@op(np.take).decompose
def rowsOf(a: Any, indices: Any, axis: int | None = None, **options: Any) -> AnyArray:
    """Elements by integers along an axis."""
    if not areRecorded(a) or options or not hasattr(indices, "dtype"):
        return NotImplemented
    return picked(a.reshape(-1), indices) if axis is None else picked(a, (*(slice(None),) * (axis % a.ndim), indices))


@op(putAt).decompose
def placed(g: AnyArray, key: Any, shape: Any) -> AnyArray:
    """Zeros with the gradient written to what slices and integers select; an array of them may repeat."""
    parts = key if type(key) is tuple else (key,)
    rows = keyRows(tuple(shape), key) if areRecorded(g) else None
    if rows is not None:
        spread = rows.spread
        return addAlong(g.reshape(spread.shape), spread, 1, prod(shape) // (rows.before * rows.after)).reshape(shape)
    if not areRecorded(g) or not isBasic(key) or any(map(isMask, parts)):
        return NotImplemented
    dx = np.zeros_like(g, shape=shape)
    dx[key] = g
    return dx
