"""The derivatives of ufuncs, Formulas and other elementwise functions, by formula in both modes."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from puregraph.autodiff.derivatives.declarations import Vjp
from puregraph.core.accumulate import combine, inShape, shapeOf
from puregraph.core.tracer import astype
from puregraph.graph.pointwise import asGradient, pullback
from puregraph.ops.formula import Formula
from puregraph.ops.formula.expr import Term
from puregraph.ops.formula.formula import formulasOf, numpyFrom
from puregraph.ops.formula.interpreter import Interpreter
from puregraph.ops.formula.optable import LOGICAL, OPERATORS, TABLE
from puregraph.ops.formula.ufunctexts import TEXTS, ufuncFormula
from puregraph.ops.operation import op
from puregraph.ops.reduction.reference import fit
from puregraph.ops.tangents import isLeftOut, refuse

if TYPE_CHECKING:
    from collections.abc import Sequence

    from puregraph.core.protocols import AnyArray
    from puregraph.core.rules import ArrayFunction


# Gradients ------------------------------------------------------------------------------------------------------------


def formulaRule(formulas: list[Formula], names: tuple[str, ...], several: bool) -> Vjp:
    """The gradient rule of elementwise expressions of named arguments."""

    def rule(g: Any, y: Any, arguments: tuple, options: dict, needs: tuple) -> Any:
        grads, values = (g, y) if several else ((g,), (y,))
        parts: list[list[Any]] = [[] for _ in arguments]
        for formula, grad, value in zip(formulas, grads, values):
            if grad is None:
                continue
            partials = iter(pullback(formula, names, needs)(grad, *arguments, value))
            for part, a, needed in zip(parts, arguments, needs):
                if needed:
                    part.append(asGradient(next(partials), grad, shapeOf(a)))
        return tuple([combine(part) if part else None for part in parts])

    return rule


@cache
def pullbackOf(function: ArrayFunction) -> Vjp | None:
    """The rule of a ufunc or of an Interpreter; None for anything else."""
    if isinstance(function, Interpreter):
        fresh = {name: f"v{i}" for i, name in enumerate(function.names)}
        formulas = [f.put(**{name: fresh[name] for name in f.names}) for f in formulasOf(function)]
        return formulaRule(formulas, tuple(fresh.values()), True)
    formula = ufuncFormula(function)
    if formula is None:
        return None
    return formulaRule([formula], tuple("abc"[: getattr(function, "nin", len(formula.names))]), False)


def composed(t: Term) -> Callable[..., Any]:
    """Compile a term of g, y, a and b to a Python function of these four: for short rules on a tape."""
    value = t.value
    if t.op == "number":
        return lambda *v: value
    if t.op == "name":
        i = "gyab".index(value)
        return lambda *v: v[i]
    f = OPERATORS.get(t.op) or TABLE[t.op].numpy
    first, last = t.args[0], t.args[-1]
    left, right = composed(first), composed(last)
    if len(t.args) == 1:
        return lambda *v: f(right(*v))
    if first.op == "number":
        c = first.value
        return lambda g, y, a, b=None: f(c, right(g, y, a, b))
    if first.op == "name":  # the common case, without a nested call
        i = "gyab".index(first.value)
        if last.op == "name":
            j = "gyab".index(last.value)
            return (lambda g, y, a, b=None: f(y, y)) if i == j == 1 else lambda *v: f(v[i], v[j])
        return (lambda g, y, a, b=None: f(g, right(g, y, a, b))) if i == 0 else lambda *v: f(v[i], right(*v))
    return lambda *v: f(left(*v), right(*v))


def slopesOf(name: str) -> tuple[Callable[..., Any], ...]:
    """The gradients of a table row's arguments, as functions of g, y, a and b."""
    return tuple([composed(Formula(pull).term) for pull in TABLE[name].pulls if pull is not None])


@lru_cache(maxsize=256)
def powerSlope(n: float) -> Callable[..., Any]:
    """The derivative of a ** n, times g, as a function of g, y and a."""
    slope = Formula("a ** b").put(b=n).gradient(["a"], seed="g")["a"]
    return composed(slope.term) if slope != ZERO else lambda g, y, a: g * 0


# Tangents -------------------------------------------------------------------------------------------------------------


ZERO = Formula(0)


@lru_cache(maxsize=4096)
def slope(formula: Formula, names: tuple[str, ...], active: tuple[bool, ...]) -> tuple[Formula, tuple[str, ...]]:
    """Return the tangent of a formula, the sum of dy/dx t over the active names x, and the names of the tangents t."""
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


@lru_cache(maxsize=4096)
def slopes(
    formulas: tuple[Formula, ...], names: tuple[str, ...], active: tuple[bool, ...]
) -> tuple[Interpreter | None, list[int]]:
    """The function (values, tangents) -> nonzero tangents of formulas, and the indices of those formulas."""
    pairs = [slope(formula, names, active) for formula in formulas]
    there = [i for i, (total, _) in enumerate(pairs) if total != ZERO]
    if not there:
        return None, []
    return numpyFrom([pairs[i][0] for i in there], (*names, *pairs[0][1])), there


