"""TreeSum: the sum of all grains in the shape of one binary tree, so that no bit depends on who computes what."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from puregraph.many.grains import Grains
from puregraph.many.world import World

BLOCK = 16  # elements, which no cut divides: a cache line of float32

Span = tuple[int, int]


class TreeSum:
    """Sums arrays of `size` elements, one for each grain: those of grains a to b are (a to the middle) + (the rest).

    Each process adds what belongs together of its own grains. Then process r gets these sums from all others for the
    r-th piece of the array, adds them in the shape of the tree, and gives its piece to all. Where the processes divide
    the grains evenly, each sends 2 (n - 1) / n arrays, as in a ring.

    `cuts`  where the pieces begin, and the end of the last
    """

    def __init__(self, world: World, grains: Grains, size: int, dtype: np.dtype):
        self.world, self.grains, self.size, self.dtype = world, grains, size, dtype
        self.cuts = cutsOf(size, world.size)
        self.spans = [spansIn(grains.count, begin, end) for begin, end in zip(grains.bounds, grains.bounds[1:])]
        self.spare: list[np.ndarray] = []

    def own(self, leaf: Callable[[int, np.ndarray], None]) -> list[np.ndarray]:
        """The sums of this process's grains, for `reduce`; `leaf(grain, array)` computes one of them into an array."""
        return [self.sumOf(leaf, begin, end) for begin, end in self.spans[self.world.rank]]

    def sumOf(self, leaf: Callable[[int, np.ndarray], None], begin: int, end: int) -> np.ndarray:
        """The sum of the grains from `begin` to before `end`: a part of the tree."""
        if end - begin == 1:
            array = self.spare.pop() if self.spare else np.empty(self.size, self.dtype)
            leaf(begin, array)
            return array
        middle = (begin + end) // 2
        left, right = self.sumOf(leaf, begin, middle), self.sumOf(leaf, middle, end)
        left += right
        self.spare.append(right)
        return left

    def reduceScatter(self, sums: list[np.ndarray]) -> np.ndarray:
        """This process's piece of the sum of all grains, from what `own` gives each of them."""
        world = self.world
        if world.size == 1:
            self.spare += sums
            return sums[0]
        self.spare += sums
        return self.scatter(sums, self.cuts)

    def scatter(self, sums: list[np.ndarray], cuts: list[int]) -> np.ndarray:
        """From cuts[rank] to cuts[rank + 1] of the sum of all grains, of which these are this process's parts."""
        sent, received = self.sides(sums, cuts)
        self.world.allToAll(sent, received)
        return self.joinedFrom(received)

    def sides(self, sums: list[np.ndarray], cuts: list[int]) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """What each process is sent of these sums, and memory for what each of them sends; the own part is both."""
        rank, pieces = self.world.rank, list(zip(cuts, cuts[1:]))
        size = cuts[rank + 1] - cuts[rank]
        sent = [np.concatenate([one[a:b] for one in sums]) if len(sums) > 1 else sums[0][a:b] for a, b in pieces]
        received = [
            sent[rank] if r == rank else np.empty(len(spans) * size, self.dtype) for r, spans in enumerate(self.spans)
        ]
        return sent, received

    def joinedFrom(self, received: list[np.ndarray], out: np.ndarray | None = None) -> np.ndarray:
        """The sum of all grains, of the parts that each process has sent; `out` may be one of them."""
        parts: dict[Span, np.ndarray] = {}
        for spans, array in zip(self.spans, received):
            parts.update(zip(spans, array.reshape(len(spans), -1)))
        return joined(parts, 0, self.grains.count, out)

    def gather(self, piece: np.ndarray) -> np.ndarray:
        """The whole array, of which each process gives its piece; it belongs to the next `own`."""
        world = self.world
        if world.size == 1:
            return piece
        total = self.spare[0]
        total[self.cuts[world.rank] : self.cuts[world.rank + 1]] = piece
        world.allGather(total, self.cuts)
        return total

    def reduce(self, sums: list[np.ndarray]) -> np.ndarray:
        """The sum of all grains from what `own` gives each process; the array belongs to the next `own`."""
        return self.gather(self.reduceScatter(sums))


def cutsOf(size: int, count: int) -> list[int]:
    """Where `count` pieces of an array begin, all of nearly one size, and the end of the last."""
    return [cutAt(size, count, r) for r in range(count + 1)]


def cutAt(size: int, count: int, rank: int) -> int:
    """Where one of them begins."""
    return min(size, BLOCK * (-(-size // BLOCK) * rank // count))


def spansIn(count: int, begin: int, end: int) -> list[Span]:
    """The largest parts of the tree over `count` grains that are within those from `begin` to before `end`."""
    found: list[Span] = []

    def visit(low: int, high: int) -> None:
        if begin <= low and high <= end:
            found.append((low, high))
        elif low < end and begin < high:
            middle = (low + high) // 2
            visit(low, middle)
            visit(middle, high)

    visit(0, count)
    return found


def joined(parts: dict[Span, np.ndarray], begin: int, end: int, out: np.ndarray | None = None) -> np.ndarray:
    """The sum of grains in the shape of the tree, of the parts that there are; `out` may be one of these."""
    if (begin, end) in parts:
        return parts[begin, end]
    middle = (begin + end) // 2
    return np.add(joined(parts, begin, middle), joined(parts, middle, end), out=out)
