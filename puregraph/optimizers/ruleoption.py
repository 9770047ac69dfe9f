"""RuleOption: a setting that chooses the formulas of an optimizer, and so cannot change once they are chosen."""

from __future__ import annotations

from typing import Any

from puregraph.core.errors import ArgumentError
from puregraph.optimizers.averages import Average


class RuleOption:
    """The attribute for a setting by which a constructor chooses its rule: an average, a flag, a number that may be 0.

    Another number that is not 0 takes effect in the next update.

    Raises    ArgumentError for a value that asks for another rule
    """

    def __set_name__(self, kind: type, name: str) -> None:
        self.name = name

    def __get__(self, optimizer: Any, kind: Any = None) -> Any:
        if optimizer is None:
            return self
        try:
            return vars(optimizer)[self.name]
        except KeyError:
            raise AttributeError(f"{type(optimizer).__name__} has no {self.name} yet") from None

    def __set__(self, optimizer: Any, value: Any) -> None:
        values = vars(optimizer)
        if self.name in values and choiceOf(values[self.name]) != choiceOf(value):
            kind = type(optimizer).__name__
            raise ArgumentError(
                f"{kind}: {self.name} chooses its formulas and state, and cannot be changed; make another optimizer "
                f"with {kind}({self.name}=...)"
            )
        values[self.name] = value


def choiceOf(value: Any) -> Any:
    """Return the part of a value that selects formulas: an average itself, otherwise its truth value."""
    return value if isinstance(value, Average) else bool(value)
