"""PipelineStep: one step of a network in stages, through which the grains of a batch go one after the other."""

from __future__ import annotations

from typing import Any

import numpy as np

from puregraph.compile.gradientbuckets import GradientBuckets, backwardOrder
from puregraph.compile.trace.updaterule import isElementwise
from puregraph.core.errors import NotFiniteError
from puregraph.core.param import scaled
from puregraph.data.batches import Batch
from puregraph.distributed.collectives.treesum import UNCUT_ELEMENTS
from puregraph.distributed.dataparallel.sharedstep import SharedStep, costRow, stateRow
from puregraph.distributed.dataparallel.undividable import refuseUndividable
from puregraph.distributed.pipeline.grainsums import GrainSums
from puregraph.distributed.pipeline.stagepipeline import Microbatch, StagePipeline
from puregraph.distributed.sharding.shardedupdate import ShardedUpdate
from puregraph.distributed.sharding.shardedweights import weightsFor
from puregraph.distributed.sharding.sharding import Sharding, ShardRow, Sums, cutsAmong


class PipelineStep(SharedStep):
    """Forward and backward of this rank's stages for its grains, and the update of their parameters.

    The ranks of a stage all-reduce its gradients. Weights of other stages are updated by `gatherWeights` before they
    are read, or they are sharded and read remotely. All states are sent with the rows of all grains.
    """

    pipelineType: Any = StagePipeline

    def begin(self) -> None:
        refuseUndividable(self.trainer, f"stages={self.trainer.stages}", "stages")
        self.stages: int = self.trainer.stages
        self.pipeline: StagePipeline | None = None
        self.isStale = False
        super().begin()

    def setupGradients(self) -> list[Any]:
        self.gradients: Any = None
        params = backwardOrder(self.net, [slot.param for slot in self.slots])
        self.dtype = np.result_type(np.float32, *[param.dtype for param in params])
        self.row = GradientBuckets(params, self.dtype.itemsize, UNCUT_ELEMENTS)
        self.indices = {id(param): index for index, param in enumerate(params)}
        return params

    # Forward and backward -------------------------------------------------------------------------------------------

    def learnAll(self) -> None:
        """Run all microbatches of this process through its stages."""
        pipeline = self.pipeline = self.pipeline or self.makePipeline()
        for grain in self.grains.own:
            self.column("stop")[grain] = self.trainer.interrupt.asked
        for tree in self.trees.values():
            tree.begin()
        self.totals: dict[int, np.ndarray] = {}  # frees the last step's totals before new memory is needed
        self.leaves: dict[Any, np.ndarray] = {}
        try:
            self.runPipeline(pipeline)
        finally:
            pipeline.reset()
        self.totals = {n: tree.total() if self.shard is None else tree.piece() for n, tree in self.trees.items()}
        if self.shard in ("gradients", "parameters"):
            for tree in self.trees.values():
                tree.spare = []  # free for the rest of the step

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
        trainer, objective, batch = self.trainer, self.objective, self.group[0]
        size = -(-trainer.batchsize // self.grains.count)
        shapes = [(size, *x.shape[1:]) for x in (*batch.data, *batch.target)]
        last = len(self.net.steps(len(batch.data)).items) - 1
        pipeline: StagePipeline = self.pipelineType(
            objective.graph, shapes, last, self.mesh, self.stages, objective.compile
        )
        sharding = self.shardingOf(pipeline)
        self.stageRows = sharding.rows
        if self.shard == "parameters" and self.mesh.world.size > 1:
            self.weights = weightsFor(trainer, sharding)
            pipeline.readFrom(self.weights)
            if self.lockstep is not None:
                self.lockstep.weights = self.weights
        rows = {stage: sharding.rows[stage] for stage in pipeline.passes}
        self.trees = {
            stage: GrainSums(self.world, self.grains, row.begins[-1], self.dtype, row.cuts)
            for stage, row in rows.items()
        }
        self.stateHomes: dict[str, int] = {}
        for stage, segment in enumerate(pipeline.segments):
            held = {id(state) for state in segment.graph.states.values()}
            self.stateHomes.update({path: stage for path, state in self.states.items() if id(state) in held})
        self.sharded = ShardedUpdate(self, sharding, self.weights)
        return pipeline

    def shardingOf(self, pipeline: StagePipeline) -> Sharding:
        """Return the shards of all stages: the ranks that have a stage divide it, or have copies without `shard`."""
        mesh, rows = self.mesh, []
        for stage in range(self.stages):
            params = [p for p in self.params if pipeline.homes.get(id(p), [0])[0] == stage]
            first = mesh.rankAt(stage % mesh.stage.size, 0)
            size, ranks = sum(param.size for param in params), range(first, first + mesh.data.size)
            spread = (0, size) if size and not isElementwise(self.optimizer) else None
            cuts = [0] + [size] * len(ranks) if self.shard is None else cutsAmong(params, size, len(ranks), spread)
            rows.append(ShardRow(params, cuts, ranks, mesh.world.size, self.shard is None))
        offsets = {id(param): begin for param, (begin, _) in zip(self.params, self.row.spans)}
        return Sharding(mesh.world, rows, offsets, self.row.cuts[-1])

    def prepare(self, stage: int, unit: int) -> None:
        """Before a stage's forward, reset its states to those before the step."""
        apart = self.apartOf(self.units[unit].grain, self.units[unit].number)
        for path, state in self.states.items():
            if self.stateHomes.get(path) == stage:
                isCounter = any(state is counter for counter in self.counters)
                state.materialize()[...] = self.before[path] + apart if isCounter else self.before[path]

    def ended(self, stage: int, unit: int, outputs: list[Any]) -> None:
        """After a stage's forward, write its states to the row, and after the last stage cost and metrics."""
        grain, number, _ = self.units[unit]
        part, apart = self.parts[unit], self.apartOf(grain, number)
        for path, state in self.states.items():
            if self.stateHomes.get(path) == stage and any(state is counter for counter in self.counters):
                state.materialize()[...] -= apart
        row = stateRow({p: s for p, s in self.states.items() if self.stateHomes.get(p) == stage}, self.before)
        if stage == self.stages - 1:
            cost, shown = self.objective.parted(outputs)
            row |= costRow(self, part, cost, shown, grain, number)
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
        for param in self.stageRows[stage].params:
            into, grad = leaf[begin : begin + param.size], gradients.get(id(param))
            if grad is not None:
                grad = (grad if share is None else scaled(grad, share)).reshape(-1)  # scaled one by one, to save memory
                into[...] = grad if isFirst else (into.astype(grad.dtype) + grad)
            elif isFirst:
                into[...] = 0
            begin += param.size
            self.column("reached")[grain, number, self.indices[id(param)]] = grad is not None

    # All grains -----------------------------------------------------------------------------------------------------

    def gatherRows(self) -> None:
        """All-gather the rows of all grains, and complete them with columns that only other stages know."""
        axis, localGrains = self.mesh.stage, self.grains.own
        length = self.rows[0].size
        gathered = np.zeros((axis.size, *self.rows.shape))
        gathered[axis.index, localGrains.start : localGrains.stop] = self.rows[localGrains.start : localGrains.stop]
        ends = [length * (p * self.grains.count + bound) for p in range(axis.size) for bound in self.grains.bounds[:-1]]
        self.mesh.world.allGather(gathered.reshape(-1), [*ends, gathered.size])
        self.rows[...] = gathered[(self.stages - 1) % axis.size]
        for name in ("stop", "reached"):
            span, _ = self.columns.spans[name]
            self.rows[..., span] = gathered[..., span].max(0)
        for path, stage in self.stateHomes.items():
            span, _ = self.columns.spans[f"state {path}"]
            self.rows[..., span] = gathered[stage % axis.size][..., span]

    def multiply(self, factor: float) -> None:
        for total in self.totals.values():
            total *= total.dtype.type(factor)

    def finish(self, locations: list[str]) -> None:
        try:
            super().finish(locations)
        except NotFiniteError:
            self.gatherWeights()  # raised on all ranks; a caller that continues has the weights of the last step
            raise

    def rowSums(self) -> Sums:
        return self.totals

    def update(self) -> None:
        super().update()
        if self.weights is None:
            if self.pipeline is not None:
                self.pipeline.shareWeights()
            self.isStale = self.mesh.stage.size > 1

    def gatherWeights(self) -> None:
        """Give all ranks the weights of all stages."""
        if not self.isStale or self.sharded is None:
            return
        self.isStale, axis = False, self.mesh.stage
        for index in range(axis.size):
            params = [param for row in self.sharded.sharding.rows[index :: axis.size] for param in row.params]
            flat = [param.materialize().reshape(-1).view(np.uint8) for param in params]
            row = np.concatenate(flat) if flat else np.empty(0, np.uint8)
            self.mesh.world.broadcast(row, self.mesh.rankAt(index, 0))
            begin = 0
            for param, into in zip(params, flat):
                if index != axis.index:
                    into[...] = row[begin : begin + len(into)]
                    param.bumpVersion()
                begin += len(into)
