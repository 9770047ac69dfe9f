"""GradientExchange: sum the gradients of all grains, and exchange them while backward still runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from puregraph.compile.gradientbuckets import GradientBuckets, backwardOrder
from puregraph.compile.trace.updaterule import isElementwise
from puregraph.core import device
from puregraph.core.param import Param
from puregraph.distributed.collectives.bucketedsum import BucketedSum, BucketRow
from puregraph.distributed.collectives.grains import Grains
from puregraph.distributed.collectives.treesum import UNCUT_ELEMENTS
from puregraph.distributed.sharding.sharding import Sharding, ShardRow, cutsAmong, isOnDevice
from puregraph.distributed.worlds.countingworld import CountingWorld


class GradientExchange:
    """The sum of all grains' parameter gradients, in one row in the order in which backward computes them.

    While a compiled step computes the last gradients of this process, it starts each bucket as soon as its gradients
    are computed. After an eager step, or on a GPU, all buckets start after the step. With `shard`, each process gets
    only the shard of a bucket that it updates, and steps hand gradients over bucket by bucket; so there is no array of
    all gradients, unless a process sums several grains or batches.

    `params`, `spans`  the parameters in this order, and the range of elements of each in the row
    `isPassing`        True if gradients are handed over in buckets, and not stored in `Param.grad`
    """

    def __init__(self, trainer: Any, grains: Grains, params: list[Param]):
        self.grains, world, shard = grains, trainer.world, trainer.shard
        self.params = backwardOrder(trainer.net, params)
        self.isPassing = shard is not None and world.size > 1
        dtype = np.result_type(np.float32, *[p.dtype for p in params])
        buckets, before = GradientBuckets(self.params, dtype.itemsize, UNCUT_ELEMENTS), trainer.objective.buckets
        buckets.isPassing = self.isPassing
        if before is not None and before.isLike(buckets):
            buckets = before  # compiled programs refer to it
        self.buckets, self.spans = buckets, buckets.spans
        names = {id(param): path for path, param in trainer.net.params.items()}
        labels = [f"bucket {n + 1}: {names.get(id(self.params[g[-1]]))}" for n, g in enumerate(buckets.groups) if g]
        isBrief = shard in ("gradients", "parameters")
        isCut = not self.isPassing or isElementwise(trainer.optimizer)
        cuts = [
            cutsAmong(row, end - begin, world.size, None if isCut else (begin, buckets.cuts[-1]))
            for row, (begin, end) in zip(self.rows, pairwise(buckets.cuts))
        ]
        self.tree = BucketedSum(world, grains, dtype, buckets.cuts, labels, not self.isPassing, isBrief, cuts)
        buckets.predict = partial(predicted, world.size, len(self.tree.spans[world.rank]), not self.isPassing)
        isOverlapped = world.size > 1 and not any(map(isOnDevice, params))
        trainer.objective.buckets = buckets if isOverlapped else None
        self.reached: set[int] = set()

    @property
    def rows(self) -> list[list[Param]]:
        """The parameters of each bucket."""
        return [[self.params[index] for index in group] for group in self.buckets.groups]

    def sharding(self) -> Sharding:
        """Return the shards of the buckets: this rank updates its piece of each."""
        world, offsets = self.grains.world, {id(param): span[0] for param, span in zip(self.params, self.spans)}
        everyone = range(world.size)
        rows = [ShardRow(row, cuts, everyone, world.size) for row, cuts in zip(self.rows, self.tree.shards)]
        return Sharding(world, rows, offsets, self.buckets.cuts[-1])

    def add(self, learn: Callable[[int], list[Any] | None]) -> None:
        """Sum the gradients of this process's grains. `learn(grain)` returns them, or None if it handed them over."""

        def leaf(grain: int, into: BucketRow) -> None:
            self.into = into
            grads = learn(grain)
            for number in range(self.tree.started, len(self.buckets.groups) if grads is not None else 0):
                self.fill(number, dict(enumerate(grads or ())))

        self.tree.add(leaf)
        del self.into
        self.tree.finish()

    def fill(self, number: int, grads: dict[int, Any], isMore: bool = False) -> None:
        """Copy gradients to a bucket, or add them to its content; missing gradients are 0."""
        into, first, end = self.into[number], self.buckets.cuts[number], 0
        for index in self.buckets.groups[number]:
            begin, end = self.spans[index]
            part, grad = into[begin - first : end - first], grads.get(index)
            if grad is None:
                part[...] = part if isMore else 0
                continue
            new = device.toHost(grad).reshape(-1)
            part[...] = part.astype(new.dtype, copy=False) + new if isMore else new
        into[end - first :] = 0  # up to the next bucket

    @contextmanager
    def leaving(self, grain: int, isFirst: bool, isLast: bool) -> Iterator[None]:
        """In the block, a step hands its gradients over in buckets, if `isPassing` or it is this process's last step.

        `isFirst`, `isLast`  True if it is the first or last step of the grain
        """
        isEnd = isLast and grain == self.grains.own[-1]
        self.reached -= self.reached if isFirst else set()
        self.handed = 0
        if self.isPassing or isEnd:
            self.buckets.start = partial(self.take, isFirst=isFirst, isEnd=isEnd)
        try:
            yield
        finally:
            self.buckets.start = None

    def take(self, number: int, grads: dict[int, Any], isFirst: bool, isEnd: bool) -> None:
        """Take over a bucket of gradients from a step."""
        self.fill(number, grads, self.isPassing and not isFirst)
        self.reached |= {index for index, grad in grads.items() if grad is not None}
        self.handed += 1
        if isEnd:
            self.tree.start()

    def collect(self, isFirst: bool) -> list[bool]:
        """Return, for each parameter, True if the steps of this grain have given it a gradient so far.

        The gradients of an eager step, which hands none over, are taken from `Param.grad`.
        """
        if not self.isPassing:
            return [param.grad is not None for param in self.params]
        if self.handed == 0:
            grads = {i: param.grad for i, param in enumerate(self.params) if param.grad is not None}
            for number in range(len(self.buckets.groups)):
                self.fill(number, grads, not isFirst)
            self.reached |= grads.keys()
            for param in self.params:
                param.grad = None
        return [index in self.reached for index in range(len(self.params))]

    def share(self, reached: Any) -> None:
        """Set the gradients of the reached parameters to the sum over all grains, all others to None."""
        for number, group in enumerate(self.buckets.groups):
            total, first = self.tree.total[number], self.buckets.cuts[number]
            for index in group:
                begin, end = self.spans[index]
                self.shareOne(self.params[index], total[begin - first : end - first], reached[index])

    def shareOne(self, param: Param, total: np.ndarray, isReached: bool) -> None:
        """Set a parameter's gradient to the sum; its previous gradient does not count as lost."""
        vars(param)["lost"] = 0
        grad = total.reshape(param.shape).astype(param.dtype, copy=False)
        if not isReached:
            param.grad = None
        elif param.grad is None:
            param.grad = device.toDevice(grad.copy())
        else:
            param.grad[...] = device.toDevice(grad) if device.isDeviceArray(param.grad) else grad
            param.grad = param.grad  # increments the version


def predicted(size: int, sums: int, shares: bool, nbytes: int) -> tuple[str, float]:
    """Predict the collectives of a bucket, and their seconds on a link of 25 GB/s and 5 us."""
    world = CountingWorld(size)
    world.count("allToAll", sums * world.share(nbytes), size - 1)
    if shares:
        world.count("allGather", world.share(nbytes), world.doublings)
    return " + ".join(call.name for call in world.calls), world.seconds
