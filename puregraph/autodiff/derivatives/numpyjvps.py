"""Tangents: how a small change goes through each function of numpy, each Formula and each Kernel.

A rule `(function, values, tangents, options) -> (result, its tangent)` gets the arguments of a call, in which arrays
that change are among the `values`, and beside them their changes among the `tangents`: None for one that has none.
Lists among the arguments are lists in both.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from puregraph.errors import AutoDiffException
from puregraph.formula import Formula, formulasOf, numpyFrom
from puregraph.interpreter import Interpreter
from puregraph.kernels import (
    convolve,
    convolveData,
    convolveWeight,
    gather,
    maxPool,
    maxPoolGrad,
    meanPool,
    meanPoolGrad,
    putClass,
    scatterAdd,
    takeClass,
)
from puregraph.kernels.einsum import ontoDiagonal
from puregraph.kernels.scatter import addAt
from puregraph.optable import LOGICAL, TABLE
from puregraph.tracer import astype

Rule = Callable[[Any, list, list, dict], tuple[Any, Any]]

RULES: dict[Any, Rule] = {}


def register_tangent(*functions: Any) -> Callable[[Rule], Rule]:
    """Say how a tangent goes through functions of numpy, or through a Kernel of your own.

        @register_tangent(double)
        def doubled(function, values, tangents, options):
            return function(*values), 2 * tangents[0]

    The rule is asked only if at least one of the tangents is there.

    Raises    ValueError if one of them has a rule
    """

    def keep(rule: Rule) -> Rule:
        taken = [nameOf(f) for f in functions if f in RULES]
        if taken:
            raise ValueError(f"there is a tangent rule for {', '.join(taken)} already")
        RULES.update(dict.fromkeys(functions, rule))
        return rule

    return keep


def push(function: Any, values: list, tangents: list, options: dict) -> tuple[Any, Any]:
    """What a function gives, and the tangent of that; None: it does not change.

    Raises    AutoDiffException if nothing is known of the function's tangent
    """
    if not moves(tangents):
        return function(*values, **options), None
    if isinstance(function, Interpreter):
        return throughFormulas(function, values, tangents, options)
    rule = RULES.get(function)
    if rule is not None:
        return rule(function, values, tangents, options)
    if isinstance(function, np.ufunc):
        result = function(*values, **options)
        if all(y.dtype.kind != "f" for y in (result if type(result) is tuple else (result,))):
            return result, None  # comparisons and the like do not change
    raise AutoDiffException(
        f"forward mode knows no tangent of {nameOf(function)}: write the rule in functions of numpy that it knows, "
        "or register one with @register_tangent(...)"
    )


def moves(tangents: Any) -> bool:
    """Whether there is a tangent among these."""
    if isinstance(tangents, (list, tuple)):
        return any(map(moves, tangents))
    return tangents is not None


def refuse(function: Any, options: dict, *names: str) -> None:
    """Raise    AutoDiffException for an option that a rule would drop; one of None or True is none."""
    for name in names:
        value = options.get(name)
        if not (value is None or value is True or value is np._NoValue):
            raise AutoDiffException(f"forward mode knows no tangent of {nameOf(function)} with {name}={value!r:.40}")


def alone(function: Any, tangents: list, *places: int) -> None:
    """Raise    AutoDiffException where an argument moves that a rule takes for a constant."""
    moving = [i for i, t in enumerate(tangents) if moves(t) and i not in places]
    if moving:
        raise AutoDiffException(
            f"forward mode knows no tangent of {nameOf(function)} along its argument {moving[0]}, only along "
            f"{', '.join(map(str, places))}"
        )


def nameOf(function: Any) -> str:
    """A function as a message names it."""
    owner = getattr(function, "__self__", None)
    inside = f"{owner.__name__}." if isinstance(owner, np.ufunc) else ""
    module = getattr(function, "__module__", None) or "numpy"
    return f"{module.removesuffix('.core').split('._')[0]}.{inside}{getattr(function, '__name__', function)}"


# ---- pointwise functions: the derivative of a Formula -------------------------------------------------------


def textOf(name: str, count: int) -> str:
    """A row of the table as a formula of a, b, c."""
    if count == 1:
        return "-a" if name == "neg" else f"{name}(a)"
    if name == "pow":
        return "a ** b"
    return f"{name}({', '.join('abc'[:count])})" if name.isidentifier() else f"a {name} b"


FORMULAS = {
    row.numpy: textOf(name, len(row.pulls))
    for name, row in TABLE.items()
    if isinstance(row.numpy, np.ufunc) and name not in LOGICAL
} | {
    np.square: "square(a)",
    np.reciprocal: "reciprocal(a)",
    np.positive: "a",
    np.fabs: "abs(a)",
    np.exp2: "2 ** a",
    np.hypot: "sqrt(a * a + b * b)",
    np.logaddexp: "logaddexp(a, b)",
    np.float_power: "a ** b",
    np.floor_divide: "floor(a / b)",
    np.fmod: "a - b * trunc(a / b)",
    np.fmax: "maximum(a, b)",
    np.fmin: "minimum(a, b)",
    np.deg2rad: "a * (pi / 180)",
    np.radians: "a * (pi / 180)",
    np.rad2deg: "a * (180 / pi)",
    np.degrees: "a * (180 / pi)",
}


@lru_cache(maxsize=4096)
def slope(formula: Formula, names: tuple[str, ...], active: tuple[bool, ...]) -> tuple[Formula, tuple[str, ...]]:
    """The tangent of a formula, sum of dy/dx t over the names x that change, and what the tangents t are called."""
    mark = "t"
    while any(name.startswith(mark) for name in names):  # a formula may be a slope itself
        mark += "_"
    called = tuple(f"{mark}{i}" for i, moving in enumerate(active) if moving)
    changing = [name for name, moving in zip(names, active) if moving]
    parts = [formula.gradient([x], seed=t)[x] for x, t in zip(changing, called)]
    total = parts[0]
    for part in parts[1:]:
        total = part if total == ZERO else total if part == ZERO else Formula("a + b").put(a=total, b=part)
    return total, called


ZERO = Formula(0)


@lru_cache(maxsize=4096)
def slopes(
    formulas: tuple[Formula, ...], names: tuple[str, ...], active: tuple[bool, ...]
) -> tuple[Interpreter | None, list[int]]:
    """The function (values, tangents that are there) -> the tangents of formulas, and which of them are not zero."""
    found = [slope(formula, names, active) for formula in formulas]
    there = [i for i, (total, _) in enumerate(found) if total != ZERO]
    if not there:
        return None, []
    return numpyFrom([found[i][0] for i in there], (*names, *found[0][1])), there


def throughFormulas(function: Any, values: list, tangents: list, options: dict) -> tuple[Any, Any]:
    """Branches are differentiated one by one, so that what a condition discards cannot make a tangent nan."""
    results = function(*values)
    formulas = tuple(formulasOf(function))
    return results, tangentsOf(formulas, function.names, values, tangents, results)


def tangentsOf(formulas: tuple, names: tuple, values: list, tangents: list, results: Any) -> list[Any]:
    """The tangent of the value of each formula, in its shape."""
    active = tuple([t is not None for t in tangents])
    evaluate, there = slopes(tuple(map(unlogical, formulas)), names, active)
    found: list[Any] = [None] * len(formulas)
    if evaluate is not None:
        for i, t in zip(there, evaluate(*values, *[t for t in tangents if t is not None])):
            found[i] = spread(t, results[i])
    return found


def unlogical(formula: Formula) -> Formula:
    """A formula that gives a truth does not change."""
    return ZERO if formula.term.op in LOGICAL else formula


def spread(tangent: Any, value: Any) -> Any:
    """A tangent in the shape and dtype of what it belongs to."""
    if tangent.shape != value.shape:
        tangent = np.broadcast_to(tangent, value.shape)
    return tangent.astype(value.dtype, copy=False)


@register_tangent(*FORMULAS)
def pointwise(function: Any, values: list, tangents: list, options: dict) -> tuple[Any, Any]:
    """The derivative of the ufunc's formula."""
    refuse(function, options, "where")
    y = function(*values, **options)
    formula = Formula(FORMULAS[function])
    names = tuple("abc"[: len(values)])
    return y, tangentsOf((formula,), names, values, tangents, [y])[0]


