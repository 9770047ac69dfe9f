"""The derivatives of what reads elements by index, and of what writes them."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from puregraph.autodiff.derivatives.registry import constant, linear, vjp
from puregraph.autodiff.derivatives.ufuncs import fit
from puregraph.autodiff.derivatives.writes import putAt, setAt

constant(np.count_nonzero, np.flatnonzero, np.argwhere, np.argmax, np.argmin, np.argsort, np.nonzero, np.searchsorted)
constant(np.lexsort, np.any, np.all, np.array_equal, np.array_equiv, np.allclose, np.isclose, np.isposinf, np.isneginf)
constant(np.shape, np.ndim, np.size, np.zeros_like, np.ones_like, np.empty_like, np.shares_memory, np.may_share_memory)
constant(np.result_type, np.common_type, np.can_cast, np.min_scalar_type, np.iscomplexobj, np.isrealobj)


@linear(operator.getitem)
def getitemRule(g, y, x, key):
    """Back to the positions that were read."""
    return putAt(g, key, x.shape)


@linear(np.take)
def takeRule(g, y, a, indices, axis=None):
    """Back to the positions that were read."""
    if axis is None:
        return putAt(g, (indices,), (a.size,)).reshape(a.shape)
    return putAt(g, (slice(None),) * (axis % a.ndim) + (indices,), a.shape)


@linear(np.take_along_axis)
def takeAlongRule(g, y, arr, indices, axis=-1):
    """Back to the positions that were read."""
    if axis is None:
        return putAt(g, (indices,), (arr.size,)).reshape(arr.shape)
    sizes = [m if n != 1 else 1 for m, n in zip(y.shape, arr.shape)]
    grid: list[Any] = list(np.ogrid[tuple([slice(n) for n in sizes])])
    grid[axis] = indices
    return putAt(g, tuple(grid), arr.shape)


@linear(np.repeat)
def repeatRule(g, y, a, repeats, axis=None):
    """The sum over the copies."""
    flat = a.reshape(-1) if axis is None else a
    axis = (axis or 0) % flat.ndim
    positions = np.repeat(np.arange(flat.shape[axis]), repeats)
    return putAt(g, (slice(None),) * axis + (positions,), flat.shape).reshape(a.shape)


@linear(np.diagonal)
def diagonalRule(g, y, a, offset=0, axis1=0, axis2=1):
    """Onto the diagonal; zero beside it."""
    i = np.arange(y.shape[-1])
    shape = np.moveaxis(np.broadcast_to(np.empty(()), a.shape), (axis1, axis2), (0, 1)).shape
    dx = putAt(np.moveaxis(g, -1, 0), (i + max(-offset, 0), i + max(offset, 0)), shape)
    return np.moveaxis(dx, (0, 1), (axis1, axis2))


@linear(np.trace)
def traceRule(g, y, a, offset=0, axis1=0, axis2=1):
    """The same for every position of the diagonal."""
    rows, columns = a.shape[axis1], a.shape[axis2]
    n = max(0, min(rows + min(offset, 0), columns - max(offset, 0)))
    each = np.broadcast_to(g.reshape((*g.shape, 1)), (*g.shape, n))
    return diagonalRule(each, each, a, offset, axis1, axis2)


@linear(np.diag)
def diagRule(g, y, v, k=0):
    """Out of a diagonal, or onto it."""
    return np.diagonal(g, k) if v.ndim == 1 else diagonalRule(g, y, v, k)


@linear(putAt)
def putAtRule(g: Any, y: Any, arguments: tuple, options: dict, needs: tuple) -> Any:
    """What is at those positions."""
    return g[arguments[1]], None, None


@vjp(setAt)
def setAtRule(g, y, x, key, new):
    """To what was kept, and to what came in its place."""
    return setAt(g, key, 0), None, fit(g[key], new)
