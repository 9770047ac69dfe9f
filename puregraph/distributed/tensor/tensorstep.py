"""TensorStep: one step of a network whose layers are in parts, for the grains of a batch."""

from __future__ import annotations

from typing import Any

import numpy as np

from puregraph.core.errors import NotFiniteError
from puregraph.data.batches import Batch
from puregraph.distributed.collectives.grains import Grains
from puregraph.distributed.dataparallel.sharedstep import SharedStep, slotsOf
from puregraph.distributed.dataparallel.undividable import refuseUndividable
from puregraph.distributed.pipeline.scatterednorm import scatteredNorm
from puregraph.distributed.tensor.splitgraph import splitTensors
from puregraph.distributed.tensor.splittrainer import SplitTrainer
from puregraph.distributed.tensor.tensorgrid import TensorGrid


class SplitStep(SharedStep):
    """A SharedStep of a SplitTrainer: gradients of parts are exchanged by the processes that have the same ones."""

    def __init__(self, trainer: SplitTrainer, count: int):
        super().__init__(trainer, count)
        trainer.objective.buckets = None  # sums of values are exchanged meanwhile, and by one thread alone

    def collect(self, group: list[Batch], location: str) -> None:
        trainer = self.trainer
        trainer.weights.divide()
        trainer.optimizer.zeroGradParams()
        trainer.grid.world.label = location
        trainer.objective.prepare(group[0])
        super().collect(group, location)

    def gatherRows(self) -> None:
        super().gatherRows()
        along = self.trainer.grid.along
        if along.size > 1:  # others may have been asked to stop
            asked = np.array([self.column("stop").any()], np.int64)
            along.allReduce(asked)
            self.column("stop")[...] = asked[0]

    def measured(self) -> float:
        """Return the norm of all gradients, taking the parts of a parameter in order, on any number of ranks."""
        grid, grads = self.trainer.grid, self.totals()
        runs: list[list[tuple[int, int]]] = [[] for _ in range(grid.world.size)]
        pieces, end, counted = [], 0, set(map(id, self.trainer.slots))
        for slot, owns in self.trainer.pairs:
            if id(slot) not in counted:
                continue
            isCut = slot.split is not None
            bounds = slot.split.cut.bounds(grid.parts) if isCut else [0, 1]
            stride = slot.param.size // bounds[-1] if bounds[-1] else 0
            for part in range(len(bounds) - 1):
                begin, end = end, end + stride * (bounds[part + 1] - bounds[part])
                runs[grid.rankOf(part, 0)].append((begin, end))
            if grid.replica == 0 and (isCut or grid.position == 0):
                pieces += [grads[id(own.param)] for own in owns]
        return scatteredNorm(grid.world, end, runs, pieces)

    def totals(self) -> dict[int, np.ndarray]:
        """Return the sums of gradients by the ids of parameters."""
        gradients, byParam = self.gradients, {}
        for number, group in enumerate(gradients.buckets.groups):
            total, first = gradients.tree.total[number], gradients.buckets.cuts[number]
            for index in group:
                begin, end = gradients.spans[index]
                byParam[id(gradients.params[index])] = total[begin - first : end - first]
        return byParam

    def update(self) -> None:
        trainer: SplitTrainer = self.trainer
        trainer.takeSettings()
        optimizer = trainer.optimizer
        if self.norm is not None and not np.isfinite(self.norm) and optimizer.onNonFinite != "skip":
            raise NotFiniteError.atUpdate(type(optimizer).__name__, optimizer.step, self.notFinite())
        super().update()
        trainer.giveCounts()
        trainer.weights.drop()

    def notFinite(self) -> str:
        """Name the parameters whose gradients are not finite on any rank."""
        grads, world = self.totals(), self.trainer.grid.world
        wrong = [
            slot.path
            for slot, owns in self.trainer.pairs
            if not all(np.isfinite(grads.get(id(own.param), 0)).all() for own in owns)
        ]
        paths = {path for text in world.gather("\n".join(wrong).encode()) for path in text.decode().split("\n")}
        return "the gradient of " + ", ".join(f"'{s.path}'" for s, _ in self.trainer.pairs if s.path in paths)


class TensorStep:
    """A SharedStep for tensor parallel training; the network is divided for the shapes of the first batch."""

    sharded = None

    def __init__(self, trainer: Any, count: int):
        self.trainer = trainer
        refuseUndividable(trainer, f"tensor={trainer.tensor}", "parts of tensors")
        self.grid = TensorGrid(trainer.world, trainer.tensor)
        self.grains = Grains(trainer.grains or self.grid.replicas, self.grid.across)
        self.slots = slotsOf(trainer.optimizer)
        self.step: SplitStep | None = None

    def collect(self, group: list[Batch], location: str) -> None:
        """Run forward, backward and the all-reduce of a step of these batches."""
        if self.step is None:
            self.step = self.makeStep(group[0])
        self.step.collect(group, location)

    def makeStep(self, batch: Batch) -> SplitStep:
        """Make a step of the divided network, which is kept from the last run if the optimizer has the same state."""
        trainer, known = self.trainer, self.trainer.objective.split
        if known is None or known.grid.world is not trainer.world or known.slots != self.slots:
            size = -(-trainer.batchsize // self.grains.count)
            shapes = [(size, *x.shape[1:]) for x in batch.data]
            known = SplitTrainer(
                trainer, self.grid, splitTensors(trainer.net, trainer.tensor, shapes, world=self.grid.along)
            )
            trainer.objective.split, trainer.validator.objective.weights = known, known.weights
        return SplitStep(known, self.grains.count)

    def finish(self, locations: list[str]) -> None:
        """Count costs and metrics, set states, and update."""
        if self.step is not None:
            self.step.finish(locations)

    def gatherWeights(self) -> None:
        """Do nothing: sharded weights are gathered on first read."""
