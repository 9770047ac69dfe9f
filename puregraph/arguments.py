"""Arguments: what a constructor takes, written as annotations of its parameters and checked before it runs.

    def __init__(self, p: Probability = 0.5, useBias: Flag = True, mode: choice("nearest", "linear") = "nearest"):

A subclass that calls `super().__init__` with such an argument is checked as well.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from numbers import Integral, Real
from typing import Any

import numpy as np

from puregraph.errors import ArgumentError, Fault, PuregraphError, ShapeError


class Argument:
    """What an argument has to be: the words for it, a test, and where it is something else an error and a hint."""

    def __init__(
        self, wanted: str, holds: Callable[[Any], bool], error: type[PuregraphError] = ArgumentError, hint: str = ""
    ):
        self.wanted, self.holds, self.error, self.hint = wanted, holds, error, hint

    def check(self, owner: str, name: str, value: Any, hint: str = "") -> None:
        """Refuse what is something else.

        Raises    ArgumentError, or ShapeError for a size
        """
        if not self.holds(value):
            fault = Fault(f"{name} as {self.wanted}", f"{value!r:.200}", self.hint or hint, module=owner)
            raise ShapeError(fault) if self.error is ShapeError else self.error(str(fault))

    def __repr__(self) -> str:
        return self.wanted


def isWhole(value: Any, least: int) -> bool:
    """Whether this is a whole number of at least `least`."""
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= least


def isNumber(value: Any) -> bool:
    """Whether this is one finite number."""
    return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)


Flag = Argument("True or False", lambda value: isinstance(value, (bool, np.bool_)))
Number = Argument("a finite number", isNumber)
NotNegative = Argument("a finite number of at least 0", lambda value: isNumber(value) and value >= 0)
Scalar = Argument("a number", lambda value: isNumber(value) or isinstance(value, Real) and math.isinf(value))
Fraction = Argument("a number from 0 to 1", lambda value: isNumber(value) and 0 <= value <= 1)
Probability = Argument("a probability with 0 <= p < 1", lambda value: isNumber(value) and 0 <= value < 1)
Text = Argument("a text", lambda value: isinstance(value, str))
Texts = Argument(
    "a text, or a tuple of texts",
    lambda value: all(isinstance(text, str) for text in (value if isinstance(value, (tuple, list)) else (value,))),
)
Whole = Argument(
    "a whole number", lambda value: isinstance(value, Integral) and not isinstance(value, bool), ShapeError
)
Axes = Argument("a tuple of axes, such as (0, 2, 1)", lambda value: isinstance(value, (tuple, list)), ShapeError)
Size = Argument("a whole number of at least 0", lambda value: isWhole(value, 0), ShapeError)
Count = Argument("a whole number of at least 1", lambda value: isWhole(value, 1), ShapeError)


def optional(kind: Argument) -> Argument:
    """That, or None."""
    return Argument(f"{kind.wanted}, or None", lambda value: value is None or kind.holds(value), kind.error)


def hinted(kind: Argument, hint: str) -> Argument:
    """That, and what to try where it is something else."""
    return Argument(kind.wanted, kind.holds, kind.error, hint)


def choice(*values: str) -> Argument:
    """One of these texts."""
    return Argument(f"one of {', '.join(map(repr, values))}", lambda value: isinstance(value, str) and value in values)


def checked(construct: Any) -> Any:
    """A constructor whose annotated arguments are looked at first; itself, where none is annotated with an Argument."""
    kinds = {name: kind for name, kind in construct.__annotations__.items() if isinstance(kind, Argument)}
    if not kinds:
        return construct
    code = construct.__code__
    names = code.co_varnames[1 : code.co_argcount]

    @functools.wraps(construct)
    def checkAndConstruct(self: Any, *args: Any, **kwargs: Any) -> None:
        for i, (name, value) in enumerate(zip(names, args)):
            if name in kinds:
                hint = f"argument {i + 1} is {name}: give another one by its name" if kinds[name] is Flag else ""
                kinds[name].check(type(self).__name__, name, value, hint)
        for name, value in kwargs.items():
            if name in kinds:
                kinds[name].check(type(self).__name__, name, value)
        construct(self, *args, **kwargs)

    return checkAndConstruct
