"""Opaque: a rule that could not be traced, as one call; its results are learned when the graph itself runs once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from puregraph.base.dtype import isFloating, promoted
from puregraph.compile.ir.strides import contiguous, like
from puregraph.compile.ir.value import Value
from puregraph.compile.trace.recorder import Recorder
from puregraph.core.hooks import HOOKS
from puregraph.errors import PuregraphError
from puregraph.graph.steps import GraphStep


class NotCompiledError(PuregraphError):
    """A program cannot be compiled, and why: its graph runs instead, with one warning."""


class NotArraysError(NotCompiledError):
    """The values of a graph are no arrays: there is nothing to compile."""


class OpenSizesError(NotCompiledError):
    """Some sizes depend on the data: memory cannot be planned, and the graph runs itself, without a warning."""


class UntriedError(NotCompiledError):
    """A rule could not be traced, and has not run yet: the types of its results are unknown."""


class ResultSpec(NamedTuple):
    """The type of a result."""

    shape: tuple[int, ...]
    dtype: Any
    strides: tuple[int, ...]


class OpaqueRule:
    """A rule as a function: copies of its states follow its results, as the rule leaves them.

    `reason` says why it was not traced.
    """

    __slots__ = ("reason", "rule", "states")

    def __init__(self, rule: Any, states: tuple[int, ...], reason: str = ""):
        self.rule, self.states, self.reason = rule, states, reason

    @property
    def __name__(self) -> str:
        owner: Any = getattr(self.rule, "__self__", None)
        owner = getattr(owner, "module", owner)
        return owner.brief() if hasattr(owner, "brief") else getattr(self.rule, "__name__", "rule")

    def __call__(self, *arguments: Any) -> tuple:
        given = list(arguments)
        for i in self.states:
            given[i] = given[i].copy()
        result = self.rule(*given)
        return (*(result if type(result) is tuple else (result,)), *(given[i] for i in self.states))


class RuleProfile:
    """The results of rules when the graph ran, by the path of their node."""

    def __init__(self) -> None:
        self.results: dict[str, list[Any]] = {}

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Record the results of rules while the graph runs in the body."""
        before, HOOKS.look = HOOKS.look, self.look
        try:
            yield
        finally:
            HOOKS.look = before

    def resultsOf(self, step: GraphStep, values: list[Any]) -> list[Any] | None:
        """The results of one rule; None if it did not run."""
        return self.results.get(step.path)

    def look(self, path: str, module: Any, arguments: Any, results: Any, isGradient: bool = False) -> None:
        """Record one rule that has run."""
        self.results[path] = [self.noted(y) for y in results]

    def noted(self, y: Any) -> Any:
        """A result, without its data; what is no array as its type."""
        if y is None:
            return None
        return ResultSpec(tuple(y.shape), y.dtype, y.strides) if hasattr(y, "strides") else type(y)


class AssumedProfile(RuleProfile):
    """The results of rules that have not run, as shape and dtype rules say: for a table, never for a run."""

    def resultsOf(self, step: GraphStep, values: list[Any]) -> list[Any]:
        given = values[: step.inputs]
        shapes = step.module.dataShapeFrom(*[None if v is None else v.shape for v in given])
        dtypes = step.module.dataTypeFrom(*[None if v is None else v.dtype for v in given])
        usual = promoted(v.dtype for v in given if v is not None and v.role != "object" and isFloating(v.dtype))
        pairs = zip(*[each if isinstance(each, list) else [each] for each in (shapes, dtypes)], strict=True)
        found: list[Any] = []
        for shape, d in pairs:
            dtype = d or usual or np.dtype(np.float32)
            found.append(ResultSpec(tuple(shape), dtype, contiguous(shape, dtype.itemsize)))
        return [*found, *[object] * (len(step.outs) - len(found))]


def outputsOf(recorder: Recorder, step: GraphStep, values: list[Any], trial: RuleProfile | None) -> list[Any]:
    """Values for the results of a rule that takes these; hidden results may be anything.

    Raises    UntriedError if it has not run yet; NotArraysError if it does not give arrays
    """
    owner: Any = getattr(step.module, "of", step.module)
    if owner.exchanges:
        taken = [v.shape for v in values[: step.inputs]]
        shape = owner.dataShapeFrom(*taken) if step.module is owner else taken[0]
        return [recorder.value(shape, values[0].dtype)]
    if trial is None:
        raise UntriedError(f"at '{step.path}' ({step.label}): what it gives is known once it has run")
    found = trial.resultsOf(step, values)
    if found is None or len(found) != len(step.outs):
        raise NotArraysError(f"at '{step.path}' ({step.label}): it did not run")
    outs: list[Any] = []
    for y in found[: len(step.visible)]:
        if y is not None and type(y) is not ResultSpec:
            raise NotArraysError(f"at '{step.path}' ({step.label}): {y.__name__} is no array")
        outs.append(None if y is None else madeLike(recorder, y))
    return [*outs, *[recorder.thing() for _ in found[len(step.visible) :]]]


def madeLike(recorder: Recorder, y: ResultSpec) -> Value:
    """A Value with the layout of a recorded result."""
    return recorder.value(y.shape, y.dtype, like(y.shape, y.strides, y.dtype.itemsize))
