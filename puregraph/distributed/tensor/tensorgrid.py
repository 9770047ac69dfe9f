"""TensorGrid: which process has which parts of tensors, and which grains of a batch."""

from __future__ import annotations

import math
from typing import Any

from puregraph.core.errors import DataError
from puregraph.distributed.worlds.world import World


class TensorGrid:
    """The grid of n ranks for k tensor parallel parts: t = gcd(n, k) ranks share the parts, n / t replicas the grains.

    Rank r is at `position` r mod t of `positions` t, and is `replica` r / t of `replicas` n / t. Ranks that share parts
    are on one machine if ranks are numbered by machine. `along` is the group of this replica, which all-reduces the
    outputs of parts; `across` is the group of this position, which divides the grains and all-reduces gradients.
    """

    def __init__(self, world: World, parts: int):
        self.world, self.parts = world, parts
        self.positions = math.gcd(world.size, parts)
        self.replicas = world.size // self.positions
        self.replica, self.position = divmod(world.rank, self.positions)
        first = self.replica * self.positions
        self.along = world.group(range(first, first + self.positions))
        self.across = world.group(range(self.position, world.size, self.positions))

    def rankOf(self, part: int, replica: int | None = None) -> int:
        """The process of a replica, this one unless another is given, that has a part."""
        return (self.replica if replica is None else replica) * self.positions + part * self.positions // self.parts


def replicasIn(world: World, tensor: int | None) -> int:
    """Return the number of data parallel replicas under tensor parallelism."""
    return world.size // math.gcd(world.size, tensor or 1)


def checkTensor(tensor: Any, shard: str | None, stages: int | None) -> int | None:
    """Check the `tensor` argument: the number of tensor parallel parts.

    Raises    DataError unless it is a whole number, and together with `shard` or `stages`
    """
    if tensor is None:
        return None
    if isinstance(tensor, bool) or not isinstance(tensor, int) or tensor < 1:
        raise DataError(f"tensor: wanted a whole number of parts of at least 1, got {tensor!r:.60}")
    for name, value in (("shard", shard), ("stages", stages)):
        if value is not None:
            raise DataError(f"tensor={tensor}: {name}={value!r} divides weights in another way; leave one of them out")
    return tensor
