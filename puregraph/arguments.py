"""Arguments of constructors, checked where they are given: the message says which one, and what it takes."""

from __future__ import annotations

from collections.abc import Iterable
from numbers import Integral, Real
from typing import Any

from puregraph.errors import need


def isWhole(value: Any, least: int | None = None) -> bool:
    """Whether this is a whole number, of at least `least`."""
    return isinstance(value, Integral) and not isinstance(value, bool) and (least is None or int(value) >= least)


def whole(what: str, value: Any, least: int | None = 1, hint: str = "") -> int:
    """A whole number of at least `least`, as an int.

    Raises    ShapeError for anything else
    """
    bound = "" if least is None else f" of at least {least}"
    need(isWhole(value, least), f"{what} as a whole number{bound}", repr(value), hint)
    return int(value)


def axes(what: str, value: Any) -> Any:
    """None, an axis, or a tuple of axes; a list is a tuple.

    Raises    ShapeError for anything else
    """
    if value is None or isWhole(value):
        return value if value is None else int(value)
    several = isinstance(value, (tuple, list)) and all(map(isWhole, value))
    need(several, f"{what} as a whole number, a tuple of them, or None", repr(value))
    return tuple(map(int, value))


def isNumber(value: Any) -> bool:
    """Whether this is a real number, and not nan."""
    return isinstance(value, Real) and not isinstance(value, bool) and value == value


def areNumbers(values: Any) -> bool:
    """Whether these are several real numbers."""
    return isinstance(values, Iterable) and not isinstance(values, (str, dict)) and all(map(isNumber, values))
