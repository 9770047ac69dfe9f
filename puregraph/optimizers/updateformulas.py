"""Update formulas: the rule of an optimizer as formulas, with its settings substituted, and the names that they use."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import Any, TypeVar, cast

from puregraph.ops.formula import Formula
from puregraph.ops.formula.formula import numpyFrom
from puregraph.optimizers.scalars import plain

F = TypeVar("F", bound=Callable[..., Any])
Texts = tuple[tuple[str, Any], ...]  # names with formulas or functions of the step
PROVIDED = {"param", "grad", "rate", "decay", "step"}  # what a rule may name besides states, scalars and attributes


def memoized(function: F) -> F:
    """Return the function with a cache of its last results; mypy still checks its arguments."""
    return cast(F, lru_cache(maxsize=256)(function))


@memoized
def namesOf(texts: tuple[Any, Texts], every: bool = False) -> tuple[str, ...]:
    """Return the names in a rule and its scalars that must be attributes of the optimizer; with `every`, all names."""
    rule, scalars = texts
    sources = [rule, *(text for _, text in scalars)] if callable(rule) else [text for _, text in (*rule, *scalars)]
    names = {name for f in sources for name in (inspect.signature(f).parameters if callable(f) else Formula(f).names)}
    assigned = {name for name, _ in (*(() if callable(rule) else rule), *scalars)}
    return tuple(sorted(names if every else names - PROVIDED - assigned))


def puts(formula: Formula, parts: Mapping[str, Any]) -> Formula:
    """Return a formula with the parts that it names substituted."""
    return formula.put(**{name: part for name, part in parts.items() if name in formula.names})


@memoized
def scalarsAt(scalars: Texts, constants: tuple, step: float) -> Mapping[str, float]:
    """Return the scalars with these constants at a step. Parameters with equal numbers of updates share the result."""
    functions, vector = scalarsOf(scalars, constants)
    if vector is None:
        return {name: float(function(step)) for (name, _), function in zip(scalars, functions)}
    try:
        return {name: function(step) for (name, _), function in zip(scalars, functions)}
    except (TypeError, ValueError, ArithmeticError):  # Python raises where numpy gives nan or inf
        return {name: float(value) for (name, _), value in zip(scalars, vector(step))}


@memoized
def scalarsOf(scalars: Texts, constants: tuple) -> tuple[list[Any], Any]:
    """Return the scalars with these constants: each as a function of the step, and one function for all, or None."""
    known = dict(constants)
    formulas = [puts(Formula(text), known) for _, text in scalars if not callable(text)]
    if len(formulas) == len(scalars):
        return [plain(f.term) for f in formulas], numpyFrom(formulas, ("step",))
    functions: dict[str, Any] = {name: withConstants(text, known) for name, text in scalars if callable(text)}
    others = zip([name for name, _ in scalars if name not in functions], formulas)
    functions |= {name: plain(f.term) or numpyFrom([f], ("step",)) for name, f in others}
    return [functions[name] for name, _ in scalars], None


def withConstants(function: Callable[..., float], constants: Mapping[str, Any]) -> Callable[[float], float]:
    """Return a function of the step only: the constants that the function's arguments name are bound."""
    names = [name for name in inspect.signature(function).parameters if name != "step"]
    return partial(function, **{name: constants[name] for name in names})


@memoized
def formulasOf(texts: tuple[Texts, Texts], constants: tuple, grad: str, decay: str) -> dict[str, Formula]:
    """Return the formulas of a rule with this gradient and these constants, earlier formulas substituted in later ones.

    `decay` is "coupled" to the gradient, "decoupled" from it, or empty.
    """
    now: dict[str, Formula] = {}
    first: dict[str, Any] = {"grad": grad}
    if decay and "decay" not in namesOf(texts, every=True):
        first |= (
            {"grad": f"{grad} + decay * param"} if decay == "coupled" else {"param": "param - rate * decay * param"}
        )
    for name, text in texts[0]:
        formula = puts(Formula(text), {**first, **now})
        now[name] = puts(formula, dict(constants))
    return now


@memoized
def together(formulas: tuple[Formula, ...]) -> tuple[tuple[str, ...], Any]:
    """Return the names in formulas, and one function of them that computes all formulas before it writes any."""
    names = tuple(dict.fromkeys(name for formula in formulas for name in formula.names))
    return names, numpyFrom(formulas, names)
