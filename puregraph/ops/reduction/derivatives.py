"""Derivatives of reductions, cumulative sums and differences, and sorting."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from puregraph.core.accumulate import inShape, isArray
from puregraph.core.base.widen import divided, widen
from puregraph.ops.gather.writes import movedBack
from puregraph.ops.operation import ITSELF, op
from puregraph.ops.reduction.reference import unbroadcast
from puregraph.ops.tangents import alone, isLeftOut

if TYPE_CHECKING:
    from collections.abc import Mapping

    from puregraph.core.protocols import AnyArray
    from puregraph.core.rules import ArrayFunction


def axesOf(x: AnyArray, axis: int | Sequence[int] | None) -> tuple[int, ...]:
    """The reduced axes, as non-negative numbers."""
    return tuple(range(x.ndim)) if axis is None else tuple([a % x.ndim for a in listOf(axis)])


def listOf(value: object) -> list[Any]:
    """A number or a sequence of numbers as a list."""
    return list(value) if isinstance(value, (tuple, list, np.ndarray)) else [value]


def spread(g: Any, x: Any, axis: int | Sequence[int] | None) -> AnyArray:
    """A gradient broadcast along the reduced axes to the shape of x."""
    axes = axesOf(x, axis)
    return np.broadcast_to(g.reshape([1 if i in axes else n for i, n in enumerate(x.shape)]), x.shape)


def counted(x: AnyArray, axis: int | Sequence[int] | None) -> int:
    """The number of values that a reduction combines; at least 1, so that it can be divided by."""
    return max(1, prod([x.shape[i] for i in axesOf(x, axis)]))


def alongAxis(values: list, options: dict, position: int = 1) -> tuple[Any, bool]:
    """The axis and keepdims of a reduction, from its arguments or its options."""
    axis = values[position] if len(values) > position else options.get("axis")
    return axis, bool(options.get("keepdims") is True)


def optionOf(options: Mapping[str, object], name: str) -> Any:
    """An option; None where it was left out."""
    value = options.get(name)
    return None if isLeftOut(value) else value


@op(np.sum).adjoint
def sumRule(g, y, a, axis=None):
    """y = sum x: dx = g."""
    return spread(g, a, axis)


op(np.sum).declare(additive=("initial",))
op(np.add.reduce).declare(jvp=ITSELF, additive=("initial",))
op(np.add.accumulate).declare(jvp=ITSELF)


@op(np.mean).adjoint
def meanRule(g, y, a, axis=None):
    """y = sum x / n: dx = g / n."""
    return spread(divided(g, counted(a, axis)), a, axis)


@op(np.average).vjp
def averageRule(g, y, a, axis=None, weights=None):
    """y = sum w x / sum w: dx = g w / sum w, dw = g (x - y) / sum w."""
    if weights is None:
        return meanRule(g, y, a, axis)
    w, axis = weights if isArray(weights) else np.asarray(weights), axesOf(a, axis)
    if w.ndim != a.ndim:
        w = w.reshape([n if i in axesOf(a, axis) else 1 for i, n in enumerate(a.shape)])
    share = spread(widen(g) / widen(np.broadcast_to(w, a.shape)).sum(axis=axis).reshape(y.shape), a, axis)
    return share * w, None, unbroadcast(share * (a - spread(y, a, axis)), w.shape).reshape(np.shape(weights))


@op(np.var).vjp
def varRule(g, y, a, axis=None, ddof=0, correction=0):
    """y = sum (x - m)^2 / (n - c): dx = 2 g (x - m) / (n - c)."""
    return spread(widen(g) * (2 * rest(a, axis, ddof, correction)), a, axis) * centered(widen(a), axis)


@op(np.std).vjp
def stdRule(g, y, a, axis=None, ddof=0, correction=0):
    """y = sqrt v: dx = g (x - m) / (y (n - c)), and 0 where y is 0, as in torch."""
    isZero = np.equal(y, 0)
    slope = np.where(isZero, 0, widen(g) / np.where(isZero, 1, y))
    return spread(slope * rest(a, axis, ddof, correction), a, axis) * centered(widen(a), axis)


def rest(a: AnyArray, axis: int | Sequence[int] | None, ddof: Any, correction: Any) -> float:
    """1 / (n - c), for n values and a correction c."""
    free = counted(a, axis) - (ddof or (0 if isLeftOut(correction) else correction))
    return 1 / free if free else float("nan")


def centered(a: AnyArray, axis: int | Sequence[int] | None) -> AnyArray:
    """x - mean x."""
    return a - a.mean(axis=axis, keepdims=True)


@op(np.var, np.std).jvp
def spreadOf(function: ArrayFunction, values: list, tangents: list, options: dict) -> tuple[Any, Any]:
    """The tangent of var, 2 sum (x - m) t / (k - ddof), and of std, half of that over std; 0 where std is 0."""
    alone(function, tangents, 0)
    x, t = map(widen, (values[0], tangents[0]))
    y = function(*values, **options)
    axis, keepdims = alongAxis(values, options)
    where, mean = optionOf(options, "where"), optionOf(options, "mean")
    counts = {} if where is None else {"where": where}
    centered = x - (x.mean(axis=axis, keepdims=True, **counts) if mean is None else mean)
    ddof = values[4] if len(values) > 4 else options.get("ddof", 0)
    fewer = ddof or (optionOf(options, "correction") or 0)
    count = np.broadcast_to(counts.get("where", True), x.shape).sum(axis=axis, keepdims=keepdims) - fewer
    tangent = (centered * t).sum(axis=axis, keepdims=keepdims, **counts) * (2 / count)
    if function is np.std:
        tangent = np.where(y == 0, 0, tangent / np.where(y == 0, 1, 2 * y))
    return y, inShape(tangent, y)


@op(np.max, np.min, np.amax, np.amin).vjp
def extremeRule(g, y, a, axis=None):
    """y = max x: dx = g / n at each of n equal maxima, else 0, as in torch's amax; likewise for the minimum."""
    isOne = np.logical_or(np.equal(a, spread(y, a, axis)), np.not_equal(a, a))
    share = divided(g, isOne.sum(axis=axis).reshape(g.shape))
    return np.where(isOne, spread(share, a, axis), 0)


