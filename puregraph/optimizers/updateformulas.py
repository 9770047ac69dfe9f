"""Update formulas: the rule of an optimizer as formulas, with its settings put in, and the names that they use."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, TypeVar, cast

from puregraph.ops.formula import Formula
from puregraph.ops.formula.formula import numpyFrom
from puregraph.optimizers.scalars import plain

F = TypeVar("F", bound=Callable[..., Any])
Texts = tuple[tuple[str, str], ...]  # formulas by name
PROVIDED = {"param", "grad", "rate", "decay", "step"}  # what a rule may name besides states, scalars and attributes


def memoized(function: F) -> F:
    """The function, which keeps its last results; its arguments are checked as they were."""
    return cast(F, lru_cache(maxsize=256)(function))


@memoized
def namesOf(texts: tuple[Any, Texts], every: bool = False) -> tuple[str, ...]:
    """The names in a rule and its scalars that may be attributes of the optimizer; with `every`, all names."""
    rule, scalars = texts
    formulas = [text for _, text in (*(() if callable(rule) else rule), *scalars)]
    names = {name for text in formulas for name in Formula(text).names}
    if callable(rule):
        names |= set(inspect.signature(rule).parameters)
    assigned = {name for name, _ in (*(() if callable(rule) else rule), *scalars)}
    return tuple(sorted(names if every else names - PROVIDED - assigned))


def puts(formula: Formula, parts: Mapping[str, Any]) -> Formula:
    """Substitute the parts that a formula names."""
    return formula.put(**{name: part for name, part in parts.items() if name in formula.names})


@memoized
def scalarsAt(scalars: Texts, constants: tuple, step: float) -> Mapping[str, float]:
    """Return the scalars with these constants at a step; they are shared by parameters with as many updates."""
    functions, vector = scalarsOf(scalars, constants)
    try:
        return {name: function(step) for (name, _), function in zip(scalars, functions)}
    except (TypeError, ValueError, ArithmeticError):  # no plain number: numpy gives nan or inf
        return {name: float(value) for (name, _), value in zip(scalars, vector(step))}


@memoized
def scalarsOf(scalars: Texts, constants: tuple) -> tuple[list[Any], Any]:
    """The scalars with these constants: each as a function of the step, and all of them as one."""
    formulas = [puts(Formula(text), dict(constants)) for _, text in scalars]
    return [plain(f.term) for f in formulas], numpyFrom(formulas, ("step",))


@memoized
def formulasOf(texts: tuple[Texts, Texts], constants: tuple, grad: str, decays: bool) -> dict[str, Formula]:
    """The formulas of a rule with these constants, each with those before it put in, and with this gradient."""
    if decays and "decay" not in namesOf(texts, every=True):
        grad = f"{grad} + decay * param"
    now: dict[str, Formula] = {}
    for name, text in texts[0]:
        formula = puts(Formula(text), {"grad": grad, **now})
        now[name] = puts(formula, dict(constants))
    return now


@memoized
def together(formulas: tuple[Formula, ...]) -> tuple[tuple[str, ...], Any]:
    """The names that formulas have, and one function of them that computes all formulas before it writes any."""
    names = tuple(dict.fromkeys(name for formula in formulas for name in formula.names))
    return names, numpyFrom(formulas, names)
