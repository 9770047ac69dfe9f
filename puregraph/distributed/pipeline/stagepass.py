"""StagePass: one stage of a network, which runs several microbatches forward before the first backward."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import numpy as np

from puregraph.compile.partitioned import PartitionedGraph
from puregraph.compile.trace.steprequest import StepRequest
from puregraph.graph.graphsegment import GraphSegment

MAX_CACHED_SHAPES = 32  # cached programs, one per shape of a microbatch


class StagePass:
    """Forward and backward of a stage as two programs, so that other microbatches may run between them.

    `isAsked`  True if the stage before needs gradients
    `weights`  sharded weights, which programs gather when they need them
    `kept`     the values of the forward pass for backward, by microbatch
    `most`     the peak number of microbatches kept
    """

    def __init__(self, segment: GraphSegment, isCompiled: bool, isAsked: bool, weights: Any = None):
        self.segment, self.isCompiled, self.isAsked, self.weights = segment, isCompiled, isAsked, weights
        self.kept: dict[int, Any] = {}
        self.most = 0
        self.programs: OrderedDict[Any, PartitionedGraph] = OrderedDict()
        params = {id(p): p for p in segment.graph.params.values()}
        self.params = list(params.values())

    def forward(self, unit: int, inputs: list[Any]) -> list[Any]:
        """Run the stage forward for a microbatch, and return its outputs."""
        graph: Any = self.segment.graph
        if self.isCompiled:
            program = self.programFor(inputs)
            outputs = program(inputs)
            self.kept[unit] = program, program.values
        else:
            outputs = graph(inputs)
            self.kept[unit] = graph.last
        self.most = max(self.most, len(self.kept))
        return outputs if isinstance(outputs, list) else [outputs]

    def backward(self, unit: int, grads: list[Any]) -> tuple[list[Any], list[Any]]:
        """Return the gradients of the stage's inputs and of its parameters; None for a missing one."""
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
        inputGrads = runs.grad if isinstance(runs.grad, list) else [runs.grad] * len(graph.inputs)
        gradients = [param.grad for param in self.params]
        for param in self.params:
            param.grad = None
        return inputGrads, gradients

    def programFor(self, arrays: list[Any]) -> PartitionedGraph:
        """Return the programs for arrays of these shapes and dtypes, compiled on first use."""
        key = tuple([(x.shape, x.dtype) for x in arrays])
        if key not in self.programs:
            if len(self.programs) >= MAX_CACHED_SHAPES:
                self.programs.popitem(last=False)
            request = StepRequest("given", updGrad=self.isAsked, weights=self.weights)
            shapes, dtypes = [tuple(x.shape) for x in arrays], [np.dtype(x.dtype) for x in arrays]
            self.programs[key] = PartitionedGraph(self.segment.graph, shapes, dtypes, request)
        self.programs.move_to_end(key)
        return self.programs[key]

    def reset(self) -> None:
        """Forget microbatches that an exception has left behind."""
        self.kept.clear()
        self.segment.graph.reset()