@register_tangent(np.clip)
def clipped(function: Any, values: list, tangents: list, options: dict) -> tuple[Any, Any]:
    """Passes between the bounds, and at both; a bound that is None is infinite."""
    refuse(function, options, "where")
    low, high = options.pop("min", None), options.pop("max", None)
    x, low, high = (*values, *[low, high][len(values) - 1 :])[:3]
    ends = [-np.inf if low is None else low, np.inf if high is None else high]
    y = function(x, low, high, **options)
    changes = [*tangents, None, None][:3]
    return y, tangentsOf((Formula("clip(a, b, c)"),), ("a", "b", "c"), [x, *ends], changes, [y])[0]


@register_tangent(np.where)
def chosen(function: Any, values: list, tangents: list, options: dict) -> tuple[Any, Any]:
    """The tangent of what is chosen; the condition does not change."""
    y = function(*values)
    if len(values) == 1 or not moves(tangents[1:]):
        return y, None
    return y, spread(function(values[0], *[0.0 if t is None else t for t in tangents[1:]]), y)


# ---- linear functions: themselves ---------------------------------------------------------------------------


@register_tangent(
    *(np.reshape, np.transpose, np.moveaxis, np.swapaxes, np.squeeze, np.expand_dims, np.ravel, np.broadcast_to),
    *(np.rollaxis, np.atleast_1d, np.atleast_2d, np.atleast_3d, np.flip, np.fliplr, np.flipud, np.roll, np.rot90),
    *(np.repeat, np.tile, np.take, np.take_along_axis, np.delete, np.diagonal, np.diag, np.trace),
    *(np.tril, np.triu, np.mean, np.cumsum, np.copy, np.real, np.split, np.array_split, np.hsplit),
    *(np.vsplit, np.dsplit, np.resize, np.fft.fftshift, np.fft.ifftshift, np.add.accumulate),
    *(meanPool, meanPoolGrad, maxPoolGrad, gather, scatterAdd, addAt, takeClass, putClass, ontoDiagonal),
)
def linear(function: Any, values: list, tangents: list, options: dict) -> tuple[Any, Any]:
    """Linear in the first argument; the others say how."""
    alone(function, tangents, 0)
    return function(*values, **options), function(tangents[0], *values[1:], **options)


