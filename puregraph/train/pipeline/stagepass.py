"""StagePass: one stage of a network, which goes forward with some microbatches before it goes back with the first."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import numpy as np

from puregraph.compile.partitioned import PartitionedGraph
from puregraph.graph.graphsegment import GraphSegment

MOST = 32  # shapes for which programs are kept


class StagePass:
    """Forward and backward of a stage, each a program, so that other microbatches may come between them.

    `isAsked`  whether the stage before wants gradients
    `weights`  those of which several processes have pieces, and that programs read when they need them
    `kept`     by microbatch what backward reads: values of the forward pass
    `most`     the most microbatches that were kept at one time
    """

    def __init__(self, segment: GraphSegment, isCompiled: bool, isAsked: bool, weights: Any = None):
        self.segment, self.isCompiled, self.isAsked, self.weights = segment, isCompiled, isAsked, weights
        self.kept: dict[int, Any] = {}
        self.most = 0
        self.programs: OrderedDict[Any, PartitionedGraph] = OrderedDict()
        params = {id(p): p for p in segment.graph.params.values()}
        self.params = list(params.values())

    def forward(self, unit: int, given: list[Any]) -> list[Any]:
        """What the stage gives for a microbatch."""
        graph: Any = self.segment.graph
        if self.isCompiled:
            program = self.programFor(given)
            found = program(given)
            self.kept[unit] = program, program.values
        else:
            found = graph(given)
            self.kept[unit] = graph.last
        self.most = max(self.most, len(self.kept))
        return found if isinstance(found, list) else [found]

    def backward(self, unit: int, grads: list[Any]) -> tuple[list[Any], list[Any]]:
        """The gradients of what the stage was given, and of its parameters, each None where there is none."""
        graph: Any = self.segment.graph
        kept = self.kept.pop(unit)
        for param in self.params:
            param.grad = None
        if all(grad is None for grad in grads) or not (self.isAsked or any(p.trainable for p in self.params)):
            return [None] * len(graph.inputs), [None] * len(self.params)
        seeds = grads if len(grads) > 1 else grads[0]
        runs: Any = graph
        if self.isCompiled:
            runs, runs.values = kept[0], kept[1]
        else:
            vars(graph)["last"] = kept
        runs.backward(seeds, updGrad=self.isAsked)
        found = runs.grad if isinstance(runs.grad, list) else [runs.grad] * len(graph.inputs)
        gradients = [param.grad for param in self.params]
        for param in self.params:
            param.grad = None
        return found, gradients

    def programFor(self, given: list[Any]) -> PartitionedGraph:
        """The programs for such arrays: compiled when they first come, whoever has seen what before."""
        key = tuple([(x.shape, x.dtype) for x in given])
        if key not in self.programs:
            if len(self.programs) >= MOST:
                self.programs.popitem(last=False)
            options = {"grads": "given", "updGrad": self.isAsked, "weights": self.weights}
            shapes, dtypes = [tuple(x.shape) for x in given], [np.dtype(x.dtype) for x in given]
            self.programs[key] = PartitionedGraph(self.segment.graph, shapes, dtypes, options)
        self.programs.move_to_end(key)
        return self.programs[key]

    def reset(self) -> None:
        """Forget microbatches that an exception has left behind."""
        self.kept.clear()
        self.segment.graph.reset()
