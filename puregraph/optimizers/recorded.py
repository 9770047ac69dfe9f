"""Recorded: what remembers how it was made, so that it can be written down as JSON and made again by name."""

from __future__ import annotations

import sys
from typing import Any

PLAIN = (bool, int, float, str, type(None))


class Recorded:
    """`recipe` holds the constructor's arguments, as (positional, by name); `describe` gives them as JSON."""

    recipe: tuple[tuple, dict]

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        self = super().__new__(cls)
        self.recipe = (args, kwargs)
        return self

    def describe(self) -> dict[str, Any]:
        """How to make it again: the name of its class and its arguments, as JSON has them; `rebuild` reads it.

        Raises    TypeError for an argument that JSON cannot hold, such as a function
        """
        args, kwargs = self.recipe
        name = type(self).__name__
        return {
            "type": name,
            "args": [plain(a, name) for a in args],
            "kwargs": {k: plain(a, f"{name}({k}=...)") for k, a in kwargs.items()},
        }

    def __repr__(self) -> str:
        args, kwargs = self.recipe
        given = [repr(a) for a in args] + [f"{k}={a!r}" for k, a in kwargs.items()]
        return f"{type(self).__name__}({', '.join(given)})"


def plain(value: Any, owner: str) -> Any:
    """An argument as JSON has it."""
    if isinstance(value, Recorded):
        return value.describe()
    if isinstance(value, PLAIN):
        return value
    raise TypeError(f"{owner}: {value!r} cannot be written down; wanted a number, a text or a Schedule")


def rebuild(described: Any) -> Any:
    """The optimizer or schedule that `describe` wrote down; only classes that this package exports are made.

    Raises    ValueError naming a class that is not among them
    """
    if not isinstance(described, dict):
        return described
    name = described.get("type")
    found = getattr(sys.modules[__package__], name, None) if isinstance(name, str) else None
    if not (isinstance(found, type) and issubclass(found, Recorded)):
        raise ValueError(
            f"puregraph.optimizers has no {name!r}; if the class is your own, make it yourself and restore its state"
        )
    args = [rebuild(a) for a in described.get("args", ())]
    return found(*args, **{k: rebuild(a) for k, a in described.get("kwargs", {}).items()})
