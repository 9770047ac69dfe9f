"""Mesh: the ranks of a run in a grid of pipeline stages, data parallel replicas and tensor parallel parts."""

from __future__ import annotations

import math
from dataclasses import dataclass

from puregraph.core.errors import ArgumentError, DataError
from puregraph.distributed.worlds.world import World


@dataclass(frozen=True)
class Axis:
    """One axis of a Mesh: the `index` of this rank among `size`, and as a `world` the ranks that differ in it alone."""

    index: int
    size: int
    world: World


class Mesh:
    """The ranks of a world in a grid with three axes: pipeline `stage`, `data` parallel, `tensor` parallel.

    `stage`, `data`, `tensor`  the Axis of each; its size is the argument of that name

    Rank (stage * data + replica) * tensor + part has these coordinates. So tensor parallel ranks, which exchange most,
    are neighbours, on one machine if ranks are numbered by machine. If `data` is left out, it is what the other two
    leave.

    Raises    ArgumentError if the sizes do not multiply to that of the world

    >>> mesh = Mesh(CountingWorld(8, rank=5), stage=2)
    >>> mesh.stage.index, mesh.data.index, mesh.data.size, mesh.rankAt(stage=0)
    (1, 1, 4, 1)
    """

    def __init__(self, world: World | None = None, data: int | None = None, stage: int = 1, tensor: int = 1):
        self.world = world = world or World()
        data = world.size // (stage * tensor) if data is None else data
        self.sizes = stage, data, tensor
        if math.prod(self.sizes) != world.size:
            raise ArgumentError(f"Mesh: stage={stage}, data={data}, tensor={tensor} are not {world.size} ranks")
        before, part = divmod(world.rank, tensor)
        self.coordinates = (*divmod(before, data), part)
        self.stage, self.data, self.tensor = (self.axis(number) for number in range(3))

    def axis(self, number: int) -> Axis:
        """Return an Axis by its number: 0 stage, 1 data, 2 tensor."""
        size, step = self.sizes[number], math.prod(self.sizes[number + 1 :])
        index = self.coordinates[number]
        first = self.world.rank - index * step
        ranks = range(first, first + size * step, step)
        return Axis(index, size, self.world if size == self.world.size else self.world.group(ranks))

    def rankAt(self, stage: int | None = None, data: int | None = None, tensor: int | None = None) -> int:
        """The rank at these coordinates; those that are left out are this rank's."""
        indices = [own if other is None else other for own, other in zip(self.coordinates, (stage, data, tensor))]
        return (indices[0] * self.sizes[1] + indices[1]) * self.sizes[2] + indices[2]

    def stagesOf(self, count: int) -> range:
        """Return this rank's stages of a pipeline of `count`: stage s is at index s mod `stage.size` of the axis."""
        return range(self.stage.index, count, self.stage.size)


def meshFor(world: World, stages: int | None = None, tensor: int | None = None) -> Mesh:
    """Return the mesh of a trainer: as many ranks along an axis as divide both the world and the stages or parts."""
    stage, part = math.gcd(world.size, stages or 1), math.gcd(world.size, tensor or 1)
    return Mesh(world, stage=stage, tensor=part)


def replicasIn(world: World, tensor: int | None) -> int:
    """Return the size of the data axis of a mesh with tensor parallel parts."""
    return world.size // math.gcd(world.size, tensor or 1)


def checkStages(stages: object, grains: int | None) -> int | None:
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


def checkTensor(tensor: object, shard: str | None, stages: int | None) -> int | None:
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
