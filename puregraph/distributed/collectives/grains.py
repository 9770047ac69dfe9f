"""Grains: the fixed microbatches of a batch, and their assignment to processes."""

from __future__ import annotations

from itertools import accumulate

from puregraph.core.errors import DataError
from puregraph.distributed.worlds.world import World


class Grains:
    """A batch in `count` microbatches, on any number of processes; the ones of process r of n begin at count r / n.

    If a batch does not divide evenly, its first microbatches have one sample more; in a small batch some are empty.

    `bounds`  the first grain of each process, and the end of the last
    `own`     the grains of this process

    Raises    DataError if there are more processes than grains
    """

    def __init__(self, count: int, world: World):
        if world.size > count:
            raise DataError(
                f"grains={count}: wanted at least one for each of {world.size} processes; give more grains, or start "
                f"{count} processes at most"
            )
        self.count, self.world = count, world
        self.bounds = [count * r // world.size for r in range(world.size + 1)]
        self.own = range(self.bounds[world.rank], self.bounds[world.rank + 1])

    def cuts(self, size: int) -> list[int]:
        """Return the first sample of each grain of a batch, and the end of the last."""
        samples, more = divmod(size, self.count)
        return list(accumulate([samples + (g < more) for g in range(self.count)], initial=0))

    def share(self, size: int) -> slice:
        """Return the samples of a batch that belong to this process."""
        cuts = self.cuts(size)
        return slice(cuts[self.own.start], cuts[self.own.stop])

    def part(self, grain: int, size: int) -> slice:
        """Return the samples of a grain within this process's `share`."""
        cuts = self.cuts(size)
        first = cuts[self.own.start]
        return slice(cuts[grain] - first, cuts[grain + 1] - first)

    def sizes(self, size: int) -> list[int]:
        """Return the sizes of grains in a batch, on all processes."""
        samples, more = divmod(size, self.count)
        return [n for n in (samples + 1 if more else 0, samples) if n]