@op(np.max, np.amax, np.min, np.amin, np.maximum.reduce, np.minimum.reduce).jvp
def extreme(function: ArrayFunction, values: list, tangents: list, options: dict) -> tuple[AnyArray, AnyArray]:
    """The tangent at the maximum or minimum; the mean of the tangents of equal ones."""
    x, t = values[0], tangents[0]
    y = function(*values, **options)
    axis, keepdims = alongAxis(values, options)
    if getattr(function, "__self__", None) is not None and len(values) == 1 and "axis" not in options:
        axis = 0  # the default of a ufunc's own reduce
    mask = (x == function(x, **{**options, "axis": axis, "keepdims": True})) | (x != x)  # the extremes, and every nan
    if "where" in options:
        mask = mask & options["where"]
    count = np.maximum(mask.sum(axis=axis, keepdims=keepdims), 1)
    return y, inShape(np.where(mask, widen(t), 0).sum(axis=axis, keepdims=keepdims) / count, y)


@op(np.prod).vjp
def prodRule(g, y, a, axis=None):
    """y = x1 x2 ...: dx1 = g x2 ..., by division unless there are zeros."""
    if not np.any(np.equal(a, 0)):
        return spread(g * y, a, axis) / a
    axes = axesOf(a, axis)
    order = [i for i in range(a.ndim) if i not in axes] + list(axes)
    lead = [a.shape[i] for i in order[: a.ndim - len(axes)]]
    n = counted(a, axis)
    rows = a.transpose(order).reshape([*lead, 1, n])
    others = np.prod(np.where(np.eye(n, dtype=bool), 1, rows), axis=-1)
    others = others.reshape([a.shape[i] for i in order]).transpose([int(i) for i in np.argsort(order)])
    return spread(g, a, axis) * others


