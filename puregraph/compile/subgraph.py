"""Subgraph: some steps of a graph, compiled for each size that they meet, or run as they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from puregraph.compile.cache import Programs
from puregraph.compile.ir.strides import storedOrder
from puregraph.compile.partition import Partition, stepsOf
from puregraph.compile.runtime.buffers import Workspace
from puregraph.errors import misfit
from puregraph.graph import Graph
from puregraph.graph.inference import Inferred, inferShapes
from puregraph.graph.steps import GraphStep, Steps
from puregraph.module import Module


class StepsGraph(Graph):
    """Some steps of a graph as a graph that programs are compiled of: its shapes were inferred with the whole.

    Shapes    those of the values that enter -> those of the values that leave
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

    `items`     the steps, after those that are computed again since their values are known ahead
    `programs`  by which inputs are there, as some gradients are None, the programs of each size
    `weights`   those of which several processes have pieces, and that its programs read when they need them
    `runs`, `eager`   how often it ran, and how often without a program
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
        """Compute what leaves this piece from what enters it."""
        inputs = [asArray(values[n]) for n in self.inputs]
        there = [x for x in inputs if x is not None]
        if self.partition.sizes and len(there) == len(inputs):
            self.checkShapes([getattr(x, "shape", None) for x in inputs])
        program = None
        if not self.partition.isOpen and all(hasattr(x, "strides") for x in there):
            orders = tuple([storedOrder(x) for x in there])  # so others read and add it up, as in one program
            options: dict[str, Any] = {"orders": orders} if any(orders) else {}
            options |= {} if self.weights is None else {"weights": self.weights}
            program = self.programsFor(tuple([x is not None for x in inputs])).get(there, **options)
        self.runs += 1
        if program is None:
            self.eager += 1
        results = self.eagerGraph(inputs) if program is None else program.run(*there)
        for n, y in zip(self.outputs, [results] if len(self.outputs) == 1 else results, strict=True):
            values[n] = y

    def checkShapes(self, shapes: list[Any]) -> None:
        """Check once for each combination of sizes that every step takes those that the data has given.

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
        """The programs for inputs of which some are None."""
        if isThere not in self.programs:
            inputs = [n for n, there in zip(self.inputs, isThere) if there]
            graph = StepsGraph(self.graph, stepsOf(self.steps, self.items, inputs, self.outputs))
            programs = self.programs[isThere] = Programs(graph)
            programs.workspace, programs.hasWarned = self.workspace, True  # nobody can pad what the data decides
        return self.programs[isThere]

    @property
    def compiled(self) -> list[Any]:
        """The programs, in the order in which their sizes came."""
        kept = [p for programs in self.programs.values() for p in programs.kept.values()]
        return [p for p in kept if p.executable is not None]


def asArray(x: Any) -> Any:
    """A value as a program takes it: a scalar of numpy's as an array."""
    return np.asarray(x) if isinstance(x, np.generic) else x
