"""Partitioned: a graph with sizes that depend on the data, run in pieces, of which those between are compiled."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

from puregraph.compile.partition import Partition, entering, openSteps, partition, withKnown
from puregraph.compile.report.partitiontable import partitionTable
from puregraph.compile.runtime.buffers import Workspace
from puregraph.compile.subgraph import Subgraph
from puregraph.compile.updater import Updater
from puregraph.core.shape import bind
from puregraph.graph import Graph
from puregraph.graph.backward import readsOf
from puregraph.graph.datachecks import checkResults
from puregraph.graph.inference import StepShapes, inferShapes
from puregraph.graph.lastpass import storeGrads
from puregraph.graph.steps import GraphStep, Steps, spread


class PartitionedGraph:
    """Runs the passes of a graph as the graph itself does, in pieces, each compiled for the sizes that it meets.

    `graph`, `rows`  the graph, and what is known of its steps ahead of data
    `back`           its backward graph, or None; `forward`, `backwards`: the pieces of both
    `values`         those of the last forward pass that somebody reads, by number; `sizes`: of the symbols in it
    `outlined`       shape and dtype of the values of which the backward graph only asks the shape
    `isAlone`        steps that are a piece of their own, besides those that give a size
    `weights`        those of which several processes have pieces, which compiled pieces read when they need them
    """

    def __init__(
        self,
        graph: Graph,
        shapes: Sequence[Any],
        dtypes: Sequence[Any],
        options: dict[str, Any],
        isAlone: Callable[[GraphStep], bool] | None = None,
    ):
        self.graph, self.options, self.weights = graph, options, options.get("weights")
        self.steps = graph.steps(len(shapes))
        self.rows = graph.infer(list(shapes), dtypes=list(dtypes)).rows
        self.isOpen = openSteps(self.rows)
        if isAlone is not None:
            self.isOpen.update(filter(isAlone, self.steps.items))
        self.shapes = dict(zip(self.steps.inputs, shapes))
        stored(self.steps, self.weights)  # arrays are made now, and not seen as a change after the first run
        self.workspace = Workspace()
        self.back: Any = None
        self.grad: Any = None
        self.updaters: list[Updater] = []
        self.values: list[Any] = []
        self.sizes: dict[str, int] = {}
        self.update(self.backwardGraph(), True)

    def backwardGraph(self) -> Any:
        """The backward graph that this step takes, for the parameters that are trained now."""
        if self.options.get("grads") is None:
            return None
        return self.graph.backwardGraph(self.options.get("updGrad", True), True, self.steps)

    def update(self, back: Any, isFirst: bool = False) -> None:
        """Make the pieces anew if the backward graph is another one."""
        if back is self.back and not isFirst:
            return
        self.back, self.outlined, self.backwards = back, {}, []
        wanted = set(self.steps.outputs)
        if back is not None:
            inner = back.steps()
            of = dict(zip(inner.inputs[len(self.steps.outputs) :], back.numbers, strict=True))
            read = {of.get(n) for step in inner.items for n in readsOf(step)}
            known = {
                n: (shape, dtype)
                for row in self.rows
                for n, shape, dtype in zip(row.step.visible, row.shapes or (), row.dtypes)
                if dtype is not None
            }
            self.outlined = {n: known[n] for n in back.numbers if n not in read and n in known}
            wanted |= {n for n in back.numbers if n not in self.outlined}
            rows = self.backRows(inner, of)
            self.backwards = self.pieces(self.withWeights(inner, of), *rows, set(inner.outputs))
        self.forward = self.pieces(self.steps, self.rows, self.isOpen, wanted)

    def backRows(self, inner: Steps, of: dict[int, int]) -> tuple[list[StepShapes], set[GraphStep]]:
        """What is known of the steps of the backward graph, and the gradients of open steps."""
        shapes: dict[int, Any] = dict(self.shapes)
        for row in self.rows:
            shapes.update(zip(row.step.visible, row.shapes or ()))
        for n, module, name in self.steps.params:
            shapes[n] = getattr(getattr(module, name), "shape", ())
        seeds = [shapes[n] for n in self.steps.outputs]
        inputShapes = [tuple(shape) for shape in (*seeds, *[shapes.get(n, ()) for n in of.values()])]
        opens = {self.back.gradientNodes[step] for step in self.isOpen if step in self.back.gradientNodes}
        return inferShapes(inner, inputShapes).rows, {step for step in inner.items if step.node in opens}

    def withWeights(self, inner: Steps, of: dict[int, int]) -> Steps:
        """The backward steps, which take weights in pieces as parameters, not as values of the forward pass."""
        held = {n: (module, name) for n, module, name in self.steps.params if self.has(getattr(module, name))}
        backSteps = copy.copy(inner)
        backSteps.params = [*inner.params, *[(n, *held[number]) for n, number in of.items() if number in held]]
        return backSteps

    def has(self, param: Any) -> bool:
        """Whether compiled pieces read a parameter themselves."""
        return self.weights is not None and self.weights.has(param)

    def pieces(self, steps: Steps, rows: list[StepShapes], isOpen: set[GraphStep], wanted: set[int]) -> list[Subgraph]:
        """The pieces of some steps, which leave the `wanted` values and those that other pieces read."""
        parts: list[tuple[Partition, list[GraphStep]]] = [
            (part, withKnown(part, rows, isOpen)) for part in partition(rows, isOpen, steps)
        ]
        inputs = [entering(steps, items) for _, items in parts]
        needed = wanted.union(*inputs)
        pieces = []
        for (part, items), read in zip(parts, inputs):
            outputs = [n for step in part.items for n in step.outs if n in needed]
            if outputs or any(step.stored for step in part.items):
                pieces.append(Subgraph(self.graph, steps, part, items, read, outputs, self.workspace, self.weights))
        return pieces

    # As a Graph -------------------------------------------------------------------------------------------------------

    def __call__(self, data: list[Any]) -> Any:
        """The outputs of the graph for its inputs.

        Raises    what the graph itself raises; PuregraphError if a size that depends on the data is two numbers
        """
        self.update(self.backwardGraph())
        self.graph.checkData(data, self.steps)
        values = run(self.forward, self.steps, data, self.weights)
        self.sizes = checkResults(self.rows, values, isPartial=True)
        self.values = [] if self.back is None else values
        outputs = [values[n] for n in self.steps.outputs]
        return outputs[0] if len(outputs) == 1 else outputs

    def backward(self, grad: Any, updGrad: bool = True, scale: float = 1.0, momentum: float = 0.0) -> None:
        """Back-propagate through the last pass; as `Graph.backward` does."""
        values = self.withOutlines(self.values)
        grads = list(grad) if len(self.steps.outputs) > 1 else [grad]
        inputs, paramGrads = self.back.gradients(grads, values, False, self.runBackward)
        inputs = storeGrads(grads, inputs, paramGrads, scale, momentum)
        self.grad = None if not updGrad else inputs[0] if len(inputs) == 1 else inputs
        self.values = []

    def withOutlines(self, values: list[Any]) -> list[Any]:
        """The values of a forward pass, with zeros of their shape for those of which nothing else is asked."""
        filled, like = list(values), values[self.steps.inputs[0]]
        for n, (shape, dtype) in self.outlined.items():
            filled[n] = spread(like, bind(shape, self.sizes), dtype)
        return filled

    def runBackward(self, data: list[Any], outside: int) -> list[Any]:
        """Every value of the backward graph that leaves a piece, by number."""
        return run(self.backwards, self.back.steps(), data)

    def applyUpdate(self, optimizer: Any) -> None:
        """Have an optimizer use the gradients, in a compiled step."""
        if not self.updaters:
            self.updaters = [Updater(self.graph, optimizer)]
        self.updaters[0].run()

    @property
    def bytes(self) -> int:
        """The largest arena of a piece so far: pieces share one workspace."""
        programs = [p for piece in [*self.forward, *self.backwards] for p in piece.compiled]
        return max([p.bytes for p in programs], default=0)

    def table(self) -> str:
        """The pieces, and the steps of each program."""
        return partitionTable([*self.forward, *self.backwards], self.updaters)


def run(pieces: Sequence[Subgraph], steps: Steps, data: list[Any], weights: Any = None) -> list[Any]:
    """The values that leave the pieces of some steps, by number; of `weights` there are none."""
    values: list[Any] = [None] * steps.count
    for number, x in zip(steps.inputs, data, strict=True):
        values[number] = x
    for number, array in stored(steps, weights).items():
        values[number] = array
    for piece in pieces:
        piece(values)
    return values


def stored(steps: Steps, weights: Any = None) -> dict[int, Any]:
    """Arrays of parameters and states by value number, except sharded ones, which `weights` holds."""
    held = {n: getattr(module, name) for n, module, name in steps.params}
    isLeft = [param is None or weights is not None and weights.has(param) for param in held.values()]
    return {n: param.materialize() for (n, param), left in zip(held.items(), isLeft) if not left}
