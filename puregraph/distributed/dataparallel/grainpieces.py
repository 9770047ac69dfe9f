"""GrainPieces: forward and backward of one grain in compiled pieces, cut at sums over all grains."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from puregraph.compile.partitioned import PartitionedGraph, stored
from puregraph.compile.subgraph import Subgraph
from puregraph.compile.trace.steprequest import StepRequest
from puregraph.graph import Graph
from puregraph.graph.steps import GraphStep


class GrainPieces:
    """Forward and backward of a graph in compiled pieces, for grains of one shape; the steps of `isMet` stay outside.

    `passes`  the pieces of both passes, in the same order for all shapes
    """

    def __init__(
        self, graph: Graph, arrays: list[Any], isMet: Callable[[GraphStep], bool], isAsked: bool, weights: Any
    ):
        shapes, dtypes = [tuple(x.shape) for x in arrays], [np.dtype(x.dtype) for x in arrays]
        request = StepRequest("given", updGrad=isAsked, weights=weights)
        self.partitioned = PartitionedGraph(graph, shapes, dtypes, request, isMet)
        self.met = {n for step in self.partitioned.steps.items if isMet(step) for n in step.args}

    @property
    def passes(self) -> tuple[list[Subgraph], list[Subgraph]]:
        """Return the pieces of the forward pass, and of the backward pass."""
        return self.partitioned.forward, self.partitioned.backwards

    def refresh(self) -> None:
        """Rebuild the backward pieces if other parameters are trained now."""
        self.partitioned.update(self.partitioned.backwardGraph())

    def reads(self, number: int, stored: Any) -> bool:
        """True if only compiled pieces read a parameter, and no step outside of them."""
        return self.partitioned.has(stored) and number not in self.met

    def run(self, piece: Subgraph, values: list[Any], states: dict[int, Any]) -> None:
        """Run a piece of a grain, with the grain's states by their ids."""
        arrays = [getattr(module, name) for _, module, name in piece.eagerGraph.slice.params]
        held = {id(stored): stored for stored in arrays}
        pairs = [(held[key], states[key]) for key in held if key in states]
        for state, array in pairs:
            state.materialize()[...] = array
            state.bumpVersion()
        piece(values)
        for state, array in pairs:
            array[...] = state.materialize()

    def valuesFor(self, grads: list[Any], values: list[Any]) -> list[Any]:
        """Return the initial values of backward: the gradients of the outputs, and values kept by forward."""
        back = self.partitioned.back
        inner, known = back.steps(), self.partitioned.withOutlines(values, self.partitioned.sizes)
        initial: list[Any] = [None] * inner.count
        for number, x in zip(inner.inputs, [*grads, *[known[n] for n in back.numbers]], strict=True):
            initial[number] = x
        for number, array in stored(inner).items():
            initial[number] = array
        return initial
