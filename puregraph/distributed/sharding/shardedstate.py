"""Sharded state: each rank keeps the optimizer state of the elements that it updates; gathered on read and on save."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from puregraph.core.base.align import aligned
from puregraph.core.errors import CheckpointError
from puregraph.core.storage.pieces import ElementRange, PieceSet, writePiece
from puregraph.distributed.sharding.sharding import Sharding
from puregraph.distributed.worlds.world import World
from puregraph.graph import Graph
from puregraph.optimizers.optimizer import Optimizer
from puregraph.optimizers.slot import Slot
from puregraph.serialize.checkpointwriter import DividedState, save

Result = TypeVar("Result")


def keepShards(sharding: Sharding, optimizer: Optimizer, slots: list[Slot]) -> None:
    """Reduce the optimizer's state to the elements that this rank updates; a state with other shards is gathered first.

    All ranks call it.
    """
    known = [slot.sharding for slot in optimizer.slots if slot.sharding is not None]
    gathered = wholeState(optimizer) if any(not sharding.isLike(other) for other in known) else None
    for slot in slots:
        arrays, rule = slot.arrays, optimizer.ruleOf(slot)
        if gathered is not None:
            arrays = {name: gathered[f"{name}/{slot.path}"] for name in rule.stateNames(slot) if slot.step}
        elif slot.sharding is not None:
            continue
        first, last = sharding.updated(slot.param)
        kept = arrays if first < last else {}
        isWhole = sharding.isWhole(slot.param)
        slot.arrays = {name: aligned(a) if isWhole else sharding.shard(slot.param, a) for name, a in kept.items()}
        isEverywhere = sharding.isEverywhere(slot.param)
        slot.sharding, slot.part = (None, None) if isEverywhere else (sharding, sharding.held(slot.param))


def isSharded(optimizer: Optimizer | None) -> bool:
    """True if this rank has only a shard of the state."""
    return any(slot.part is not None for slot in getattr(optimizer, "slots", ()))


def wholeState(optimizer: Optimizer) -> dict[str, Any]:
    """Gather the full `optimizer.state`; all ranks call it."""
    gathered: dict[str, Any] = {}
    for slot in optimizer.slots:
        for name in optimizer.ruleOf(slot).storedNames(slot) if slot.step else ():
            isStep = name == "step"
            gathered[f"{name}/{slot.path}"] = np.array(slot.step) if isStep else slot.gathered(name, optimizer)
    return gathered


def saveSharded(world: World, path: Any, net: Graph, optimizer: Optimizer, extra: Any) -> bytes | None:
    """Save a checkpoint whose optimizer state is sharded: each rank writes its shard, then rank 0 the main file.

    If shards have another order of elements than arrays, rank 0 writes everything. All ranks call it. Saving is atomic:
    if a rank is killed, the old file with its shards is complete, or the new one. Without a path, the state is gathered
    and the file's bytes are returned.

    Raises    CheckpointError, on all ranks, naming the rank that cannot write
    """
    if path is None:
        return save(None, net, optimizer, extra, DividedState(wholeState(optimizer), None))
    if any(slot.sharding is not None and slot.sharding.orders for slot in optimizer.slots):
        state = DividedState(wholeState(optimizer), None)
    else:
        arrays, shapes, ranges = shardsOf(optimizer)
        rows = onEach(world, lambda: writePiece(path, world.rank, world.size, ranges))
        state = DividedState(arrays, PieceSet(rows, shapes))
    onEach(world, lambda: None if world.rank else save(path, net, optimizer, extra, state))
    return None


def shardsOf(optimizer: Optimizer) -> tuple[dict[str, Any], list[Any], list[ElementRange]]:
    """Return the state arrays by name (None for a sharded one), the shapes of the sharded arrays, and what this rank
    holds of them."""
    arrays: dict[str, Any] = {}
    shapes: list[Any] = []
    ranges = []
    for slot in optimizer.slots:
        for name in optimizer.ruleOf(slot).storedNames(slot) if slot.step else ():
            index, key = len(arrays), f"{name}/{slot.path}"
            if name == "step":
                arrays[key] = np.array(slot.step)
            elif slot.part is None:
                arrays[key] = slot.arrays[name]
            else:
                arrays[key] = None
                dtype = np.promote_types(slot.param.dtype, np.float32)
                shape = slot.shapeOf(name, optimizer.ruleOf(slot))
                shapes.append([index, list(slot.param.shape if shape is None else shape), dtype.name])
                first, last = slot.part if shape is None else (0, math.prod(shape) * (slot.part[0] < slot.part[1]))
                ranges += [ElementRange(index, first, last, slot.arrays[name].reshape(-1))] if first < last else []
    return arrays, shapes, ranges


def onEach(world: World, action: Callable[[], Result]) -> list[Result]:
    """Return the JSON results of an action on all ranks.

    Raises    CheckpointError, on all ranks, if the action raises it on one
    """
    try:
        outcome: Any = {"result": action()}
    except CheckpointError as error:
        outcome = {"error": str(error)}
    outcomes = [json.loads(data) for data in world.gather(json.dumps(outcome).encode())]
    for rank, outcome in enumerate(outcomes):
        if "error" in outcome:
            raise CheckpointError(f"rank {rank} of {world.size}: {outcome['error']}")
    return [outcome["result"] for outcome in outcomes]
