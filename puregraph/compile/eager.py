"""Eager: run a program's step with the graph and the optimizer, as a fallback, a trial, or after a failure."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from puregraph.compile.backend import GPU
from puregraph.compile.fallback import warnOnce
from puregraph.compile.runtime.bind import DeviationError
from puregraph.compile.trace.opaque import RuleProfile
from puregraph.compile.trace.schedule import isFinite
from puregraph.core.accumulate import seedLike
from puregraph.core.base.signals import Deferred
from puregraph.core.errors import GraphWarning
from puregraph.core.errors.userwarning import warnUser

if TYPE_CHECKING:
    from puregraph.compile.partitioned import PartitionedGraph
    from puregraph.compile.program import Program
    from puregraph.core.protocols import AnyArray


def eagerStep(
    program: Program, inputs: list[AnyArray], numbers: dict[str, float], partitioned: PartitionedGraph | None = None
) -> Any:
    """Run a step with the graph and the optimizer; returns its outputs and sets input gradients as `program.grad`.

    A `partitioned` graph runs it in pieces.
    """
    graph, request, count = partitioned or program.graph, program.request, len(program.shapes)
    grads = request.grads
    if program.backend is GPU:
        inputs = list(map(sys.modules["cupy"].asarray, inputs))
    with inMode(program.modules, program.train):
        result = graph(inputs[:count])
        outputs = result if isinstance(result, list) else [result]
        if grads is not None and (not request.guarded or isFinite(outputs[0])):
            outputGrads = iter(inputs[count:])
            if grads == "one":
                seeds = [seedLike(outputs[0]), *[None] * (len(outputs) - 1)]
            else:
                seeds = [next(outputGrads) if hasGradient else None for hasGradient in grads]
            graph.backward(
                seeds if len(seeds) > 1 else seeds[0],
                updGrad=request.updGrad,
                scale=numbers.get("scale", 1.0),
                momentum=1.0 if request.added else 0.0,
            )
            program.grad = graph.grad
            if program.optimizer is not None:
                with Deferred():
                    program.optimizer.update() if partitioned is None else partitioned.applyUpdate(program.optimizer)
    wanted = request.wanted or [True] * len(outputs)
    outputs = [y if w else None for y, w in zip(outputs, wanted)]
    return outputs[0] if len(outputs) == 1 else outputs


@contextmanager
def inMode(modules: Sequence[Any], train: bool | None) -> Iterator[None]:
    """Set modules to a mode for the body; None keeps their modes."""
    changed = [] if train is None else [(m, m.isTraining) for m in modules if m.isTraining is not train]
    for m, _ in changed:
        m.isTraining = train
    try:
        yield
    finally:
        for m, mode in changed:
            m.isTraining = mode


def trialRun(program: Program, inputs: list[AnyArray], numbers: dict[str, float]) -> Any:
    """Run the first step eagerly, to learn the result types of rules that could not be traced."""
    trial = RuleProfile()
    with trial.recording():
        result = program.runEagerly(inputs, numbers)
    program.request = replace(program.request, trial=trial)
    program.build()
    return result


def runAfterFailure(program: Any, error: Exception, inputs: list[AnyArray], numbers: dict[str, float]) -> Any:
    """Run eagerly, now and from then on, after a call has failed: the graph raises the error with its reason."""
    path = program.executable.failed.origin.path
    program.executable.restore()
    result = program.runEagerly(inputs, numbers)
    program.executable, program.why = None, f"at '{path}': {error}"
    if isinstance(error, DeviationError):
        hint = "give the same shapes and dtypes in every call"
        warnOnce(program.graph, f"{program!r} is no longer compiled, its graph runs instead: {program.why}; {hint}")
    else:
        warnUser(f"{program!r} failed, its graph runs instead: {program.why}", GraphWarning)
    return result
