"""Subgraph: some steps of a graph, compiled for each size that occurs, or run as Python."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from puregraph.compile.cache import Programs
from puregraph.compile.partition import Partition, stepsOf
from puregraph.compile.runtime.buffers import Workspace
from puregraph.core.errors import misfit
from puregraph.graph import Graph
from puregraph.graph.inference import Inferred, inferShapes
from puregraph.graph.module import Module
from puregraph.graph.steps import GraphStep, Steps
from puregraph.ops.ir.strides import storedOrder
from puregraph.ops.kernel import usePrograms


class StepsGraph(Graph):
    """Some steps of a graph as a graph to compile; its shapes were inferred with the full graph.

    Shapes    of the inputs -> of the outputs
    Source    partial compilation around a graph break; Ansel and others 2024, PyTorch 2
    """

    def __init__(self, parent: Graph, steps: Steps):
        Module.__init__(self, parent.name)
        self.parent, self.slice = parent, steps
        self.inputs, self.nodes, self.version = [], [], 0

    def steps(self, count: int | None = None, innerKnown: bool = False) -> Steps:
        return self.slice

    def infer(self, *shapes: Any, dtypes: list[Any] | None = None) -> Inferred:
        return Inferred([], [None] * len(self.slice.outputs), [None] * len(self.slice.outputs))

    def stored(self, kind: str) -> Any:
        return self.parent.stored(kind)

    def title(self) -> str:
        return f"a piece of {self.parent.title()}"

    def __call__(self, *data: Any, **keywords: Any) -> Any:
        values = self.slice.run(list(data[0]))
        outputs = [values[n] for n in self.slice.outputs]
        return outputs[0] if len(outputs) == 1 else outputs


@dataclass
class Subgraph:
    """A slice of a graph's steps with its inputs and outputs; value numbers are the full graph's.

    `items`     the steps, preceded by those that compute known values again
    `programs`  the programs of each size, by which inputs are present: some gradients may be None
    `weights`   sharded weights, which its programs gather when they read them
    `runs`, `eager`   number of runs, and of runs without a program
    """

    graph: Graph
    steps: Steps
    partition: Partition
    items: Sequence[GraphStep]
    inputs: list[int]
    outputs: list[int]
    workspace: Workspace
    weights: Any = None

    def __post_init__(self) -> None:
        self.eagerGraph = StepsGraph(self.graph, stepsOf(self.steps, self.items, self.inputs, self.outputs))
        self.programs: dict[tuple[bool, ...], Programs] = {}
        self.runs = self.eager = 0
        self.checked: set[tuple[Any, ...]] = set()

    def __call__(self, values: list[Any]) -> None:
        """Compute the outputs of this piece from its inputs."""
        inputs = [asArray(values[n]) for n in self.inputs]
        there = [x for x in inputs if x is not None]
        if self.partition.sizes and len(there) == len(inputs):
            self.checkShapes([getattr(x, "shape", None) for x in inputs])
        program = None
        if not self.partition.isOpen and all(hasattr(x, "strides") for x in there):
            orders = tuple([storedOrder(x) for x in there])  # keep the layout, so that sums add up as in one program
            options: dict[str, Any] = {"orders": orders} if any(orders) else {}
            options |= {} if self.weights is None else {"weights": self.weights}
            program = self.programsFor(tuple([x is not None for x in inputs])).get(there, **options)
        self.runs += 1
        if program is None:
            self.eager += 1
        if program is None:
            with usePrograms():
                results = self.eagerGraph(inputs)
        else:
            results = program.run(*there)
        for n, y in zip(self.outputs, [results] if len(self.outputs) == 1 else results, strict=True):
            values[n] = y

    def checkShapes(self, shapes: list[Any]) -> None:
        """Check once for each combination of sizes that every step accepts the sizes of the data.

        Raises    ShapeError naming the nodes
        """
        key = tuple(shapes)
        if key in self.checked:
            return
        faults = [row.fault for row in inferShapes(self.eagerGraph.slice, shapes).rows if row.fault]
        if faults:
            raise misfit(faults)
        self.checked.add(key)

    def programsFor(self, isThere: tuple[bool, ...]) -> Programs:
        """The programs for this set of present inputs; the others are None."""
        if isThere not in self.programs:
            inputs = [n for n, there in zip(self.inputs, isThere) if there]
            graph = StepsGraph(self.graph, stepsOf(self.steps, self.items, inputs, self.outputs))
            programs = self.programs[isThere] = Programs(graph)
            programs.workspace, programs.hasWarned = self.workspace, True  # users cannot pad these sizes
        return self.programs[isThere]

    @property
    def compiled(self) -> list[Any]:
        """The compiled programs, in the order in which their sizes occurred."""
        kept = [p for programs in self.programs.values() for p in programs.kept.values()]
        return [p for p in kept if p.executable is not None]


def asArray(x: Any) -> Any:
    """A value for a program: a numpy scalar as an array."""
    return np.asarray(x) if isinstance(x, np.generic) else x