@op(np.prod, np.multiply.reduce, np.cumprod).jvp
def multiplied(function: ArrayFunction, values: list, tangents: list, options: dict) -> tuple[Any, Any]:
    """The tangent by the product rule, one factor after the other, which is exact with zeros too."""
    alone(function, tangents, 0)
    x, t = values[0], tangents[0]
    y = function(*values, **options)
    axis, _ = alongAxis(values, options)
    where, initial = (optionOf(options, name) for name in ("where", "initial"))
    if where is not None:
        x, t = np.where(where, x, 1), np.where(where, t, 0)
    if function == np.multiply.reduce and len(values) == 1 and "axis" not in options:
        axis = 0
    axes = range(x.ndim) if axis is None else [a % x.ndim for a in (axis if isinstance(axis, tuple) else (axis,))]
    order = (*axes, *(a for a in range(x.ndim) if a not in axes))
    shape = (-1, *(x.shape[a] for a in order[len(axes) :]))
    factors, changes = x.transpose(order).reshape(shape), t.transpose(order).reshape(shape)
    first = 1 if initial is None else initial
    product, change = np.full_like(x, first, shape=shape[1:]), np.zeros_like(x, shape=shape[1:])
    steps = []
    for factor, d in zip(factors, changes):
        product, change = product * factor, change * factor + product * d
        steps.append(change)
    if function is np.cumprod:
        return y, np.moveaxis(np.stack(steps), 0, axis or 0).reshape(y.shape)
    return y, inShape(change.reshape(y.shape), y)


@op(np.cumsum).adjoint
def cumsumRule(g, y, a, axis=None):
    """The cumulative sums of the gradient from the other end."""
    if axis is None:
        return np.flip(np.cumsum(np.flip(g))).reshape(a.shape)
    return np.flip(np.cumsum(np.flip(g, axis), axis=axis), axis)


@op(np.diff).vjp
def diffRule(g, y, a, n=1, axis=-1):
    """Negative differences of the gradient, padded with zeros, n times; zeros where nothing was left to subtract."""
    if n and n > a.shape[axis]:
        return np.zeros_like(a)
    for _ in range(n):
        width = [(1, 1) if i == axis % a.ndim else (0, 0) for i in range(a.ndim)]
        g = -np.diff(np.pad(g, width), axis=axis)
    return g


@op(np.diff).jvp
def differences(function: ArrayFunction, values: list, tangents: list, options: dict) -> tuple[AnyArray, AnyArray]:
    """The tangent of diff, which is linear; a constant `prepend` or `append` has tangent 0."""
    alone(function, tangents, 0, 3, 4)
    ends = dict(zip(("prepend", "append"), zip(values[3:], tangents[3:])))
    ends |= {name: (options[name], None) for name in ("prepend", "append") if name in options}
    known = {name: (x, t) for name, (x, t) in ends.items() if not isLeftOut(x)}
    settings = {name: option for name, option in options.items() if name not in known}
    change = np.zeros_like(values[0]) if tangents[0] is None else tangents[0]
    moved = {name: np.zeros_like(x, dtype=change.dtype) if t is None else t for name, (x, t) in known.items()}
    y = function(*values[:3], **settings, **{name: x for name, (x, _) in known.items()})
    return y, function(change, *values[1:3], **settings, **moved)


@op(np.sort).vjp
def sortRule(g, y, a, axis=-1, kind=None, stable=None):
    """The gradient, moved back to the positions before sorting."""
    return movedBack(np.take_along_axis, g, y, (a, np.argsort(a, axis=axis), axis))[0]


@op(np.sort).jvp
def ordered(function: ArrayFunction, values: list, tangents: list, options: dict) -> tuple[Any, Any]:
    """The tangent, in the order of the sorted values."""
    axis = values[1] if len(values) > 1 else options.get("axis", -1)
    x, t = (values[0], tangents[0]) if axis is not None else (values[0].reshape(-1), tangents[0].reshape(-1))
    axis = -1 if axis is None else axis
    return function(*values, **options), np.take_along_axis(t, np.argsort(x, axis=axis, kind="stable"), axis)
