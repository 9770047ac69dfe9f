"""Stage state: of an optimizer's state each process keeps that of its own stages."""

from __future__ import annotations

from typing import Any

import numpy as np

from puregraph.base.align import aligned
from puregraph.optimizers.slot import Slot
from puregraph.optimizers.updateformulas import states
from puregraph.train.pipeline.pipelinegrid import PipelineGrid
from puregraph.train.together.shardedupdate import wholeState


def keepOwn(grid: PipelineGrid, optimizer: Any, slots: list[Slot], owner: dict[int, int]) -> None:
    """Keep the state of parameters whose `owner`, by their ids, is a stage of this process; all processes call it."""
    wanted = {id(slot): partOf(grid, slot, owner.get(id(slot.param), 0)) for slot in slots}
    differs = np.array([any(slot.part not in (None, wanted[id(slot)]) for slot in slots)], np.int64)
    grid.world.allReduce(differs)
    whole = wholeState(grid.world, optimizer) if differs[0] else {}
    for slot in slots:
        isOwn = owner.get(id(slot.param)) in grid.own
        arrays = slot.arrays
        if whole:
            names = states(type(optimizer.ruleOf(slot))) if slot.step else ()
            arrays = {name: whole[f"{name}/{slot.path}"] for name in names}
        if arrays is not slot.arrays or not isOwn:
            shape = slot.param.shape
            slot.arrays = {n: aligned(a.reshape(shape).copy()) for n, a in arrays.items()} if isOwn else {}
        slot.part = wanted[id(slot)]


def partOf(grid: PipelineGrid, slot: Slot, stage: int) -> tuple[int, int] | None:
    """Of which elements this process says that their state is there: of all, if it is the first that has the stage;
    None where every process has all stages."""
    if grid.positions == 1:
        return None
    first, rank, size = grid.firstRank(stage), grid.world.rank, slot.param.size
    return (0, 0) if rank < first else (0, size) if rank == first else (size, size)
