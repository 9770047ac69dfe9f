"""Derivatives of functions that read or write elements by index."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING

import numpy as np

from puregraph.core.base.widen import divided
from puregraph.core.tracer import arrayLike
from puregraph.ops.gather.alongaxis import addAlong, putAlong, readAlong
from puregraph.ops.gather.writes import movedBack, putAt, setAt
from puregraph.ops.operation import op
from puregraph.ops.reduction.reference import fit
from puregraph.ops.tangents import alone

if TYPE_CHECKING:
    from puregraph.core.protocols import AnyArray

POSITIONS = (np.count_nonzero, np.flatnonzero, np.argwhere, np.argmax, np.argmin, np.argsort, np.nonzero)
TRUTHS = (np.any, np.all, np.array_equal, np.array_equiv, np.allclose, np.isclose, np.isposinf, np.isneginf)
SHAPES = (np.shape, np.ndim, np.size, np.zeros_like, np.ones_like, np.empty_like)
KINDS = (np.result_type, np.common_type, np.can_cast, np.min_scalar_type, np.iscomplexobj, np.isrealobj)
op(*POSITIONS, np.searchsorted, np.lexsort, *TRUTHS, *SHAPES, *KINDS).declare(constant=True)
op(np.shares_memory, np.may_share_memory).declare(constant=True)


@op(operator.getitem).adjoint
def getitemRule(g, y, x, key):
    """Add the gradient at the positions that were read."""
    return putAt(g, key, x.shape)


@op(np.take).adjoint
def takeRule(g, y, a, indices, axis=None):
    """Add the gradient at the positions that were read."""
    if axis is None:
        return putAt(g, (indices,), (a.size,)).reshape(a.shape)
    return putAt(g, (slice(None),) * (axis % a.ndim) + (indices,), a.shape)


op(np.repeat, np.diagonal).declare(moves=0)


@op(np.take_along_axis).adjoint
def takeAlongRule(g, y, arr, indices, axis=-1):
    """Add the gradient to the elements that were read; either array may be broadcast along other axes."""
    if axis is None:
        return addAlong(g, indices, 0, arr.size).reshape(arr.shape)
    return fit(addAlong(g, indices, axis, arr.shape[axis]), arr)


@op(putAlong).vjp
def putAlongRule(g, y, x, index, updates, axis, kind="set"):
    """Multiply each element's gradient by its derivative by its source: x, or an update."""
    ofX, ofUpdates, count = partials(x, index, updates, axis, kind)
    g = g if count is None else divided(g, count)
    return weighted(g, ofX), None, weighted(readAlong(g, index, axis), ofUpdates)


@op(putAlong).jvp
def putAlongTangent(function, values, tangents, options):
    """The sum of the tangents of x and the updates, each times its derivative."""
    alone(function, tangents, 0, 2)
    x, index, updates, axis, kind = named(*values, **options)
    ofX, ofUpdates, count = partials(x, index, updates, axis, kind)
    start, more = [np.zeros_like(a) if t is None else t for a, t in zip((x, updates), (tangents[0], tangents[2]))]
    t = putAlong(weighted(start, ofX), index, weighted(more, ofUpdates), axis, "add")
    return function(*values, **options), t if count is None else divided(t, count)


def named(x, index, updates, axis, kind="set"):
    """The arguments of a call, with the kind if it was left out."""
    return x, index, updates, axis, kind


def partials(x, index, updates, axis, kind):
    """The derivatives by x and by the updates, bool where they are 0 or 1 and None for 1; and what divides both.

    The last of several updates is written. Elements and updates that equal an extreme share its gradient evenly.
    """
    if kind == "add":
        return None, None, None
    if kind == "set":
        order = arrayLike(updates, np.arange(updates.size).reshape(updates.shape))
        last = putAlong(np.full_like(x, -1, dtype=np.int64), index, order, axis)
        return last < 0, readAlong(last, index, axis) == order, None
    if kind == "multiply":
        zeros = putAlong((x == 0).astype(np.int64), index, (updates == 0).astype(np.int64), axis, "add")
        total = putAlong(np.where(x == 0, x, 0), index, np.where(updates == 0, updates, 0), axis, "add")
        rest = putAlong(np.where(x == 0, 1, x), index, np.where(updates == 0, 1, updates), axis, kind)
        read = [readAlong(a, index, axis) for a in (zeros, total, rest)]
        return others(x, zeros, total, rest), others(updates, *read), None
    y = putAlong(x, index, updates, axis, kind)
    isKept, isTaken = x == y, updates == readAlong(y, index, axis)
    count = putAlong(isKept.astype(np.int64), index, isTaken.astype(np.int64), axis, "add")
    return isKept, isTaken, np.maximum(count, np.int64(1))  # 0 where y is nan


def others(factor, zeros, total, rest):
    """The product of all other factors, from the count and the sum of the zeros and the product of the rest.

    A single 0 among the others is a factor, too: the product is 0, but has a derivative by it.
    """
    isZero = factor == 0
    count = zeros - isZero
    zero = np.where(count == 1, total - np.where(isZero, factor, 0), 0)
    return rest / np.where(isZero, 1, factor) * np.where(count == 0, 1, zero)


def weighted(g, weight):
    """g times a derivative."""
    return g if weight is None else np.where(weight, g, 0) if weight.dtype == bool else g * weight


@op(np.trace).adjoint
def traceRule(g, y, a, offset=0, axis1=0, axis2=1):
    """The same gradient at every position of the diagonal."""
    rows, columns = a.shape[axis1], a.shape[axis2]
    n = max(0, min(rows + min(offset, 0), columns - max(offset, 0)))
    diagonal = np.broadcast_to(g.reshape((*g.shape, 1)), (*g.shape, n))
    return movedBack(np.diagonal, diagonal, diagonal, (a, offset, axis1, axis2))[0]


@op(np.diag).adjoint
def diagRule(g, y, v, k=0):
    """Read the gradient's diagonal for a vector v; write the gradient to the diagonal of a matrix v."""
    return np.diagonal(g, k) if v.ndim == 1 else movedBack(np.diagonal, g, y, (v, k))[0]


@op(putAt).adjoint
def putAtRule(g: AnyArray, y: AnyArray, arguments: tuple, options: dict, needs: tuple) -> tuple[AnyArray | None, ...]:
    """dg is the gradient at the positions that were written."""
    return g[arguments[1]], None, None


@op(setAt).vjp
def setAtRule(g, y, x, key, new):
    """dx is the gradient with zeros at the written positions; dnew is the gradient there."""
    return setAt(g, key, 0), None, fit(g[key], new)