@register_tangent(np.sum, np.add.reduce)
def summed(function: Any, values: list, tangents: list, options: dict) -> tuple[Any, Any]:
    """Linear, but for what the sum starts from."""
    alone(function, tangents, 0)
    rest = {name: option for name, option in options.items() if name != "initial"}
    return function(*values, **options), function(tangents[0], *values[1:], **rest)


@register_tangent(np.compress)
def compressed(function: Any, values: list, tangents: list, options: dict) -> tuple[Any, Any]:
    """Linear in the second argument."""
    alone(function, tangents, 1)
    return function(*values, **options), function(values[0], tangents[1], *values[2:], **options)


@register_tangent(np.diff)
def differences(function: Any, values: list, tangents: list, options: dict) -> tuple[Any, Any]:
    """Linear; what is put before and after does not move."""
    alone(function, tangents, 0, 3, 4)
    ends = dict(zip(("prepend", "append"), zip(values[3:], tangents[3:])))
    ends |= {name: (options[name], None) for name in ("prepend", "append") if name in options}
    known = {name: (x, t) for name, (x, t) in ends.items() if x is not np._NoValue}
    rest = {name: option for name, option in options.items() if name not in known}
    change = np.zeros_like(values[0]) if tangents[0] is None else tangents[0]
    moved = {name: np.zeros_like(x, dtype=change.dtype) if t is None else t for name, (x, t) in known.items()}
    y = function(*values[:3], **rest, **{name: x for name, (x, _) in known.items()})
    return y, function(change, *values[1:3], **rest, **moved)


@register_tangent(np.round, np.around)
def rounded(function: Any, values: list, tangents: list, options: dict) -> tuple[Any, Any]:
    """It stays between its steps."""
    return function(*values, **options), None


@register_tangent(astype)
def converted(function: Any, values: list, tangents: list, options: dict) -> tuple[Any, Any]:
    """In the other dtype; none in one of whole numbers."""
    y = function(*values, **options)
    return y, function(tangents[0], *values[1:], **options) if y.dtype.kind == "f" else None


@register_tangent(
    *(np.concatenate, np.stack, np.vstack, np.hstack, np.dstack, np.column_stack),
)
def joined(function: Any, values: list, tangents: list, options: dict) -> tuple[Any, Any]:
    """Linear in all arrays of a list at once."""
    parts = [np.zeros_like(x) if t is None else t for x, t in zip(values[0], tangents[0])]
    return function(*values, **options), function(parts, *values[1:], **options)


@register_tangent(np.broadcast_arrays)
def broadcasted(function: Any, values: list, tangents: list, options: dict) -> tuple[Any, Any]:
    """Linear in all arrays at once."""
    parts = [np.zeros_like(x) if t is None else t for x, t in zip(values, tangents)]
    return function(*values, **options), function(*parts, **options)


