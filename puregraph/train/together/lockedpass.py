"""LockedPass: a forward pass of several grains at once, which goes back later."""

from __future__ import annotations

from typing import Any, NamedTuple

from puregraph.graph import Graph
from puregraph.graph.steps import Steps
from puregraph.train.together.grainpieces import GrainPieces


class LockedPass(NamedTuple):
    """The values of all grains of a forward pass, and what it takes to go back.

    `values`   by grain the values by number, `states` what stands for States, by their ids
    `isAsked`  whether the gradients of the graph's inputs are wanted
    `every`    the pieces of any grain, where some have no samples too; None of rules that run one by one
    `pieces`   those of each grain
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
