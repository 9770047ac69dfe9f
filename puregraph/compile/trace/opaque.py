"""Opaque: a rule that could not be traced becomes one call; one run of the graph shows its result types."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from puregraph.compile.trace.recorder import Recorder
from puregraph.core.base.dtype import isFloating, promoted
from puregraph.core.errors import PuregraphError
from puregraph.core.hooks import HOOKS
from puregraph.graph.steps import GraphStep
from puregraph.ops.ir.strides import contiguous, like
from puregraph.ops.ir.value import Value
from puregraph.ops.kernel import usePrograms

if TYPE_CHECKING:
    from puregraph.graph.module import Module


class NotCompiledError(PuregraphError):
    """A program cannot be compiled; the message says why. Its graph runs instead, with one warning."""


class NotArraysError(NotCompiledError):
    """A value of a graph is not an array: there is nothing to compile."""


class OpenSizesError(NotCompiledError):
    """Some sizes depend on data, so memory cannot be planned: the graph runs instead, without a warning."""


class UntriedError(NotCompiledError):
    """A rule could not be traced, and has not run yet: the types of its results are unknown."""


class ResultSpec(NamedTuple):
    """The shape, dtype and strides of a result."""

    shape: tuple[int, ...]
    dtype: np.dtype
    strides: tuple[int, ...]


class OpaqueRule:
    """A rule as a function that returns its results, then copies of its states after the call.

    `reason` says why it was not traced.
    """

    __slots__ = ("reason", "rule", "states")

    def __init__(self, rule: Callable[..., Any], states: tuple[int, ...], reason: str = ""):
        self.rule, self.states, self.reason = rule, states, reason

    @property
    def __name__(self) -> str:
        owner: Any = getattr(self.rule, "__self__", None)
        owner = getattr(owner, "module", owner)
        return owner.brief() if hasattr(owner, "brief") else getattr(self.rule, "__name__", "rule")

    def __call__(self, *arguments: Any) -> tuple:
        copies = list(arguments)
        for i in self.states:
            copies[i] = copies[i].copy()
        with usePrograms():
            result = self.rule(*copies)
        return (*(result if type(result) is tuple else (result,)), *(copies[i] for i in self.states))


class RuleProfile:
    """The results of rules in a run of the graph, by node path."""

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

    def look(self, path: str, module: Module, arguments: Any, results: Any, isGradient: bool = False) -> None:
        """Record one rule that has run."""
        self.results[path] = [self.noted(y) for y in results]

    def noted(self, y: Any) -> Any:
        """The shape, dtype and layout of a result; the type of a result that is not an array."""
        if y is None:
            return None
        return ResultSpec(tuple(y.shape), y.dtype, y.strides) if hasattr(y, "strides") else type(y)


class AssumedProfile(RuleProfile):
    """Assumed results of rules that have not run, from shape and dtype rules: for tables only, never for a run."""

    def resultsOf(self, step: GraphStep, values: list[Any]) -> list[Any]:
        inputs = values[: step.inputs]
        shapes = step.module.dataShapeFrom(*[None if v is None else v.shape for v in inputs])
        dtypes = step.module.dataTypeFrom(*[None if v is None else v.dtype for v in inputs])
        usual = promoted(v.dtype for v in inputs if v is not None and v.role != "object" and isFloating(v.dtype))
        declared = [x if isinstance(x, list) else [x] for x in (shapes, dtypes)]
        specs: list[Any] = []
        for shape, d in zip(*declared, strict=True):
            dtype = d or usual or np.dtype(np.float32)
            specs.append(ResultSpec(tuple(shape), dtype, contiguous(shape, dtype.itemsize)))
        return [*specs, *[object] * (len(step.outs) - len(specs))]


def outputsOf(recorder: Recorder, step: GraphStep, values: list[Any], trial: RuleProfile | None) -> list[Any]:
    """Values for an opaque rule's results; hidden results may be of any type.

    Raises    UntriedError if the rule has not run yet; NotArraysError if its results are not arrays
    """
    owner: Any = getattr(step.module, "of", step.module)
    if owner.exchanges:
        taken = [v.shape for v in values[: step.inputs]]
        shape = owner.dataShapeFrom(*taken) if step.module is owner else taken[0]
        return [recorder.value(shape, values[0].dtype)]
    if trial is None:
        raise UntriedError(f"at '{step.path}' ({step.label}): its result types are known only after it has run")
    results = trial.resultsOf(step, values)
    if results is None or len(results) != len(step.outs):
        raise NotArraysError(f"at '{step.path}' ({step.label}): it did not run")
    outs: list[Any] = []
    for y in results[: len(step.visible)]:
        if y is not None and type(y) is not ResultSpec:
            raise NotArraysError(f"at '{step.path}' ({step.label}): {y.__name__} is not an array")
        outs.append(None if y is None else madeLike(recorder, y))
    return [*outs, *[recorder.thing() for _ in results[len(step.visible) :]]]


def madeLike(recorder: Recorder, y: ResultSpec) -> Value:
    """A Value with the layout of a recorded result."""
    return recorder.value(y.shape, y.dtype, like(y.shape, y.strides, y.dtype.itemsize))
