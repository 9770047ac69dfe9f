"""_InnerPass: one run of a graph inside a module, its inference ahead of data, and its backward pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from puregraph.autodiff.functionalcall import backwardOf
from puregraph.core.device import toHost
from puregraph.core.dim import Dim
from puregraph.core.errors import DtypeError, Fault, ShapeError, show
from puregraph.core.param import FixedState
from puregraph.core.shape import symbols, valued, valueOf
from puregraph.core.tracer import tracerOf
from puregraph.graph import Graph
from puregraph.graph.graphholder import GraphHolder
from puregraph.graph.inference import inferShapes, inferTypes
from puregraph.graph.steps import Steps
from puregraph.modules.control.innerprograms import _CompiledPass

MAX_SHAPE_ELEMENTS = 64  # an input with more elements is not read for shapes


class _InnerPass:
    """The values of several runs of a graph, and the states before them, as one object that no rule takes for an array.

    `runs` has the values of each run by number, or its `_CompiledPass`; None: they are not kept, and are computed again
    for gradients.
    """

    flows = True  # passed on to a backward graph that is separate from the forward graph

    def __init__(self, graph: Graph, runs: list[Any] | None, before: dict[str, Any]):
        self.graph, self.runs, self.before = graph, runs, before


def writtenStates(holder: GraphHolder, stored: dict[str, Any]) -> dict[str, Any]:
    """Copies of the states that rules may write to."""
    return {name: stored[name].copy() for name, s in holder.states.items() if not isinstance(s, FixedState)}


def backThrough(
    graph: Graph, grads: list[Any], values: Any, updGrad: bool, wanted: frozenset[int]
) -> tuple[list[Any], dict[int, Any]]:
    """Gradients of a run's inputs, and of parameters by id, from the gradients of its outputs.

    `values` has the values of the run by number, or is the `_CompiledPass` that has them.
    """
    steps = graph.steps()
    if all(g is None for g in grads):
        return [None] * len(steps.inputs), {}
    if isinstance(values, _CompiledPass):
        return values.gradients(grads)
    inputs, paramGrads = backwardOf(graph, steps, updGrad, wanted).gradients(grads, values, shows=False)
    return inputs, {id(p): g for p, g in paramGrads if g is not None}


def shapesInside(graph: Graph, shapes: Any) -> list[Any]:
    """The shapes of a graph's outputs, with elements if known.

    Raises    ShapeError naming the first node that does not accept its inputs
    """

    def infer() -> list[Any]:
        for step in graph.steps().followers:
            raise ShapeError(Fault("states of fixed sizes in a graph inside a module", f"symbols at '{step.path}'"))
        inferred = inferShapes(graph.steps(), list(shapes))
        faults = [row.fault for row in inferred.rows if row.fault]
        if faults:
            raise ShapeError(*faults)
        return inferred.shapes

    return once(graph, ("shapes", *map(identityOf, shapes)), infer)


def once(graph: Graph, key: tuple, infer: Callable[[], list[Any]]) -> list[Any]:
    """Return the inferred outputs of a graph, cached until it or a graph inside it is relinked.

    Nested graphs are inferred separately for shapes, elements and dtypes: without the cache, the work would double
    with each level.
    """
    steps = stepsInside(graph)
    before, result = graph.checked.get(key, ((), None))
    if len(before) != len(steps) or any(a is not b for a, b in zip(before, steps)):
        result = infer()
        if len(graph.checked) > 256:
            graph.checked.clear()
        graph.checked[key] = steps, result
    return list(result)


def stepsInside(graph: Graph) -> list[Steps]:
    """The steps of a graph, and the steps of all graphs that its modules hold."""
    waiting, visited = [graph], []
    while waiting:
        visited.append(waiting.pop().steps())
        holders = [step.module for step in visited[-1].items if isinstance(step.module, GraphHolder)]
        waiting += [part for holder in holders for part in holder.held.values() if isinstance(part, Graph)]
    return visited


def identityOf(shape: Any) -> tuple:
    """A shape with its known elements as a key: shapes with equal keys give equal inference results."""
    value = valueOf(shape)
    return tuple(shape), None if value is None else (value.dtype, value.shape, tuple(value.ravel().tolist()))


def checkInside(graph: Graph, inputs: Any) -> None:
    """Check that arrays fit a graph, once for shapes and the few integers and booleans that shapes may follow from.

    Raises    ShapeError naming the first node that does not accept its inputs
    """
    shapesInside(
        graph,
        [
            valued(x.shape, toHost(x) if x.dtype.kind in "iub" and x.size <= MAX_SHAPE_ELEMENTS else None)
            for x in inputs
        ],
    )


def dtypesInside(graph: Graph, dtypes: Any) -> list[Any]:
    """The dtypes of the outputs of a graph.

    Raises    DtypeError naming the first node that does not accept its inputs
    """

    def infer() -> list[Any]:
        steps = graph.steps()
        inferred, faults = inferTypes(steps, list(dtypes))
        if faults:
            raise DtypeError(*faults)
        return [inferred[n] for n in steps.outputs]

    return once(graph, ("dtypes", *dtypes), infer)


def agreed(first: tuple, second: tuple, what: str) -> tuple:
    """The sizes that two shapes have in common, None for those that differ.

    Raises    ShapeError if their ranks differ
    """
    if len(first) != len(second):
        raise ShapeError(Fault(f"as many axes of {what} either way", f"{show(tuple(first))} and {show(tuple(second))}"))
    return tuple(a if a == b else None for a, b in zip(first, second))


def outside(shape: tuple, inputShapes: Any) -> tuple:
    """Return a shape inside the body, with None for sizes that do not follow from the input shapes."""
    known = {name for other in inputShapes if other is not None for name in symbolsOf(other)}
    return tuple(
        n if n is not None and (not isinstance(n, Dim) or known.issuperset(symbols((n,)))) else None for n in shape
    )


def symbolsOf(shape: Any) -> tuple[str, ...]:
    """The symbols in a shape and in its known elements."""
    value = valueOf(shape)
    return symbols(shape) + (() if value is None else symbols(value.ravel().tolist()))


def filledIn(grads: Any, needs: Any, arguments: Any) -> tuple:
    """A gradient for every argument: zeros for a required one that no gradient reached."""
    return tuple(
        np.zeros_like(x) if g is None and need else g if need else None for g, need, x in zip(grads, needs, arguments)
    )


def isTraced(values: Any) -> bool:
    """True if some values are tracers, so that computations with them have to be recorded."""
    return tracerOf([v for v in values if v is not None]) is not None
