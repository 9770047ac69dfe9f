"""TensorGrid: which process has which parts of tensors, and which grains of a batch."""

from __future__ import annotations

import math
from typing import Any

from puregraph.errors import DataError
from puregraph.many.world import World


class TensorGrid:
    """n processes and k parts: the largest t that divides both is how many share the parts, n / t share the grains.

    Process r is at `position` r mod t of `positions` t, and is `replica` r / t of `replicas` n / t: who shares parts is
    on one machine, if its processes follow each other. `along` are the processes of this replica, which add up what
    their parts give; `across` are those of this position, which divide the grains and add up gradients.
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
    """How many processes divide a batch, where tensors are in parts."""
    return world.size // math.gcd(world.size, tensor or 1)


def checkTensor(tensor: Any, shard: str | None, stages: int | None) -> int | None:
    """In how many parts tensors are to be.

    Raises    DataError for what is no number of them, and together with what divides the network in another way
    """
    if tensor is None:
        return None
    if isinstance(tensor, bool) or not isinstance(tensor, int) or tensor < 1:
        raise DataError(f"tensor: wanted a whole number of parts of at least 1, got {tensor!r:.60}")
    for name, value in (("shard", shard), ("stages", stages)):
        if value is not None:
            raise DataError(f"tensor={tensor}: {name}={value!r} divides weights in another way; leave one of them out")
    return tensor
