"""Inference: the shapes of all values of a graph from those of its inputs, each shape rule once."""

from __future__ import annotations

from typing import Any, NamedTuple

from puregraph.base.signals import isAsynchronous
from puregraph.errors import Fault, PuregraphError, ShapeError, show
from puregraph.graph.steps import GraphStep, Steps


class StepShapes(NamedTuple):
    """What is known of one step ahead of time; `shapes` is None where a fault here or above leaves it unknown."""

    step: GraphStep
    inshapes: list[Any]
    shapes: list[Any] | None
    fault: Fault | None


def inferShapes(steps: Steps, given: list[Any]) -> tuple[list[StepShapes], list[Any]]:
    """What every step takes and gives, with faults noted instead of raised; and the shapes of the outputs."""
    known: list[Any] = [None] * steps.count
    unknown: set[int] = set()
    for number, shape in zip(steps.inputs, given, strict=True):
        known[number] = shape
    rows = []
    for step in steps.items:
        numbers = step.args[: step.inputs]
        inshapes = [known[n] for n in numbers]
        outs, fault = shapesFrom(step, inshapes, steps) if unknown.isdisjoint(numbers) else (None, None)
        rows.append(StepShapes(step, inshapes, outs, fault))
        if outs is None:
            unknown.update(step.outs)
        else:
            for number, shape in zip(step.visible, outs, strict=True):
                known[number] = shape
    return rows, [known[n] for n in steps.outputs]


def shapesFrom(step: GraphStep, inshapes: list[Any], steps: Steps) -> tuple[list[Any] | None, Fault | None]:
    """The shapes that a step gives, or what is wrong with those that it takes."""
    try:
        result = step.module.dataShapeFrom(*inshapes)
    except ShapeError as error:
        return None, locate(error.faults[0], step, steps)
    except Exception as error:
        if isAsynchronous(error):
            raise
        raise PuregraphError(
            f"at '{step.path}' ({step.label}): its shape rule failed on {show(inshapes)}: {error}"
        ) from error
    checkRule(result, step)
    return result if isinstance(result, list) else [result], None


def locate(fault: Fault, step: GraphStep, steps: Steps) -> Fault:
    """The fault with the step that it is at, and where the step's inputs come from."""
    entered = set(steps.inputs)
    sources = dict.fromkeys(
        "the graph's input" if n in entered and steps.producer[n] == step.path else f"'{steps.producer[n]}'"
        for n in step.args[: step.inputs]
        if n
    )
    return fault._replace(
        path=f"{step.path}.{fault.path}" if fault.path else step.path,
        module=fault.module or step.label,
        source=fault.source or ", ".join(sources),
    )


def checkRule(result: Any, step: GraphStep) -> None:
    """A shape rule gives a tuple, or a list of as many tuples as there are outputs."""
    outs = result if isinstance(result, list) else [result]
    if not all(isinstance(s, tuple) for s in outs) or len(outs) != len(step.visible):
        wanted = "a tuple" if len(step.visible) == 1 else f"a list of {len(step.visible)} tuples"
        raise PuregraphError(f"at '{step.path}' ({step.label}): dataShapeFrom wanted to give {wanted}, gave {result!r}")
