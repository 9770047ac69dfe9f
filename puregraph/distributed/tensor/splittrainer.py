"""SplitTrainer: a trainer as the steps of its network in parts see it."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np

from puregraph.distributed.dataparallel.shardedupdate import takeSettings, wholeState
from puregraph.distributed.dataparallel.sharedstep import slotsOf
from puregraph.distributed.tensor.splitgraph import SplitGraph
from puregraph.distributed.tensor.tensorgrid import TensorGrid
from puregraph.distributed.tensor.tensorshards import SplitState, TensorShards
from puregraph.optimizers.slot import Slot


class SplitTrainer:
    """The trainer, but for its network, which is the SplitGraph, the parameters of that, and the processes that have
    the same parts, which are its world.

    `whole`    the trainer itself
    `pairs`    each slot of its optimizer with those that have its state here
    """

    shard = None
    deviceExchange = None

    def __init__(self, trainer: Any, grid: TensorGrid, split: SplitGraph):
        self.whole, self.grid, self.split = trainer, grid, split
        self.net, self.world = split.graph, grid.across
        self.slots = slotsOf(trainer.optimizer)
        self.optimizer = copy.copy(trainer.optimizer)
        self.pairs = self.divideState()
        self.optimizer.slots = [partSlot for _, owns in self.pairs for partSlot in owns]
        self.weights = TensorShards(grid, split)
        self.objective = type(trainer.objective)(split.graph, trainer.cost, trainer.objective.compile)
        self.objective.say = trainer.objective.say

    def __getattr__(self, name: str) -> Any:
        return getattr(self.whole, name)

    @property
    def ignored(self) -> Any:
        """The trainer's count of labels that are left out."""
        return self.whole.ignored

    @ignored.setter
    def ignored(self, value: Any) -> None:
        self.whole.ignored = value

    def divideState(self) -> list[tuple[Slot, list[Slot]]]:
        """Keep only this rank's parts of the optimizer's state; state that is sharded otherwise is gathered first."""
        optimizer, world = self.whole.optimizer, self.grid.world
        isOther = np.array([any(s.split is not None or s.part is not None for s in optimizer.slots)], np.int64)
        world.allReduce(isOther)
        whole = wholeState(world, optimizer) if isOther[0] else {}
        pairs = []
        for slot in optimizer.slots:
            arrays = slot.arrays
            if whole:
                names = optimizer.ruleOf(slot).stateNames(slot) if slot.step else ()
                arrays = {name: whole[f"{name}/{slot.path}"] for name in names}
            slot.part = slot.split = None
            parts = self.split.parts.get(id(slot.param))
            if parts is None:
                slot.arrays = arrays
                owns = [self.slotLike(slot, slot.param, arrays)]
            else:
                shape = slot.param.shape
                owns = [
                    self.slotLike(slot, part, {n: part.of(a.reshape(shape)) for n, a in arrays.items()})
                    for part in parts
                ]
                slot.arrays, slot.split = {}, SplitState(self.grid, parts[0].cut, owns)
            pairs.append((slot, owns))
        return pairs

    def slotLike(self, slot: Slot, param: Any, arrays: dict[str, Any]) -> Slot:
        """A slot for a parameter, or a part of it, that is updated as the whole."""
        partSlot = Slot(slot.path, param)
        partSlot.arrays, partSlot.rule, partSlot.step = arrays, slot.rule, slot.step
        return partSlot

    def takeSettings(self) -> None:
        """Before an update: the settings of the optimizer, and of parameters, as they are now."""
        takeSettings(self.optimizer, self.whole.optimizer)
        for slot, owns in self.pairs:
            for partSlot in owns:
                partSlot.step = slot.step
                if partSlot.param is not slot.param:
                    partSlot.param.follow()

    def giveCounts(self) -> None:
        """Behind it: how many there have been."""
        self.whole.optimizer.step, self.whole.optimizer.norm = self.optimizer.step, self.optimizer.norm
        for slot, owns in self.pairs:
            slot.step = owns[0].step
