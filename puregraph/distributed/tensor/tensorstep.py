"""TensorStep: one step of a network whose layers are in tensor parallel parts."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from puregraph.core.param import Param
from puregraph.data.batches import Batch
from puregraph.distributed.dataparallel.deviceexchange import exchangeFor
from puregraph.distributed.dataparallel.sharedstep import SharedStep
from puregraph.distributed.dataparallel.undividable import refuseParts, refuseUndividable
from puregraph.distributed.sharding.shardedupdate import ShardedUpdate
from puregraph.distributed.sharding.shardedweights import ShardedWeights
from puregraph.distributed.sharding.sharding import Sums
from puregraph.distributed.tensor.splitgraph import ParamPart, SplitGraph, splitTensors
from puregraph.optimizers.slot import Slot


class SplitNetwork(NamedTuple):
    """A network in tensor parallel parts: its graph, its objective, its weights, and the updated slots."""

    split: SplitGraph
    objective: Any
    weights: ShardedWeights
    slots: list[Slot]


class TensorStep(SharedStep):
    """A SharedStep of this rank's parts, which all-reduces their gradients among the ranks with the same parts.

    The network is divided for the shapes of the first batch, and kept for the next run.
    """

    def begin(self) -> None:
        refuseUndividable(self.trainer, f"tensor={self.trainer.tensor}", "parts of tensors")
        self.split: SplitGraph | None = None

    def collect(self, group: list[Batch], location: str) -> None:
        split = self.split = self.split or self.divide(group[0])
        for part in [part for parts in split.parts.values() for part in parts]:
            part.follow()
        for param in self.params:
            param.grad, vars(param)["lost"] = None, 0
        self.merged: list[np.ndarray] | None = None
        self.objective.prepare(group[0])
        super().collect(group, location)

    def divide(self, batch: Batch) -> SplitGraph:
        """Divide the network, or take the last run's division, and prepare its steps."""
        trainer, mesh = self.trainer, self.mesh
        known: SplitNetwork | None = trainer.objective.split
        if known is None or known.weights.world is not trainer.world or known.slots != self.slots:
            size = -(-trainer.batchsize // self.grains.count)
            shapes = [(size, *x.shape[1:]) for x in batch.data]
            split = splitTensors(trainer.net, trainer.tensor, shapes, world=mesh.tensor.world)
            weights = split.shard(mesh.world, [mesh.rankAt(tensor=index) for index in range(mesh.tensor.size)])
            objective = type(trainer.objective)(split.graph, trainer.cost, trainer.objective.compile)
            objective.say = trainer.objective.say
            known = trainer.objective.split = SplitNetwork(split, objective, weights, self.slots)
            trainer.validator.objective.weights = weights
        self.split, self.weights = known.split, known.weights
        self.setup(known.split.graph, known.objective)
        self.objective.buckets = None  # one thread may communicate, which sums values during the pass
        sharding = known.split.sharding([slot.param for slot in self.slots])
        refuseParts(self.optimizer, sharding, f"tensor={trainer.tensor}")
        self.sharded = ShardedUpdate(self, sharding, known.weights)
        return known.split

    def setupGradients(self) -> list[Any]:
        params = [part for slot in self.slots for part in self.partsOf(slot.param)]
        self.gradients = exchangeFor(self, self.grains, params)
        return self.gradients.params

    def partsOf(self, param: Param) -> list[Param]:
        """Return the parts of a parameter that this rank holds, or all of it."""
        parts = {} if self.split is None else self.split.parts
        return [*parts.get(id(param), [param])]

    def source(self, param: Param) -> Param:
        return param.whole if isinstance(param, ParamPart) else param

    def gatherRows(self) -> None:
        super().gatherRows()
        tensor = self.mesh.tensor.world
        if tensor.size > 1:  # other ranks of the group may have been asked to stop
            asked = np.array([self.column("stop").any()], np.int64)
            tensor.allReduce(asked)
            self.column("stop")[...] = asked[0]

    def rowSums(self) -> Sums:
        """Return the gradients of each parameter, in the order of its parts."""
        if self.merged is None:
            gradients, totals = self.gradients, dict[int, np.ndarray]()
            for number, row in enumerate(gradients.rows):
                begin, total = 0, gradients.tree.total[number]
                for param in row:
                    totals[id(param)] = total[begin : begin + param.size]
                    begin += param.size
            rows = [[totals[id(part)] for part in self.partsOf(slot.param)] for slot in self.slots]
            self.merged = [np.concatenate(parts) if len(parts) > 1 else parts[0] for parts in rows]
        return self.merged