@register_tangent(
    *(np.matmul, np.dot, np.vdot, np.inner, np.outer, np.tensordot, np.einsum, np.kron, np.cross, np.convolve),
    *(np.multiply.outer, convolve, convolveData, convolveWeight),
)
def multilinear(function: Any, values: list, tangents: list, options: dict) -> tuple[Any, Any]:
    """Linear in each array: each tangent in its turn takes the place of its array, and all that comes is added."""
    total = None
    for i, t in enumerate(tangents):
        if t is not None:
            part = function(*values[:i], t, *values[i + 1 :], **options)
            total = part if total is None else total + part
    return function(*values, **options), total


@register_tangent(np.pad)
def padded(function: Any, values: list, tangents: list, options: dict) -> tuple[Any, Any]:
    """Linear, but for constants around it."""
    mode = values[2] if len(values) > 2 else options.get("mode", "constant")
    if mode in ("maximum", "minimum", "median", "empty") or not isinstance(mode, str):
        raise AutoDiffException(f"forward mode knows no tangent of numpy.pad with mode {mode!r}")
    rest = {name: option for name, option in options.items() if name not in ("constant_values", "end_values")}
    return function(*values, **options), function(tangents[0], *values[1:], **rest)


@register_tangent(np.full_like)
def filled(function: Any, values: list, tangents: list, options: dict) -> tuple[Any, Any]:
    """Only what it is filled with matters."""
    y, t = function(*values, **options), tangents[1]
    return y, None if t is None or y.dtype.kind != "f" else function(values[0], t, *values[2:], **options)


@register_tangent(
    *(np.zeros_like, np.ones_like, np.empty_like, np.argmax, np.argmin, np.argsort, np.nonzero, np.count_nonzero),
    *(np.any, np.all, np.shape, np.ndim, np.size, np.result_type, np.isclose, np.allclose, np.array_equal),
    *(np.argwhere, np.flatnonzero, np.searchsorted, np.isposinf, np.isneginf, np.iscomplexobj, np.isrealobj),
    *(np.can_cast, np.common_type, np.shares_memory, np.may_share_memory),
)
def plain(function: Any, values: list, tangents: list, options: dict) -> tuple[Any, Any]:
    """What does not change, whatever its arguments do."""
    return function(*values, **options), None


# ---- reductions and orders ----------------------------------------------------------------------------------


def alongAxis(values: list, options: dict, place: int = 1) -> tuple[Any, bool]:
    """The axis and keepdims of a reduction, wherever they were given."""
    axis = values[place] if len(values) > place else options.get("axis")
    return axis, bool(options.get("keepdims") is True)


@register_tangent(np.max, np.amax, np.min, np.amin, np.maximum.reduce, np.minimum.reduce)
def extreme(function: Any, values: list, tangents: list, options: dict) -> tuple[Any, Any]:
    """The tangent of what was chosen; of equal ones the mean."""
    x, t = values[0], tangents[0]
    y = function(*values, **options)
    axis, keepdims = alongAxis(values, options)
    if getattr(function, "__self__", None) is not None and len(values) == 1 and "axis" not in options:
        axis = 0  # the default of a ufunc's own reduce
    mask = x == function(x, **{**options, "axis": axis, "keepdims": True})
    if "where" in options:
        mask = mask & options["where"]
    count = np.maximum(mask.sum(axis=axis, keepdims=keepdims), 1).astype(t.dtype)
    return y, np.where(mask, t, 0).sum(axis=axis, keepdims=keepdims) / count


@register_tangent(np.var, np.std)
def spreadOf(function: Any, values: list, tangents: list, options: dict) -> tuple[Any, Any]:
    """2 sum (x - m) t / (k - ddof), and half of that over the deviation; 0 where that is, as going backward."""
    alone(function, tangents, 0)
    x, t = values[0], tangents[0]
    y = function(*values, **options)
    axis, keepdims = alongAxis(values, options)
    counts = {"where": options["where"]} if options.get("where", np._NoValue) is not np._NoValue else {}
    given = options.get("mean", np._NoValue)
    rest = x - (x.mean(axis=axis, keepdims=True, **counts) if given is np._NoValue else given)
    ddof = values[4] if len(values) > 4 else options.get("ddof", 0)
    fewer = ddof or (0 if options.get("correction", np._NoValue) is np._NoValue else options["correction"])
    count = np.broadcast_to(counts.get("where", True), x.shape).sum(axis=axis, keepdims=keepdims) - fewer
    found = (rest * t).sum(axis=axis, keepdims=keepdims, **counts) * (2 / count)
    if function is np.std:
        found = np.where(y == 0, 0, found / np.where(y == 0, 1, 2 * y))
    return y, spread(found, y)


