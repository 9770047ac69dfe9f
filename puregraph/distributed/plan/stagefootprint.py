"""StageFootprint: the bytes of one microbatch in a stage, which may read sharded weights."""

from __future__ import annotations

from typing import Any

from puregraph.compile.gradientbuckets import GradientBuckets
from puregraph.distributed.collectives.treesum import BLOCK
from puregraph.distributed.plan.shardedfootprint import ShardedFootprint
from puregraph.graph.analysis.liveness import Liveness


class StageFootprint(ShardedFootprint):
    """A ShardedFootprint of a stage, whose gradients are in memory of their own, as all results of programs.

    `isAsked`   whether the stage before wants gradients
    `made`      bytes of the gradients of parameters, which are in no other figure
    `passing`   the most bytes of values beside those that are kept from forward to backward
    `gathered`  how many more they are with the weights that are read meanwhile
    """

    def __init__(self, graph: Any, shapes: list[Any], isAsked: bool):
        self.isAsked = isAsked
        self.results: list[int] = []
        self.weightNumbers: list[int] = []
        params = [param for param in graph.params.values() if param.trainable]
        super().__init__(graph, shapes, GradientBuckets(params, 1, BLOCK), params)
        self.made = self.without(self.results)
        most = self.mostBytes()
        self.without(self.weightNumbers)
        self.passing = self.mostBytes()
        self.gathered = most - self.passing

    @property
    def givesInputGrads(self) -> bool:
        return self.isAsked

    def gradients(self, steps: Any, back: Any) -> list[list[int]]:
        self.results = [number for group in super().gradients(steps, back) for number in group]
        return [self.results]

    def read(self, lives: Liveness, number: int, param: Any, made: dict[int, int]) -> None:
        super().read(lives, number, param, made)
        self.weightNumbers.append(number)

    def without(self, numbers: list[int]) -> int:
        """Leave the buffers of some values out; the bytes that they have."""
        lives = self.liveness
        if lives is None:
            return 0
        buffers = {lives.owner[number] for number in numbers if number in lives.owner}
        return sum(int(lives.sizes.pop(number, 0)) for number in buffers)

    def mostBytes(self) -> int:
        """Return the peak bytes of everything but weights, states and kept values."""
        return (self.peak() or 0) - self.paramBytes - self.stateBytes - (self.kept() or 0)
