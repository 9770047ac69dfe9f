"""LockedPass: the state of a forward pass of several grains, kept for its backward pass."""

from __future__ import annotations

from typing import Any, NamedTuple

from puregraph.distributed.dataparallel.grainpieces import GrainPieces
from puregraph.graph import Graph
from puregraph.graph.steps import Steps


class LockedPass(NamedTuple):
    """The values of all grains after a forward pass, and everything that backward needs.

    `values`   the values of each grain by number; `states`: arrays of each grain for States, by their ids
    `isAsked`  True if gradients of the graph's inputs are needed
    `every`    the compiled pieces, also for ranks without samples; None if rules run one by one
    `pieces`   the pieces of each grain
    """

    graph: Graph
    steps: Steps
    values: dict[int, list[Any]]
    states: dict[int, Any]
    isAsked: bool
    every: GrainPieces | None
    pieces: dict[int, GrainPieces]

    def outputs(self, grain: int) -> list[Any]:
        """The outputs of the graph for a grain."""
        return [self.values[grain][n] for n in self.steps.outputs]