@register_tangent(np.prod, np.multiply.reduce, np.cumprod)
def multiplied(function: Any, values: list, tangents: list, options: dict) -> tuple[Any, Any]:
    """The product rule, one factor after the other, so that zeros do no harm."""
    alone(function, tangents, 0)
    x, t = values[0], tangents[0]
    y = function(*values, **options)
    axis, _ = alongAxis(values, options)
    where, initial = (options.get(name, np._NoValue) for name in ("where", "initial"))
    if where is not np._NoValue:
        x, t = np.where(where, x, 1), np.where(where, t, 0)
    if function == np.multiply.reduce and len(values) == 1 and "axis" not in options:
        axis = 0
    axes = range(x.ndim) if axis is None else [a % x.ndim for a in (axis if isinstance(axis, tuple) else (axis,))]
    order = (*axes, *(a for a in range(x.ndim) if a not in axes))
    shape = (-1, *(x.shape[a] for a in order[len(axes) :]))
    factors, changes = x.transpose(order).reshape(shape), t.transpose(order).reshape(shape)
    first = 1 if initial is np._NoValue or initial is None else initial
    product, change = np.full_like(x, first, shape=shape[1:]), np.zeros_like(x, shape=shape[1:])
    steps = []
    for factor, d in zip(factors, changes):
        product, change = product * factor, change * factor + product * d
        steps.append(change)
    if function is np.cumprod:
        return y, np.moveaxis(np.stack(steps), 0, axis or 0).reshape(y.shape)
    return y, spread(change.reshape(y.shape), y)


@register_tangent(np.sort)
def ordered(function: Any, values: list, tangents: list, options: dict) -> tuple[Any, Any]:
    """In the order of the values."""
    axis = values[1] if len(values) > 1 else options.get("axis", -1)
    x, t = (values[0], tangents[0]) if axis is not None else (values[0].reshape(-1), tangents[0].reshape(-1))
    axis = -1 if axis is None else axis
    return function(*values, **options), np.take_along_axis(t, np.argsort(x, axis=axis, kind="stable"), axis)


@register_tangent(maxPool)
def pooled(function: Any, values: list, tangents: list, options: dict) -> tuple[Any, Any]:
    """The tangent of where the maximum was found; none for a window of nothing but padding."""
    y, indices = function(*values, **options)
    t = tangents[0].reshape(*y.shape[:2], -1)
    places = indices.reshape(*y.shape[:2], -1)
    found = np.take_along_axis(t, np.maximum(places, 0).astype(np.intp), axis=2)
    return (y, indices), (np.where(places < 0, 0, found).astype(y.dtype, copy=False).reshape(y.shape), None)


# ---- linear algebra -----------------------------------------------------------------------------------------


@register_tangent(np.linalg.inv)
def inverted(function: Any, values: list, tangents: list, options: dict) -> tuple[Any, Any]:
    """y = 1/a: -y t y."""
    y = function(*values)
    return y, -(y @ tangents[0] @ y)


@register_tangent(np.linalg.solve)
def solved(function: Any, values: list, tangents: list, options: dict) -> tuple[Any, Any]:
    """a y = b: a times the tangent of y is that of b, less ta y."""
    a, b = values
    y = function(a, b)
    ta, tb = tangents
    rest = np.zeros_like(y) if tb is None else tb
    return y, function(a, rest if ta is None else rest - ta @ y)


@register_tangent(np.linalg.det)
def determinant(function: Any, values: list, tangents: list, options: dict) -> tuple[Any, Any]:
    """y trace(t / a)."""
    y = function(*values)
    return y, y * np.trace(np.linalg.solve(values[0], tangents[0]), axis1=-2, axis2=-1)


@register_tangent(np.linalg.norm)
def length(function: Any, values: list, tangents: list, options: dict) -> tuple[Any, Any]:
    """sum x t / y, for the square root of the sum of squares; 0 where that is, as going backward."""
    axis, keepdims = alongAxis(values, options, 2)
    order = values[1] if len(values) > 1 else options.get("ord")
    isVector = isinstance(axis, int) or (axis is None and values[0].ndim == 1)
    if not (order is None or order == 2 and isVector):
        raise AutoDiffException(f"forward mode knows no tangent of numpy.linalg.norm with ord={order!r}")
    y = function(*values, **options)
    change = (values[0] * tangents[0]).sum(axis=axis, keepdims=keepdims)
    return y, np.where(y == 0, 0, change / np.where(y == 0, 1, y))
