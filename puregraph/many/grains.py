"""Grains: the fixed parts of a batch, and which of them belong to which process."""

from __future__ import annotations

from itertools import accumulate

from puregraph.errors import DataError
from puregraph.many.world import World


class Grains:
    """A batch is `count` parts, whoever computes them: process r of n has those from count r / n on.

    The first parts of a batch that cannot be divided evenly have a sample more; some of a small one may have none.

    `bounds`  where the grains of each process begin, and the end of the last
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
        """Where the grains of a batch begin, and its end."""
        each, more = divmod(size, self.count)
        return list(accumulate([each + (g < more) for g in range(self.count)], initial=0))

    def share(self, size: int) -> slice:
        """The samples of a batch that belong to this process."""
        cuts = self.cuts(size)
        return slice(cuts[self.own.start], cuts[self.own.stop])

    def part(self, grain: int, size: int) -> slice:
        """The samples of a grain among those of `share`."""
        cuts = self.cuts(size)
        first = cuts[self.own.start]
        return slice(cuts[grain] - first, cuts[grain + 1] - first)

    def sizes(self, size: int) -> list[int]:
        """The sizes that grains of a batch have, those of this process and of others."""
        each, more = divmod(size, self.count)
        return [n for n in (each + 1 if more else 0, each) if n]
