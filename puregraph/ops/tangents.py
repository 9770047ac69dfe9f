"""Tangents: checks that the tangent rules of several families share."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

import numpy as np

from puregraph.core.errors import AutoDiffException

if TYPE_CHECKING:
    from puregraph.core.rules import ArrayFunction

LEFTOUT = inspect.signature(np.sum).parameters["initial"].default  # numpy's default for an option that is not given


def isLeftOut(value: object) -> bool:
    """True if an option was left out."""
    return value is None or value is LEFTOUT


def nameOf(function: ArrayFunction) -> str:
    """The name of a function in a message, such as numpy.add.reduce."""
    owner = getattr(function, "__self__", None)
    inside = f"{owner.__name__}." if isinstance(owner, np.ufunc) else ""
    module = getattr(function, "__module__", None) or "numpy"
    return f"{module.removesuffix('.core').split('._')[0]}.{inside}{getattr(function, '__name__', function)}"


def changes(tangents: object) -> bool:
    """True if there is any tangent."""
    if isinstance(tangents, (list, tuple)):
        return any(map(changes, tangents))
    return tangents is not None


def refuse(function: ArrayFunction, options: dict, *names: str) -> None:
    """Raise AutoDiffException for an option that a rule ignores; None and True count as not given."""
    for name in names:
        value = options.get(name)
        if not (isLeftOut(value) or value is True):
            raise AutoDiffException(f"forward mode knows no tangent of {nameOf(function)} with {name}={value!r:.40}")


def alone(function: ArrayFunction, tangents: list, *positions: int) -> None:
    """Raise AutoDiffException if an argument has a tangent, but the rule treats it as a constant."""
    moving = [i for i, t in enumerate(tangents) if changes(t) and i not in positions]
    if moving:
        raise AutoDiffException(
            f"forward mode knows no tangent of {nameOf(function)} along its argument {moving[0]}, only along "
            f"{', '.join(map(str, positions))}"
        )
