"""PartedWeights: the weights of a network in pieces, one in each process, which all others read when they need it."""

from __future__ import annotations

from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np

from puregraph import device
from puregraph.core.initial import Given
from puregraph.core.param import Param
from puregraph.errors import DataError
from puregraph.many.world import World
from puregraph.train.together.gradientexchange import GradientExchange, isOnDevice


class OwnedSpan(NamedTuple):
    """Where some elements of a parameter are: from `first` to before `last`, in a process's array from `begin` on."""

    rank: int
    begin: int
    first: int
    last: int


Owners = dict[int, list[OwnedSpan]]  # by the id of a parameter who has which of its elements


class PartedWeights:
    """The weights of parameters, of which each process has pieces in memory that others read.

    A parameter has no array then, and makes one of all pieces when its data is first read: by a rule that is not
    compiled, by a user. The next step takes this process's piece from that, and its update lets go of it.
    """

    def __init__(self, world: World, params: list[Param], owners: Owners, dtype: np.dtype):
        self.world, self.params, self.owners, self.dtype = world, params, owners, dtype
        own = [span for spans in owners.values() for span in spans if span.rank == world.rank]
        self.window = world.window(max([span.begin + span.last - span.first for span in own], default=0), dtype)

    def isLike(self, params: list[Param], owners: Owners, dtype: np.dtype) -> bool:
        """Whether these are the same parameters in the same pieces."""
        return self.owners == owners and self.dtype == dtype and list(map(id, self.params)) == list(map(id, params))

    def has(self, param: Any) -> bool:
        """Whether the weights of a parameter are here."""
        return id(param) in self.owners

    def piece(self, param: Param) -> np.ndarray:
        """The elements that this process has of a parameter, in the memory that others read."""
        own = [span for span in self.owners[id(param)] if span.rank == self.world.rank]
        begin, count = (own[0].begin, own[0].last - own[0].first) if own else (0, 0)
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
        found = np.empty(self.param.shape, self.param.dtype)
        self.weights.read(self.param, found)
        return found

    def __reduce__(self) -> Any:
        return Given, (self(),)


def bucketedWeights(trainer: Any, gradients: GradientExchange) -> PartedWeights:
    """The weights of a trainer's network, of which each process has its piece of every bucket."""
    spans, runs = gradients.spans, gradients.tree.runs
    begins = [list(accumulate([end - begin for begin, end in each], initial=0)) for each in runs]
    owners: Owners = {}
    for number, group in enumerate(gradients.buckets.groups):
        for index in group:
            a, b = spans[index]
            found = [(r, max(each[number][0], a), min(each[number][1], b)) for r, each in enumerate(runs)]
            owners[id(gradients.params[index])] = [
                OwnedSpan(r, begins[r][number] + first - runs[r][number][0], first - a, last - a)
                for r, first, last in found
                if first < last
            ]
    return partedWeights(trainer, gradients.params, owners, gradients.tree.dtype)


def partedWeights(trainer: Any, params: list[Param], owners: Owners, dtype: np.dtype) -> PartedWeights:
    """The weights of a trainer's network in pieces; those of before, if they are like these.

    Raises    DataError for weights on a GPU
    """
    if any(map(isOnDevice, params)):
        raise DataError('shard="parameters": weights on a GPU cannot be in pieces yet; shard="gradients" can be used')
    before = trainer.objective.weights
    isSame = before is not None and before.isLike(params, owners, dtype)
    found = before if isSame else PartedWeights(trainer.world, params, owners, dtype)
    found.divide()
    if before is not None and not isSame:
        before.close()
    trainer.objective.weights = trainer.validator.objective.weights = found
    return found
