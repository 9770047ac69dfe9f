"""Stage state: of an optimizer's state each process keeps that of its own stages, or its share of that."""

from __future__ import annotations

from typing import Any

import numpy as np

from puregraph.core.base.align import aligned
from puregraph.distributed.dataparallel.shardedupdate import wholeState
from puregraph.distributed.pipeline.stageshard import StageShard
from puregraph.optimizers.slot import Slot


def keepOwn(share: StageShard, optimizer: Any, slots: list[Slot]) -> None:
    """Keep the state of the elements that this process updates; all processes call it."""
    world = share.grid.world
    isEverywhere = share.grid.positions == 1 and not share.isDivided
    parts = [None if isEverywhere else share.partOf(slot.param, world.rank) for slot in slots]
    isKnown = [
        slot.part is None or slot.part == part and isFit(share, optimizer, slot) for slot, part in zip(slots, parts)
    ]
    differs = np.array([not all(isKnown)], np.int64)
    world.allReduce(differs)
    whole = wholeState(world, optimizer) if differs[0] else {}
    for slot, part in zip(slots, parts):
        first, last = share.updated(slot.param)
        isCut, arrays = slot.part is None, slot.arrays
        if whole:
            names = optimizer.ruleOf(slot).stateNames(slot) if slot.step else ()
            isCut, arrays = True, {name: whole[f"{name}/{slot.path}"] for name in names}
        if isCut:
            arrays = {name: elementsOf(array, first, last) for name, array in arrays.items()}
        shape = (last - first,) if share.isDivided else slot.param.shape
        slot.arrays = {name: array.reshape(shape) for name, array in arrays.items()} if first < last else {}
        slot.part = part


def isFit(share: StageShard, optimizer: Any, slot: Slot) -> bool:
    """True if the slot's state has as many elements as this rank updates."""
    first, last = share.updated(slot.param)
    names = optimizer.ruleOf(slot).stateNames(slot) if slot.step and first < last else ()
    return {name: array.size for name, array in slot.arrays.items()} == dict.fromkeys(names, last - first)


def elementsOf(array: Any, first: int, last: int) -> Any:
    """Copy some elements of an array; all of them are returned without a copy."""
    selected = array.reshape(-1)[first:last]
    return aligned(selected if len(selected) == array.size else selected.copy())
