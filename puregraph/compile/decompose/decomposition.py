"""Decomposition: register how to write a function as simpler ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from puregraph.core.tracer import Tracer
from puregraph.ops.kernel import Kernel, declared, needReached

if TYPE_CHECKING:
    from puregraph.core.rules import ArrayFunction

Rule = Callable[..., Any]
SIMPLER: dict[Any, Rule] = {}  # for functions other than Kernels, which declare theirs


def simpler(*functions: Any) -> Callable[[Rule], Rule]:
    """Register a rule for functions: from the same arguments it computes the same result, or returns NotImplemented."""

    needReached("decomposition", functions, SIMPLER)

    def keep(rule: Rule) -> Rule:
        for function in functions:
            if isinstance(function, Kernel):
                function.decompose(rule)
            else:
                SIMPLER[function] = rule
        return rule

    return keep


def decompositionOf(function: ArrayFunction) -> Rule | None:
    """The rule that writes a function as simpler ones, or None."""
    return declared(function, "decompose") or SIMPLER.get(function)


def areRecorded(*xs: Any) -> bool:
    """True if all are traced values."""
    return all(isinstance(x, Tracer) for x in xs)


def along(axis: int, *keys: Any) -> tuple[Any, ...]:
    """An index for an axis, with full slices before it."""
    return (slice(None),) * axis + keys
