"""PipelineStep: one step of a network in stages, through which the grains of a batch go one after the other."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np

from puregraph.compile.gradientbuckets import GradientBuckets, backwardOrder
from puregraph.core.errors import NotFiniteError, PuregraphError
from puregraph.core.param import Param, scaled
from puregraph.data.batches import Batch
from puregraph.distributed.collectives.grains import Grains
from puregraph.distributed.collectives.treesum import BLOCK, Span
from puregraph.distributed.dataparallel.shardedupdate import takeSettings
from puregraph.distributed.dataparallel.sharedstep import SharedStep, costRow, stateRow
from puregraph.distributed.dataparallel.undividable import refuseUndividable
from puregraph.distributed.pipeline.grainsums import GrainSums
from puregraph.distributed.pipeline.pipelinegrid import PipelineGrid
from puregraph.distributed.pipeline.scatterednorm import scatteredNorm
from puregraph.distributed.pipeline.shardedstage import ShardedStage
from puregraph.distributed.pipeline.stagepipeline import Microbatch, StagePipeline
from puregraph.distributed.pipeline.stageshard import StageShard
from puregraph.distributed.pipeline.stagestate import keepOwn
from puregraph.optimizers.slot import Slot


class PipelineStep(SharedStep):
    """Forward and backward of this rank's stages for its grains, and the update of their parameters.

    The ranks of a stage all-reduce its gradients. Weights of other stages are updated by `gatherWeights` before they
    are read, or they are sharded and read remotely. All states are sent with the rows of all grains.
    """

    pipelineType: Any = StagePipeline

    def __init__(self, trainer: Any, count: int):
        refuseUndividable(trainer, f"stages={trainer.stages}", "stages")
        self.grid = PipelineGrid(trainer.world, trainer.stages)
        super().__init__(trainer, count)
        self.pipeline: StagePipeline | None = None
        self.isStale = False

    def grainsOf(self, count: int) -> Grains:
        return Grains(count, self.grid.across)

    def setupGradients(self) -> list[Any]:
        self.gradients: Any = None
        params = backwardOrder(self.trainer.net, [slot.param for slot in self.slots])
        self.dtype = np.result_type(np.float32, *[param.dtype for param in params])
        self.row = GradientBuckets(params, self.dtype.itemsize, BLOCK)
        self.spans = {id(param): span for param, span in zip(params, self.row.spans)}
        self.indices = {id(param): index for index, param in enumerate(params)}
        return params

    # Forward and backward -------------------------------------------------------------------------------------------

    def learnAll(self) -> None:
        """Take all microbatches of this process through its stages."""
        pipeline = self.pipeline = self.pipeline or self.makePipeline()
        for grain in self.grains.own:
            self.column("stop")[grain] = self.trainer.interrupt.asked
        for tree in self.trees.values():
            tree.begin()
        self.totals: dict[int, np.ndarray] = {}  # those of the last step are let go before others need memory
        self.leaves: dict[Any, np.ndarray] = {}
        try:
            self.runPipeline(pipeline)
        finally:
            pipeline.reset()
        self.totals = {
            stage: tree.piece() if self.share.isDivided else tree.total() for stage, tree in self.trees.items()
        }
        if self.trainer.shard in ("gradients", "parameters"):
            for tree in self.trees.values():
                tree.spare = []  # memory that nobody has while the rest of the step runs

    def runPipeline(self, pipeline: Any) -> None:
        """Run the microbatches through the pipeline, grain by grain."""
        self.units: list[Microbatch] = []
        self.parts: list[Batch] = []
        for grain in self.grains.own:
            for number, batch in enumerate(self.group):
                part = self.partOf(batch, grain)
                if part.size:
                    self.parts.append(part)
                    self.units.append(Microbatch(grain, number, [*part.data, *part.target]))
        pipeline.run(self.units, self.prepare, self.ended, self.learnt)

    def makePipeline(self) -> StagePipeline:
        """Cut the network into stages, balanced for a full grain."""
        trainer, batch = self.trainer, self.group[0]
        objective = trainer.objective
        size = -(-trainer.batchsize // self.grains.count)
        shapes = [(size, *x.shape[1:]) for x in (*batch.data, *batch.target)]
        last = len(trainer.net.steps(len(batch.data)).items) - 1
        pipeline: StagePipeline = self.pipelineType(objective.graph, shapes, last, self.grid, objective.compile)
        self.owner = {id(param): pipeline.homes.get(id(param), [0])[0] for param in self.params}
        stages = [[p for p in self.params if self.owner[id(p)] == stage] for stage in range(self.grid.stages)]
        if trainer.shard == "parameters" and self.world.size > 1:
            self.share: StageShard = ShardedStage(self.grid, stages, trainer, self.dtype)
            self.weights = self.share.weights
            pipeline.readFrom(self.weights)
            if self.lockstep is not None:
                self.lockstep.weights = self.weights
        else:
            self.share = StageShard(self.grid, stages, trainer.shard is not None)
        sizes, across = [cuts[-1] for cuts in self.share.cuts], self.grid.across
        self.trees = {stage: GrainSums(across, self.grains, sizes[stage], self.dtype) for stage in pipeline.passes}
        self.stateHomes: dict[str, int] = {}
        for stage, segment in enumerate(pipeline.segments):
            held = {id(state) for state in segment.graph.states.values()}
            self.stateHomes.update({path: stage for path, state in self.states.items() if id(state) in held})
        keepOwn(self.share, trainer.optimizer, self.slots)
        self.part = copy.copy(trainer.optimizer)
        self.own = [slot for slot in self.slots if self.isOwn(slot)]
        self.part.slots = [self.share.ownSlot(slot) for slot in self.own]
        return pipeline

    def isOwn(self, slot: Slot) -> bool:
        """True if this rank updates any element of a parameter."""
        first, last = self.share.updated(slot.param)
        return first < last

    def prepare(self, stage: int, unit: int) -> None:
        """Before a stage goes forward: set its states to those that there were before the step."""
        apart = self.apartOf(self.units[unit].grain, self.units[unit].number)
        for path, state in self.states.items():
            if self.stateHomes.get(path) == stage:
                isCounter = any(state is counter for counter in self.counters)
                state.materialize()[...] = self.before[path] + apart if isCounter else self.before[path]

    def ended(self, stage: int, unit: int, outputs: list[Any]) -> None:
        """Behind it: note what became of its states, and of the last stage cost and metrics."""
        grain, number, _ = self.units[unit]
        part, apart = self.parts[unit], self.apartOf(grain, number)
        for path, state in self.states.items():
            if self.stateHomes.get(path) == stage and any(state is counter for counter in self.counters):
                state.materialize()[...] -= apart
        row = stateRow({p: s for p, s in self.states.items() if self.stateHomes.get(p) == stage}, self.before)
        if stage == self.grid.stages - 1:
            cost, shown = self.trainer.objective.parted(outputs)
            row |= costRow(self, part, cost, shown)
        self.fillRow(row, grain, number)

    def learnt(self, stage: int, unit: int, gradients: dict[int, Any]) -> None:
        """After a stage's backward, accumulate its gradients into the microbatch sum, then into the total."""
        grain = self.units[unit].grain
        share = self.shareOf(self.parts[unit])
        isFirst = unit == 0 or self.units[unit - 1].grain != grain
        isLast = unit == len(self.units) - 1 or self.units[unit + 1].grain != grain
        if isFirst:
            self.leaves[stage] = self.trees[stage].blank()
        self.addTo(self.leaves[stage], stage, unit, gradients, isFirst, share)
        if isLast:
            self.trees[stage].push(grain, self.leaves.pop(stage))

    def addTo(
        self,
        leaf: np.ndarray,
        stage: int,
        unit: int,
        gradients: dict[int, Any],
        isFirst: bool,
        share: float | None = None,
    ) -> None:
        """Add the gradients of a stage, times `share`, to the sums of a grain; the first ones replace them."""
        grain, number, _ = self.units[unit]
        begin = 0
        for param in self.share.params[stage]:
            into, grad = leaf[begin : begin + param.size], gradients.get(id(param))
            if grad is not None:
                grad = (grad if share is None else scaled(grad, share)).reshape(-1)  # one at a time
                into[...] = grad if isFirst else (into.astype(grad.dtype) + grad)
            elif isFirst:
                into[...] = 0
            begin += param.size
            self.column("reached")[grain, number, self.indices[id(param)]] = grad is not None

    # All grains -----------------------------------------------------------------------------------------------------

    def gatherRows(self) -> None:
        """All-gather the rows of all grains, and complete them with columns that only other stages know."""
        grid, localGrains = self.grid, self.grains.own
        length = self.rows[0].size
        gathered = np.zeros((grid.positions, *self.rows.shape))
        gathered[grid.position, localGrains.start : localGrains.stop] = self.rows[localGrains.start : localGrains.stop]
        ends = [
            length * (p * self.grains.count + bound) for p in range(grid.positions) for bound in self.grains.bounds[:-1]
        ]
        self.world.allGather(gathered.reshape(-1), [*ends, gathered.size])
        self.rows[...] = gathered[grid.positionOf(grid.stages - 1)]
        for name in ("stop", "reached"):
            span, _ = self.columns.spans[name]
            self.rows[..., span] = gathered[..., span].max(0)
        for path, stage in self.stateHomes.items():
            span, _ = self.columns.spans[f"state {path}"]
            self.rows[..., span] = gathered[grid.positionOf(stage)][..., span]

    def multiply(self, factor: float) -> None:
        for total in self.totals.values():
            total *= total.dtype.type(factor)

    def finish(self, locations: list[str]) -> None:
        try:
            super().finish(locations)
        except NotFiniteError:
            self.gatherWeights()  # all processes come to the same, and whoever goes on has the weights of the last step
            raise

    def update(self) -> None:
        """The update of the parameters of this process's stages."""
        optimizer, part = self.trainer.optimizer, self.part
        isReached: Any = self.column("reached").any((0, 1))
        reached = dict(zip(map(id, self.params), isReached))
        ready = [slot for slot in self.slots if reached[id(slot.param)] and slot.param.trainable]
        if not ready:
            raise PuregraphError(f"{type(optimizer).__name__}: none of {len(self.slots)} parameters has a gradient")
        takeSettings(part, optimizer)
        if self.norm is not None:
            optimizer.norm = part.measured = self.norm
            if not np.isfinite(self.norm):
                if optimizer.onNonFinite == "skip":
                    return
                raise NotFiniteError.atUpdate(type(optimizer).__name__, optimizer.step, self.notFinite())
        for param in self.params:
            param.grad = None
        for slot, stageSlot in zip(self.own, part.slots):
            self.share.give(stageSlot.param, self.totals, slot.param, slot in ready)
            stageSlot.step = slot.step
        if any(stageSlot.param.grad is not None for stageSlot in part.slots):
            self.trainer.objective.update(part)
        part.measured = None
        optimizer.step += 1
        for slot in ready:
            slot.step += 1
        if self.share.isDivided:
            self.share.gather([stageSlot.param for stageSlot in part.slots], [slot.param for slot in ready])
        if self.weights is None:
            if self.pipeline is not None:
                self.pipeline.shareWeights()
            self.isStale = self.grid.positions > 1

    def measured(self) -> float:
        """Return the norm of all gradients, with the same bits as on a single process."""
        runs = [self.runsOf(rank) for rank in range(self.world.size)]
        mine = [self.share.within(self.totals, param) for param, _ in runs[self.world.rank]]
        return scatteredNorm(self.world, self.row.cuts[-1], [[run for _, run in ofRank] for ofRank in runs], mine)

    def runsOf(self, rank: int) -> list[tuple[Param, Span]]:
        """Return the parameters that a rank has elements of, with the range of these in the row of all parameters."""
        owned = []
        for param in self.params:
            (a, _), (first, last) = self.spans[id(param)], self.share.partOf(param, rank)
            if first < last:
                owned.append((param, (a + first, a + last)))
        return owned

    def notFinite(self) -> str:
        """Name the parameters whose gradients are not finite on any rank."""
        wrong = [s.path for s in self.own if not np.isfinite(self.share.within(self.totals, s.param)).all()]
        paths = {path for text in self.world.gather("\n".join(wrong).encode()) for path in text.decode().split("\n")}
        return "the gradient of " + ", ".join(f"'{slot.path}'" for slot in self.slots if slot.path in paths)

    # Weights and state ----------------------------------------------------------------------------------------------

    def gatherWeights(self) -> None:
        """Give all processes the weights of all stages."""
        if self.isStale:
            self.isStale = False
            self.share.broadcast()