def throughFormulas(function: Interpreter, values: list, tangents: list, options: dict) -> tuple[Any, Any]:
    """Differentiate branches separately, so that a branch that a condition discards cannot make a tangent nan."""
    results = function(*values)
    formulas = tuple(formulasOf(function))
    return results, tangentsOf(formulas, function.names, values, tangents, results)


def tangentsOf(
    formulas: tuple, names: tuple, values: list, tangents: list, results: Sequence[AnyArray]
) -> list[AnyArray | None]:
    """Compute the tangent of each formula's value, in its shape."""
    active = tuple([t is not None for t in tangents])
    evaluate, there = slopes(tuple(map(unlogical, formulas)), names, active)
    changes: list[Any] = [None] * len(formulas)
    if evaluate is not None:
        for i, t in zip(there, evaluate(*values, *[t for t in tangents if t is not None])):
            changes[i] = inShape(t, results[i])
    return changes


def unlogical(formula: Formula) -> Formula:
    """Return 0 for a formula of booleans, whose tangent is zero; other formulas are returned unchanged."""
    return ZERO if formula.term.op in LOGICAL else formula


@op(*TEXTS).jvp
def pointwiseTangent(
    function: ArrayFunction, values: list, tangents: list, options: dict
) -> tuple[AnyArray | None, AnyArray | None] | None:
    """Compute the tangent of a ufunc from its formula; None if the result is not float."""
    y = function(*values, **options)
    if type(y) is tuple or y.dtype.kind != "f":
        return y, None
    refuse(function, options, "where")
    return y, tangentsOf((ufuncFormula(function),), tuple("abc"[: len(values)]), values, tangents, [y])[0]


# What is pointwise and not a ufunc ------------------------------------------------------------------------------------


CLIP = Formula("clip(a, b, c)")


@op(np.clip).vjp
def clipRule(g, y, a, a_min=None, a_max=None, min=None, max=None):
    """The gradient goes to the value between and at the bounds, outside to the bound; an omitted bound is infinite."""
    low = next((x for x in (a_min, min) if not isLeftOut(x)), -np.inf)
    high = next((x for x in (a_max, max) if not isLeftOut(x)), np.inf)
    return formulaRule([CLIP], ("a", "b", "c"), False)(g, y, (a, low, high), {}, (True, True, True))


@op(np.clip).jvp
def clipped(function: ArrayFunction, values: list, tangents: list, options: dict) -> tuple[Any, Any]:
    """The tangent is the value's between and at the bounds, outside the bound's; a bound of None is infinite."""
    refuse(function, options, "where")
    low, high = options.pop("min", None), options.pop("max", None)
    x, low, high = (*values, *[low, high][len(values) - 1 :])[:3]
    ends = [-np.inf if low is None else low, np.inf if high is None else high]
    y = function(x, low, high, **options)
    changes = [*tangents, None, None][:3]
    return y, tangentsOf((CLIP,), ("a", "b", "c"), [x, *ends], changes, [y])[0]


@op(np.nan_to_num).vjp
def nanToNumRule(g, y, x, nan=0, posinf=None, neginf=None):
    """dx = g where x is finite, else 0."""
    return np.where(np.isfinite(x), g, 0)


@op(np.round, np.around).vjp
def roundRule(g, y, a, decimals=0):
    """dx = 0, as y is constant between its steps."""
    return np.zeros_like(g)


@op(np.round, np.around).jvp
def rounded(function: ArrayFunction, values: list, tangents: list, options: dict) -> tuple[Any, Any]:
    """The tangent of a step function: none, as it is constant between its steps."""
    return function(*values, **options), None


@op(np.full_like).vjp
def fullLikeRule(g, y, a, fill_value, shape=None):
    """y = v everywhere: dv = sum g."""
    return None, fit(g, fill_value)


@op(np.full_like).jvp
def filled(function: ArrayFunction, values: list, tangents: list, options: dict) -> tuple[Any, Any]:
    """The tangent is filled with that of the fill value."""
    y, t = function(*values, **options), tangents[1]
    return y, None if t is None or y.dtype.kind != "f" else function(values[0], t, *values[2:], **options)


@op(astype, getattr(np, "astype", astype)).vjp
def astypeRule(g: AnyArray, y: AnyArray, arguments: tuple, options: dict, needs: tuple) -> tuple[AnyArray | None, ...]:
    """dx = g in the dtype of x."""
    return (g.astype(arguments[0].dtype), *[None] * (len(arguments) - 1))


@op(astype).jvp
def converted(function: ArrayFunction, values: list, tangents: list, options: dict) -> tuple[Any, Any]:
    """The tangent in the new dtype; None for integers."""
    y = function(*values, **options)
    return y, function(tangents[0], *values[1:], **options) if y.dtype.kind == "f" else None
