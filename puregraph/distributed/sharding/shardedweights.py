"""ShardedWeights: the weights of a network in shards, one per rank, which other ranks read on demand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from puregraph.core import device
from puregraph.core.errors import DataError
from puregraph.core.initial import Given
from puregraph.core.param import Param
from puregraph.distributed.sharding.sharding import Sharding, isOnDevice
from puregraph.distributed.worlds.world import World

ALIGNMENT_BYTES = 64  # alignment of a parameter's shard, in bytes


class OwnedSpan(NamedTuple):
    """A range of a parameter's elements, `first` to `last`, stored in a rank's memory from byte `begin` on."""

    rank: int
    begin: int
    first: int
    last: int


class ShardedWeights:
    """Sharded weights; each rank has its shard in memory that the others read.

    A sharded parameter has no array, and gathers one on the first read of its data, by an eager rule or by the user.
    The next step takes this rank's shard from that array, and its update frees it.

    `ranks`  the rank in `world`, which has the memory, of each rank of the sharding's world
    `views`  parameters whose arrays are parts of this rank's shards
    """

    def __init__(self, world: World, sharding: Sharding, ranks: Sequence[int] | None = None):
        self.world, self.sharding, self.views = world, sharding, list[Param]()
        self.params = [param for param in sharding.params if not sharding.rowOf(param).isCopied]
        ends = [0] * sharding.world.size
        self.owners: dict[int, list[OwnedSpan]] = {}
        for param in self.params:
            spans = self.owners[id(param)] = []
            for rank, begin in enumerate(ends):
                first, last = sharding.held(param, rank)
                if first < last:
                    spans.append(OwnedSpan(rank if ranks is None else ranks[rank], begin, first, last))
                    ends[rank] += -(-(last - first) * param.dtype.itemsize // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
        # not empty, because the next rank's memory may follow directly
        nbytes = max(ends[sharding.world.rank], ALIGNMENT_BYTES)
        self.window = world.window(nbytes, np.dtype(np.uint8))

    def has(self, param: Any) -> bool:
        """True if the weights of a parameter are sharded here."""
        return id(param) in self.owners

    def shard(self, param: Param) -> np.ndarray:
        """Return this rank's shard of a parameter, a view of the memory that others read."""
        spans = [span for span in self.owners[id(param)] if span.rank == self.world.rank]
        begin, count = (spans[0].begin, spans[0].last - spans[0].first) if spans else (0, 0)
        return self.window.own[begin : begin + count * param.dtype.itemsize].view(param.dtype)

    def read(self, param: Param, into: np.ndarray) -> None:
        """Fill an array with the weights of a parameter."""
        if param.array is not None:  # gathered or set since the last step
            into[...] = param.array
            return
        isSame = id(param) not in self.sharding.orders and into.dtype == param.dtype and into.flags.c_contiguous
        flat = into.reshape(-1) if isSame else np.empty(param.size, param.dtype)
        for rank, begin, first, last in self.owners[id(param)]:
            self.window.read(rank, begin, flat[first:last].view(np.uint8))
        if not isSame:
            into[...] = self.sharding.shaped(param, flat)

    def divide(self) -> None:
        """Store this rank's shards of gathered weights, and free their arrays; all ranks call it."""
        for param in self.params:
            if param.array is None and type(param.initial) is Gathering and param.initial.weights is self:
                continue
            values = param.startingValues() if param.array is None else param.array
            self.shard(param)[...] = device.toHost(self.sharding.shard(param, values)).reshape(-1)
            param.initial = Gathering(self, param)
        self.drop()

    def drop(self) -> None:
        """Free the arrays of gathered weights, without storing them in the shards; all ranks call it."""
        for param in self.params:
            if param.array is not None:
                param.array = None
                param.bumpVersion()
        for view in self.views:
            view.bumpVersion()
        self.world.barrier()

    def close(self) -> None:
        """Gather the weights that are still sharded, and free the memory; all ranks call it."""
        for param in self.params:
            if param.array is None and type(param.initial) is Gathering and param.initial.weights is self:
                param.materialize()
        self.world.barrier()
        self.window.close()


class Gathering:
    """The starting values of a sharded parameter, which gather its weights."""

    isKeptElsewhere = True

    def __init__(self, weights: ShardedWeights, param: Param):
        self.weights, self.param = weights, param

    def __call__(self, rng: Any = None, shape: Any = None) -> np.ndarray:
        values = np.empty(self.param.shape, self.param.dtype)
        self.weights.read(self.param, values)
        return values

    def __reduce__(self) -> Any:
        return Given, (self(),)


def weightsFor(trainer: Any, sharding: Sharding) -> ShardedWeights:
    """Return a trainer's sharded weights, those of the last run if they are sharded alike.

    Raises    DataError for weights on a GPU
    """
    if any(map(isOnDevice, sharding.params)):
        raise DataError('shard="parameters": weights on a GPU cannot be in pieces yet; shard="gradients" can be used')
    before: ShardedWeights | None = trainer.objective.weights
    isSame = before is not None and before.sharding.isLike(sharding)
    weights = before if before is not None and isSame else ShardedWeights(trainer.world, sharding)
    weights.divide()
    if before is not None and not isSame:
        before.close()
    trainer.objective.weights = trainer.validator.objective.weights = weights
    return weights
