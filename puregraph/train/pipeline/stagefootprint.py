"""StageFootprint: the bytes of one microbatch in a stage, which may read weights of which each process has a piece."""

from __future__ import annotations

from typing import Any

from puregraph.compile.gradientbuckets import GradientBuckets
from puregraph.many.treesum import BLOCK
from puregraph.train.together.partedfootprint import PartedFootprint


class StageFootprint(PartedFootprint):
    """A PartedFootprint of a stage, whose gradients are in memory of their own, as all results of programs.

    `isAsked`  whether the stage before wants gradients
    `made`     bytes of the gradients of parameters, which are in no other figure
    """

    def __init__(self, graph: Any, shapes: list[Any], parted: list[Any], isAsked: bool):
        self.isAsked = isAsked
        params = [param for param in graph.params.values() if param.trainable]
        self.results: list[int] = []
        super().__init__(graph, shapes, GradientBuckets(params, 1, BLOCK), parted)
        self.made = 0
        if self.liveness is not None:
            buffers = {self.liveness.owner[number] for number in self.results if number in self.liveness.owner}
            self.made = sum(int(self.liveness.sizes.pop(number, 0)) for number in buffers)

    @property
    def givesInputGrads(self) -> bool:
        return self.isAsked

    def gradients(self, steps: Any, back: Any) -> list[list[int]]:
        self.results = [number for group in super().gradients(steps, back) for number in group]
        return [self.results]

    @property
    def passing(self) -> int:
        """The most bytes of values beside those that are kept from forward to backward."""
        return (self.peak() or 0) - self.paramBytes - self.stateBytes - (self.kept() or 0)
