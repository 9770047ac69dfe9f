"""The gradient and the tangent of `cumulate`, of each kind.

Both follow from those of a plain cumulation: a reversed one is that of the elements in the reverse order, an exclusive
one gives its results one position later.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from puregraph.core.base.widen import widened
from puregraph.core.shape import normalAxis
from puregraph.core.tracer import arrayLike
from puregraph.ops.gather.alongaxis import addAlong
from puregraph.ops.operation import op
from puregraph.ops.reduction.cumulate import cumulate, part, shifted
from puregraph.ops.tangents import alone

if TYPE_CHECKING:
    from puregraph.core.protocols import AnyArray
    from puregraph.core.rules import ArrayFunction


@op(cumulate).vjp
@widened
def cumulateRule(g, y, x, axis, kind="sum", exclusive=False, reverse=False):
    """Of a sum: the sum of the gradients from the other end. Of the others: see their rules."""
    if kind == "sum":
        return cumulate(g, axis, kind, exclusive, not reverse)
    axis = normalAxis(axis, x.ndim)
    if reverse:
        g, x = np.flip(g, axis), np.flip(x, axis)
    if exclusive:
        g = np.flip(shifted(np.flip(g, axis), axis, 0), axis)
    if kind == "logSumExp":
        y = cumulate(x, axis, kind) if exclusive else np.flip(y, axis) if reverse else y
        dx = logSumExpGrad(g, y, x, axis)
    else:
        dx = GRADIENTS[kind](g, x, axis)
    return np.flip(dx, axis) if reverse else dx


@op(cumulate).jvp
def cumulated(function: ArrayFunction, values: list, tangents: list, options: dict) -> tuple[Any, Any]:
    """The tangent: of a sum that of the tangents, of the others by their rules."""
    alone(function, tangents, 0)
    return function(*values, **options), tangentOf(tangents[0], *values, **options)


@widened
def tangentOf(t: Any, x: Any, axis: int, kind: str = "sum", exclusive: bool = False, reverse: bool = False) -> Any:
    """The tangent of a cumulation of x, which has tangent t."""
    if kind == "sum":
        return cumulate(t, axis, kind, exclusive, reverse)
    axis = normalAxis(axis, x.ndim)
    if reverse:
        t, x = np.flip(t, axis), np.flip(x, axis)
    change = TANGENTS[kind](t, x, axis)
    change = shifted(change, axis, 0) if exclusive else change
    return np.flip(change, axis) if reverse else change


def recurrence(b: Any, a: Any, axis: int) -> Any:
    """y[i] = b[i] + a[i] y[i - 1] along an axis, in log2 n steps over all elements.

    Shapes    b, a (any with that axis) -> y the same
    Source    Hillis, Steele 1986, Data Parallel Algorithms
    """
    far = 1
    while far < b.shape[axis]:
        b, a = b + a * later(b, axis, far, 0), a * later(a, axis, far, 1)
        far *= 2
    return b


def later(x: Any, axis: int, far: int, first: float) -> AnyArray:
    """Each element `far` positions further along the axis, after as many of `first`."""
    return np.concatenate([np.full_like(part(x, axis, 0, far), first), part(x, axis, 0, -far)], axis=axis)


def productGrad(g: Any, x: Any, axis: int) -> Any:
    """dx[j] = (x[0] ... x[j - 1]) b[j],   b[j] = g[j] + x[j + 1] b[j + 1]: exact where an x is 0, too."""
    factors = np.flip(shifted(np.flip(x, axis), axis, 0), axis)
    sums = np.flip(recurrence(np.flip(g, axis), np.flip(factors, axis), axis), axis)
    return cumulate(x, axis, "product", True) * sums


def productTangent(t: Any, x: Any, axis: int) -> Any:
    """t'[i] = x[i] t'[i - 1] + (x[0] ... x[i - 1]) t[i]"""
    return recurrence(cumulate(x, axis, "product", True) * t, x, axis)


def leaders(x: Any, axis: int) -> AnyArray:
    """The first position of the largest element so far, as int32; of nan the first one's."""
    before = cumulate(x, axis, "maximum", True)
    isNew = (x > before) | ((x != x) & (before == before))
    n = [x.shape[axis] if a == axis else 1 for a in range(x.ndim)]
    positions = arrayLike(x, np.arange(x.shape[axis], dtype=np.int32).reshape(n))
    return cumulate(np.where(isNew, positions, np.int32(0)), axis, "maximum")


def maximumGrad(g: Any, x: Any, axis: int) -> Any:
    """To the first of the largest elements."""
    return addAlong(g, leaders(x, axis), axis, x.shape[axis])


def maximumTangent(t: Any, x: Any, axis: int) -> AnyArray:
    """That of the first of the largest elements."""
    first: Any = leaders(x, axis)
    return np.take_along_axis(t, first, axis)


def logSumExpGrad(g: Any, y: Any, x: Any, axis: int) -> Any:
    """dx[j] = exp(x[j] - y[j]) b[j],   b[j] = g[j] + exp(y[j] - y[j + 1]) b[j + 1]"""
    factors = np.flip(ratio(shifted(y, axis, -np.inf), y), axis)
    sums = np.flip(recurrence(np.flip(g, axis), shifted(factors, axis, 0), axis), axis)
    return ratio(x, y) * sums


def logSumExpTangent(t: Any, x: Any, axis: int) -> Any:
    """t'[i] = exp(y[i - 1] - y[i]) t'[i - 1] + exp(x[i] - y[i]) t[i]"""
    y = cumulate(x, axis, "logSumExp")
    return recurrence(ratio(x, y) * t, ratio(shifted(y, axis, -np.inf), y), axis)


def ratio(a: Any, b: Any) -> AnyArray:
    """exp(a - b), 1 for equal infinities."""
    isEven = (a == b) & (abs(a) == np.inf)
    return np.exp(np.where(isEven, 0, a) - np.where(isEven, 0, b))


GRADIENTS = {"product": productGrad, "maximum": maximumGrad}
TANGENTS = {"product": productTangent, "maximum": maximumTangent, "logSumExp": logSumExpTangent}
