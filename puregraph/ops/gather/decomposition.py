"""Gather: class weights, tables whose rows are not contiguous, and the gradient of an index."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from puregraph.core.tracer import areRecorded
from puregraph.ops.gather.labels import classIndex
from puregraph.ops.gather.lowering import rowLike
from puregraph.ops.gather.reference import gather, scatterAdd, takeClass
from puregraph.ops.gather.writes import isBasic, isMask, putAt
from puregraph.ops.operation import op

if TYPE_CHECKING:
    from typing import Any

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


@op(putAt).decompose
def placed(g: AnyArray, key: Any, shape: Any) -> AnyArray:
    """Zeros with the gradient written to what slices and integers select; an array of them may repeat."""
    parts = key if type(key) is tuple else (key,)
    if not areRecorded(g) or not isBasic(key) or any(map(isMask, parts)):
        return NotImplemented
    dx = np.zeros_like(g, shape=shape)
    dx[key] = g
    return dx
