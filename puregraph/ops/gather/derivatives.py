"""Derivatives of functions that read or write elements by index."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING

import numpy as np

from puregraph.ops.gather.writes import movedBack, putAt, setAt
from puregraph.ops.operation import op
from puregraph.ops.reduction.reference import fit

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


op(np.take_along_axis, np.repeat, np.diagonal).declare(moves=0)


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
