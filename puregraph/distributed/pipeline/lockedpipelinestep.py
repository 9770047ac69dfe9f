"""LockedPipelineStep: a step in stages of a network with modules that take sums over all grains of a batch."""

from __future__ import annotations

from typing import Any

from puregraph.distributed.dataparallel.sharedstep import likeSmallest
from puregraph.distributed.pipeline.lockedpipeline import LockedPipeline
from puregraph.distributed.pipeline.pipelinestep import PipelineStep
from puregraph.distributed.pipeline.stagepipeline import Microbatch


class LockedPipelineStep(PipelineStep):
    """A PipelineStep that takes one batch after the other, forward and back, instead of one grain."""

    pipelineType: Any = LockedPipeline

    def runPipeline(self, pipeline: Any) -> None:
        pipeline.setup(self.lockstep)
        for number, batch in enumerate(self.group):
            parts = {grain: part for grain in self.grains.own if (part := self.partOf(batch, grain)).size}
            self.parts = list(parts.values())
            self.units = [Microbatch(grain, number, [*part.data, *part.target]) for grain, part in parts.items()]
            shares, smallest = list(map(self.shareOf, self.parts)), likeSmallest(batch, self.grains.count)
            pipeline.runBatch(self.units, shares, smallest, self.prepare, self.ended, self.learnt)
        for stage, grain in sorted(self.leaves):
            self.trees[stage].push(grain, self.leaves[stage, grain])

    def learnt(self, stage: int, unit: int, gradients: dict[int, Any]) -> None:
        """After a stage's backward, accumulate its gradients into the microbatch sum."""
        grain = self.units[unit].grain
        isFirst = (stage, grain) not in self.leaves
        if isFirst:
            self.leaves[stage, grain] = self.trees[stage].blank()
        self.addTo(self.leaves[stage, grain], stage, unit, gradients, isFirst)
