"""GradientExchange: the gradients of all grains, added up, and exchanged while backward still runs."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np

from puregraph import device
from puregraph.compile.gradientbuckets import GradientBuckets, backwardOrder
from puregraph.core.param import Param
from puregraph.many.bucketedsum import BucketedSum
from puregraph.many.countingworld import CountingWorld
from puregraph.many.grains import Grains
from puregraph.many.treesum import BLOCK


class GradientExchange:
    """The sum over all grains of the gradients of parameters, in one row in the order in which backward makes them.

    While a compiled step computes the last gradients of this process, it starts a bucket as soon as all of its own are
    there; of a step that is not compiled, or on a GPU, all buckets start behind it. With `shard` only the pieces of a
    bucket go to the processes that update them.

    `params`, `spans`  the parameters in this order, and which elements of the row each has
    """

    def __init__(self, trainer: Any, grains: Grains, params: list[Param]):
        self.grains, world = grains, trainer.world
        self.params = backwardOrder(trainer.net, params)
        dtype = np.result_type(np.float32, *[p.dtype for p in params])
        buckets, before = GradientBuckets(self.params, dtype.itemsize, BLOCK), trainer.objective.buckets
        if before is not None and before.isLike(buckets):
            buckets = before  # programs have it
        self.buckets, self.spans = buckets, buckets.spans
        names = {id(param): path for path, param in trainer.net.params.items()}
        labels = [f"bucket {n + 1}: {names.get(id(self.params[g[-1]]))}" for n, g in enumerate(buckets.groups) if g]
        shares = trainer.shard is None
        self.tree = BucketedSum(world, grains, dtype, buckets.cuts, labels, shares)
        buckets.predict = partial(predicted, world.size, len(self.tree.spans[world.rank]), shares)
        isOverlapped = world.size > 1 and not any(map(isOnDevice, params))
        trainer.objective.buckets = buckets if isOverlapped else None

    def add(self, learn: Callable[[int], list[Any]]) -> None:
        """Add up the gradients that `learn` gives of each grain of this process, in the order of the parameters."""

        def leaf(grain: int, into: np.ndarray) -> None:
            self.into = into
            grads = learn(grain)
            for group in self.buckets.groups[self.tree.started :]:
                self.fill({index: grads[index] for index in group}, group)

        self.tree.add(leaf)
        del self.into
        self.tree.finish()

    def fill(self, grads: dict[int, Any], group: list[int]) -> None:
        """Copy gradients to the row; 0 for those that there are not."""
        for index in group:
            begin, end = self.spans[index]
            grad = grads.get(index)
            self.into[begin:end] = 0 if grad is None else device.toHost(grad).reshape(-1)
        if group:
            bounds = self.buckets.cuts
            self.into[end : bounds[bisect_left(bounds, end)]] = 0  # up to where the next bucket begins

    @contextmanager
    def leaving(self, grain: int, isLast: bool) -> Iterator[None]:
        """Within it programs start buckets, if this is the last that the process computes of the step."""
        if isLast and grain == self.grains.own[-1]:
            self.buckets.start = self.start
        try:
            yield
        finally:
            self.buckets.start = None

    def start(self, number: int, grads: dict[int, Any]) -> None:
        """A bucket of the last grain is there."""
        self.fill(grads, self.buckets.groups[number])
        self.tree.start()

    def share(self, reached: Any) -> None:
        """Leave the sum of all grains' gradients in the parameters that any of them reaches."""
        total = self.tree.total
        for param, (begin, end), isReached in zip(self.params, self.spans, reached):
            grad = total[begin:end].reshape(param.shape).astype(param.dtype, copy=False)
            if not isReached:
                param.grad = None
            elif param.grad is None:
                param.grad = device.toDevice(grad.copy())
            else:
                param.grad[...] = device.toDevice(grad) if device.isDeviceArray(param.grad) else grad
                param.grad = param.grad  # another version


def predicted(size: int, sums: int, shares: bool, nbytes: int) -> tuple[str, float]:
    """How a bucket of some bytes is exchanged, and the seconds that this takes on a link of 25 GB/s and 5 us."""
    world = CountingWorld(size)
    world.count("allToAll", sums * world.share(nbytes), size - 1)
    if shares:
        world.count("allGather", world.share(nbytes), world.doublings)
    return " + ".join(call.name for call in world.calls), world.seconds


def isOnDevice(param: Param) -> bool:
    """Whether a parameter is on a GPU."""
    return device.isDeviceArray(param.materialize())
