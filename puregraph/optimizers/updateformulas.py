"""Update formulas: the formulas of an optimizer's class, with its settings put in, and the names that they use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, TypeVar, cast

from puregraph.ops.formula import Formula
from puregraph.ops.formula.formula import numpyFrom
from puregraph.optimizers.scalars import plain

F = TypeVar("F", bound=Callable[..., Any])
GIVEN = {"param", "grad", "rate", "decay", "step"}  # what a rule may name besides its states, scalars and attributes


def memoized(function: F) -> F:
    """The function, which keeps its last results; its arguments are checked as they were."""
    return cast(F, lru_cache(maxsize=256)(function))


@memoized
def states(cls: type[Any]) -> tuple[str, ...]:
    """The names of the arrays that a rule keeps."""
    return tuple([name for name in cls.rule if name != "param"])


@memoized
def used(cls: type[Any]) -> frozenset[str]:
    """All names in the formulas of a class."""
    texts = [*cls.rule.values(), *cls.scalars.values()]
    return frozenset(name for text in texts for name in Formula(text).names)


@memoized
def stored(cls: type[Any]) -> tuple[str, ...]:
    """The names of what a checkpoint holds for each parameter."""
    return (*states(cls), *(["step"] if "step" in used(cls) else []))


@memoized
def attributes(cls: type[Any]) -> tuple[str, ...]:
    """The names in the formulas of a class that are its attributes."""
    return tuple(sorted(used(cls) - GIVEN - set(cls.rule) - set(cls.scalars)))


def puts(formula: Formula, parts: Mapping[str, Any]) -> Formula:
    """Substitute the parts that a formula names."""
    return formula.put(**{name: part for name, part in parts.items() if name in formula.names})


@memoized
def scalarsAt(cls: type[Any], constants: tuple, step: float) -> Mapping[str, float]:
    """Return the scalars of a class with these constants at a step; they are shared by parameters with as many
    updates."""
    if not cls.scalars:
        return {}
    functions, whole = scalarsOf(cls, constants)
    try:
        return {name: function(step) for name, function in zip(cls.scalars, functions)}
    except (TypeError, ValueError, ArithmeticError):  # no plain number: numpy gives nan or inf
        return dict(zip(cls.scalars, map(float, whole(step))))


@memoized
def scalarsOf(cls: type[Any], constants: tuple) -> tuple[list[Any], Any]:
    """The scalars of a class with these constants: each as a function of the step, and all of them as one."""
    formulas = [puts(Formula(text), dict(constants)) for text in cls.scalars.values()]
    return [plain(f.term) for f in formulas], numpyFrom(formulas, ("step",))


@memoized
def formulasOf(cls: type[Any], constants: tuple, grad: str, decays: bool) -> dict[str, Formula]:
    """The rule of a class with these constants, each formula with those before it put in, and with this gradient."""
    if decays and "decay" not in used(cls):
        grad = f"{grad} + decay * param"
    now: dict[str, Formula] = {}
    for name, text in cls.rule.items():
        formula = puts(Formula(text), {"grad": grad, **now})
        now[name] = puts(formula, dict(constants))
    return now


@memoized
def together(formulas: tuple[Formula, ...]) -> tuple[tuple[str, ...], Any]:
    """The names that formulas have, and one function of them that computes all formulas before it writes any."""
    names = tuple(dict.fromkeys(name for formula in formulas for name in formula.names))
    return names, numpyFrom(formulas, names)
