"""Divided save: a checkpoint to which every rank writes its shard of the optimizer's state."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np

from puregraph.core.errors import CheckpointError
from puregraph.core.storage.pieces import ElementRange, PieceSet, writePiece
from puregraph.distributed.dataparallel.shardedupdate import wholeState
from puregraph.distributed.worlds.world import World
from puregraph.graph import Graph
from puregraph.serialize.checkpoint import DividedState, save


def saveDivided(world: World, path: Any, net: Graph, optimizer: Any, extra: Any) -> bytes | None:
    """Each process writes its piece; when all are on the disk, the first one writes the file that names them. Of
    tensors in parts the first one writes all.

    All processes call it. Whoever is ended, and whenever, there is the old file with its pieces, or the new one.

    Raises    CheckpointError, on all of them, naming the process that cannot write
    """
    if path is None:
        return save(None, net, optimizer, extra, DividedState(wholeState(world, optimizer), None))
    if any(slot.split is not None for slot in optimizer.slots):  # a part of columns is many runs of elements
        whole = DividedState(wholeState(world, optimizer), None)
        inEach(world, lambda: None if world.rank else save(path, net, optimizer, extra, whole))
        return None
    arrays, shapes, runs = partsOf(optimizer)
    rows = inEach(world, lambda: writePiece(path, world.rank, world.size, runs))
    state = DividedState(arrays, PieceSet(rows, shapes))
    inEach(world, lambda: None if world.rank else save(path, net, optimizer, extra, state))
    return None


def partsOf(optimizer: Any) -> tuple[dict[str, Any], list[Any], list[ElementRange]]:
    """Return the state arrays by name (None for a sharded one), the shapes of the sharded arrays, and this rank's
    shards."""
    arrays: dict[str, Any] = {}
    shapes: list[Any] = []
    runs = []
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
                shapes.append([index, list(slot.param.shape), dtype.name])
                first, last = slot.part
                runs += [ElementRange(index, first, last, slot.arrays[name].reshape(-1))] if slot.hasState else []
    return arrays, shapes, runs


def inEach(world: World, action: Callable[[], Any]) -> list[Any]:
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
