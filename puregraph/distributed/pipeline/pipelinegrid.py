"""PipelineGrid: which process has which stages, and which grains of a batch."""

from __future__ import annotations

import math
from typing import Any

from puregraph.core.errors import DataError
from puregraph.distributed.worlds.world import World


class PipelineGrid:
    """The grid of n ranks for k pipeline stages: p = gcd(n, k) pipeline positions, d = n / p data-parallel replicas.

    Rank r is at `position` r / d of `positions` p and is `replica` r mod d of `replicas` d. Stage s is at position
    s mod p: with k > p each rank has several stages. `across` is the group of ranks at this position, which divide the
    grains and all-reduce gradients; `along` is the group of this replica, which passes microbatches on.
    """

    def __init__(self, world: World, stages: int):
        self.world, self.stages = world, stages
        self.positions = math.gcd(world.size, stages)
        self.replicas = world.size // self.positions
        self.position, self.replica = divmod(world.rank, self.replicas)
        self.across = world.group(range(self.position * self.replicas, (self.position + 1) * self.replicas))
        self.along = world.group(range(self.replica, world.size, self.replicas))
        self.own = range(self.position, stages, self.positions)

    def positionOf(self, stage: int) -> int:
        """The position that has a stage."""
        return stage % self.positions

    def firstRank(self, stage: int) -> int:
        """The first of the processes that have a stage."""
        return self.positionOf(stage) * self.replicas


def checkStages(stages: Any, grains: int | None) -> int | None:
    """Check the `stages` argument: the number of pipeline stages.

    Raises    DataError unless it is a whole number, and if grains, which are the microbatches, are not set
    """
    if stages is None:
        return None
    if isinstance(stages, bool) or not isinstance(stages, int) or stages < 1:
        raise DataError(f"stages: wanted a whole number of at least 1, got {stages!r:.60}")
    if grains is None:
        raise DataError(f"stages={stages}: microbatches are the grains of a batch: give grains as well, grains=8")
    return stages
