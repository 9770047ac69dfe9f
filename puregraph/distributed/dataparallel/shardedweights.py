"""ShardedWeights: the weights of a network in pieces, one in each process, which all others read when they need it."""

from __future__ import annotations

from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np

from puregraph.core import device
from puregraph.core.errors import DataError
from puregraph.core.initial import Given
from puregraph.core.param import Param
from puregraph.distributed.dataparallel.gradientexchange import GradientExchange, isOnDevice
from puregraph.distributed.worlds.world import World


class OwnedSpan(NamedTuple):
    """A range of a parameter's elements, `first` to `last`, stored in a rank's array from `begin` on."""

    rank: int
    begin: int
    first: int
    last: int


Owners = dict[int, list[OwnedSpan]]  # by the id of a parameter who has which of its elements


class ShardedWeights:
    """Sharded weights; each rank has its shard in memory that the others read.

    A sharded parameter has no array, and gathers one on the first read of its data, by an eager rule or by the user.
    The next step takes this rank's shard from that array, and its update frees it.
    """

    def __init__(self, world: World, params: list[Param], owners: Owners, dtype: np.dtype):
        self.world, self.params, self.owners, self.dtype = world, params, owners, dtype
        localSpans = [span for spans in owners.values() for span in spans if span.rank == world.rank]
        self.window = world.window(max([span.begin + span.last - span.first for span in localSpans], default=0), dtype)

    def isLike(self, params: list[Param], owners: Owners, dtype: np.dtype) -> bool:
        """True if these are the same parameters with the same shards."""
        return self.owners == owners and self.dtype == dtype and list(map(id, self.params)) == list(map(id, params))

    def has(self, param: Any) -> bool:
        """True if the weights of a parameter are sharded here."""
        return id(param) in self.owners

    def piece(self, param: Param) -> np.ndarray:
        """The elements that this process has of a parameter, in the memory that others read."""
        localSpans = [span for span in self.owners[id(param)] if span.rank == self.world.rank]
        begin, count = (localSpans[0].begin, localSpans[0].last - localSpans[0].first) if localSpans else (0, 0)
        return self.window.own[begin : begin + count]

    def read(self, param: Param, into: np.ndarray) -> None:
        """Fill an array with the weights of a parameter."""
        if param.array is not None:  # which has been read, or set, since the last step
            into[...] = param.array
            return
        isSame = into.dtype == self.dtype
        flat = into.reshape(-1) if isSame else np.empty(param.size, self.dtype)
        for rank, begin, first, last in self.owners[id(param)]:
            self.window.read(rank, begin, flat[first:last])
        if not isSame:
            into[...] = flat.reshape(param.shape)

    def divide(self) -> None:
        """Keep the piece of this process alone of weights that are whole; all processes call it."""
        for param in self.params:
            if param.array is None and type(param.initial) is Gathering and param.initial.weights is self:
                continue
            whole = param.startingValues() if param.array is None else param.array
            for span in self.owners[id(param)]:
                if span.rank == self.world.rank:
                    self.piece(param)[...] = device.toHost(whole).reshape(-1)[span.first : span.last]
            param.initial = Gathering(self, param)
        self.drop()
        self.world.barrier()

    def drop(self) -> None:
        """Let go of weights that are whole: the pieces are what holds."""
        for param in self.params:
            if param.array is not None:
                param.array = None
                param.bumpVersion()

    def close(self) -> None:
        """Give the memory back, if no parameter needs it; all processes call it."""
        for param in self.params:
            if param.array is None and type(param.initial) is Gathering and param.initial.weights is self:
                param.materialize()
        self.world.barrier()
        self.window.close()


class Gathering:
    """The starting values of a parameter whose weights are in pieces: those that `weights` reads."""

    isKeptElsewhere = True

    def __init__(self, weights: Any, param: Param):
        self.weights, self.param = weights, param

    def __call__(self, rng: Any = None, shape: Any = None) -> np.ndarray:
        values = np.empty(self.param.shape, self.param.dtype)
        self.weights.read(self.param, values)
        return values

    def __reduce__(self) -> Any:
        return Given, (self(),)


def bucketedWeights(trainer: Any, gradients: GradientExchange) -> ShardedWeights:
    """Return a trainer's sharded weights; each rank has its shard of every bucket."""
    spans, runs = gradients.spans, gradients.tree.runs
    begins = [list(accumulate([end - begin for begin, end in ofRank], initial=0)) for ofRank in runs]
    owners: Owners = {}
    for number, group in enumerate(gradients.buckets.groups):
        for index in group:
            a, b = spans[index]
            overlaps = [(r, max(owned[number][0], a), min(owned[number][1], b)) for r, owned in enumerate(runs)]
            owners[id(gradients.params[index])] = [
                OwnedSpan(r, begins[r][number] + first - runs[r][number][0], first - a, last - a)
                for r, first, last in overlaps
                if first < last
            ]
    return partedWeights(trainer, gradients.params, owners, gradients.tree.dtype)


def partedWeights(trainer: Any, params: list[Param], owners: Owners, dtype: np.dtype) -> ShardedWeights:
    """Return a trainer's sharded weights, the previous ones if they are sharded alike.

    Raises    DataError for weights on a GPU
    """
    if any(map(isOnDevice, params)):
        raise DataError('shard="parameters": weights on a GPU cannot be in pieces yet; shard="gradients" can be used')
    before = trainer.objective.weights
    isSame = before is not None and before.isLike(params, owners, dtype)
    weights = before if isSame else ShardedWeights(trainer.world, params, owners, dtype)
    weights.divide()
    if before is not None and not isSame:
        before.close()
    trainer.objective.weights = trainer.validator.objective.weights = weights
    return weights
