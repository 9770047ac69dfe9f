"""TensorShards: the parts of parameters in memory that all processes read, and nothing where the whole ones were."""

from __future__ import annotations

from typing import Any

import numpy as np

from puregraph.distributed.collectives.treesum import BLOCK
from puregraph.distributed.dataparallel.shardedweights import Gathering
from puregraph.distributed.tensor.splitgraph import ParamPart, SplitGraph
from puregraph.distributed.tensor.tensorgrid import TensorGrid
from puregraph.distributed.tensor.tensorlayout import ParamCut


class TensorShards:
    """The divided weights of a SplitGraph.

    A divided parameter has no array, and gathers one from all parts on the first read of its data. The next step takes
    the parts from that array, and its update frees it.
    """

    def __init__(self, grid: TensorGrid, split: SplitGraph):
        self.grid, self.split = grid, split
        self.params = {id(param): param for param in split.layout.graph.params.values() if id(param) in split.parts}
        self.cuts: dict[int, ParamCut] = {key: split.layout.cuts[key] for key in self.params}
        self.begins: dict[tuple[int, int], int] = {}  # where a part begins in its process's memory, in bytes
        ends = [0] * grid.positions
        for key, param in self.params.items():
            for part in range(grid.parts):
                position = grid.rankOf(part, 0)
                self.begins[key, part] = ends[position]
                nbytes = param.dtype.itemsize * int(np.prod(self.shapeOf(key, part)))
                ends[position] += -(-nbytes // (4 * BLOCK)) * 4 * BLOCK  # aligned
        self.window = grid.world.window(ends[grid.position], np.dtype(np.uint8))
        for key, parts in split.parts.items():
            for shard in parts:
                begin, nbytes = self.begins[key, shard.part], shard.nbytes
                shard.array = self.window.own[begin : begin + nbytes].view(shard.dtype).reshape(shard.shape)
        self.divide()

    def shapeOf(self, key: int, part: int) -> tuple[int, ...]:
        """The shape of a part of a parameter."""
        cut, shape = self.cuts[key], list(self.params[key].shape)
        shape[cut.axis] = len(cut.indices(part, self.grid.parts))
        return tuple(shape)

    def has(self, param: Any) -> bool:
        """True if a parameter is divided."""
        return id(param) in self.params

    def read(self, param: Any, into: np.ndarray) -> None:
        """Fill an array with the weights of a parameter."""
        if param.array is not None:  # read or set since the last step
            into[...] = param.array
            return
        key = id(param)
        for part in range(self.grid.parts):
            values = np.empty(self.shapeOf(key, part), param.dtype)
            self.window.read(self.grid.rankOf(part), self.begins[key, part], values.reshape(-1).view(np.uint8))
            self.cuts[key].put(values, into, part, self.grid.parts)

    def divide(self) -> None:
        """Keep only the parts of gathered weights; all ranks call it."""
        for key, param in self.params.items():
            if param.array is None and type(param.initial) is Gathering and param.initial.weights is self:
                continue
            whole = param.startingValues() if param.array is None else param.array
            for part in self.split.parts[key]:
                part.array[...] = part.of(whole)
                part.bumpVersion()
            param.initial = Gathering(self, param)
        self.drop()

    def drop(self) -> None:
        """Let go of weights that are whole, when all processes have come here: the parts are what holds."""
        for param in self.params.values():
            if param.array is not None:
                param.array = None
                param.bumpVersion()
        self.grid.world.barrier()


class SplitState:
    """The optimizer's state of a divided parameter: the slots of this rank's parts."""

    def __init__(self, grid: TensorGrid, cut: ParamCut, slots: list[Any]):
        self.grid, self.cut, self.slots = grid, cut, slots

    def whole(self, name: str) -> np.ndarray:
        """Gather the state array of this name for the full parameter; all ranks call it."""
        parts: list[ParamPart] = [slot.param for slot in self.slots]
        first = parts[0]
        full = np.empty(first.whole.shape, np.promote_types(first.dtype, np.float32))
        stride = full.size // self.cut.size  # elements of one index of the axis
        ends = [stride * bound for bound in self.cut.bounds(self.grid.parts)]
        flat = np.empty(full.size, full.dtype)
        for slot in self.slots:
            flat[ends[slot.param.part] : ends[slot.param.part + 1]] = slot.arrays[name].reshape(-1)
        firsts = [self.grid.parts * r // self.grid.positions for r in range(self.grid.positions + 1)]
        self.grid.along.allGather(flat, [ends[part] for part in firsts])
        for part in range(self.grid.parts):
            shape = list(full.shape)
            shape[self.cut.axis] = -1
            self.cut.put(flat[ends[part] : ends[part + 1]].reshape(shape), full, part, self.grid.parts)
        return full
