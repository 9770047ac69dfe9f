"""Decomposition: registers a function as composed of simpler ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from puregraph.core.tracer import Tracer
from puregraph.kernel import Kernel, declared, needReached

Rule = Callable[..., Any]
SIMPLER: dict[Any, Rule] = {}  # of functions that are no Kernels; those declare it


def simpler(*functions: Any) -> Callable[[Rule], Rule]:
    """Register a rule for functions: of their arguments it computes the same result, or gives NotImplemented."""

    needReached("decomposition", functions, SIMPLER)

    def keep(rule: Rule) -> Rule:
        for function in functions:
            if isinstance(function, Kernel):
                function.decompose(rule)
            else:
                SIMPLER[function] = rule
        return rule

    return keep


def decompositionOf(function: Any) -> Rule | None:
    """The rule that composes a function of simpler ones, or None."""
    return declared(function, "decompose") or SIMPLER.get(function)


def areRecorded(*xs: Any) -> bool:
    """Whether all are traced values."""
    return all(isinstance(x, Tracer) for x in xs)


def along(axis: int, *keys: Any) -> tuple[Any, ...]:
    """The index of something along an axis and those after it."""
    return (slice(None),) * axis + keys
