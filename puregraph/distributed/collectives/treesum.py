"""TreeSum: sum all grains along one binary tree, so that no bit depends on which rank computes which grain."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from puregraph.distributed.collectives.grains import Grains
from puregraph.distributed.worlds.world import World

UNCUT_ELEMENTS = 16  # elements, which no cut divides: a cache line of float32

Span = tuple[int, int]


class TreeSum:
    """Sum arrays of `size` elements, one for each grain, as a binary tree: the sum is that of the sums of two halves.

    Each process adds the subtrees of its grains. Then process r receives these sums for the r-th shard of the array,
    adds them in the shape of the tree (reduce-scatter), and sends its shard to all (all-gather). If the grains divide
    evenly, each process sends 2 (n - 1) / n arrays, as in a ring.

    `cuts`  the beginnings of the shards, and the end of the last
    """

    def __init__(self, world: World, grains: Grains, size: int, dtype: np.dtype, cuts: list[int] | None = None):
        self.world, self.grains, self.size, self.dtype = world, grains, size, dtype
        self.cuts = cuts or cutsOf(size, world.size)
        self.spans = [spansIn(grains.count, begin, end) for begin, end in zip(grains.bounds, grains.bounds[1:])]
        self.spare: list[np.ndarray] = []

    def own(self, leaf: Callable[[int, np.ndarray], None]) -> list[np.ndarray]:
        """Return this process's subtree sums, for `reduce`; `leaf(grain, array)` writes one grain to an array."""
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
        """Return this process's shard of the sum of all grains, from the subtree sums of `own`."""
        world = self.world
        if world.size == 1:
            self.spare += sums
            return sums[0]
        self.spare += sums
        return self.scatter(sums, self.cuts)

    def scatter(self, sums: list[np.ndarray], cuts: list[int]) -> np.ndarray:
        """Return this process's shard, cuts[rank] to cuts[rank + 1], of the sum of all grains; `sums` are its own
        parts."""
        sent, received = self.sides(sums, cuts)
        self.world.allToAll(sent, received)
        return self.joinedFrom(received)

    def sides(self, sums: list[np.ndarray], cuts: list[int]) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """Return the array to send to each process, and memory for the array from each. This process's own part is
        both."""
        rank, pieces = self.world.rank, list(zip(cuts, cuts[1:]))
        size = cuts[rank + 1] - cuts[rank]
        sent = [np.concatenate([array[a:b] for array in sums]) if len(sums) > 1 else sums[0][a:b] for a, b in pieces]
        received = [
            sent[rank] if r == rank else np.empty(len(spans) * size, self.dtype) for r, spans in enumerate(self.spans)
        ]
        return sent, received

    def joinedFrom(self, received: list[np.ndarray], out: np.ndarray | None = None) -> np.ndarray:
        """Return the sum of all grains from the subtree sums that each process has sent; `out` may be one of them."""
        parts: dict[Span, np.ndarray] = {}
        for spans, array in zip(self.spans, received):
            parts.update(zip(spans, array.reshape(len(spans), -1)))
        return joined(parts, 0, self.grains.count, out)

    def gather(self, piece: np.ndarray) -> np.ndarray:
        """All-gather the array from every process's shard. The result is valid until the next sum."""
        world = self.world
        if world.size == 1:
            return piece
        total = self.spare[0]
        total[self.cuts[world.rank] : self.cuts[world.rank + 1]] = piece
        world.allGather(total, self.cuts)
        return total

    def reduce(self, sums: list[np.ndarray]) -> np.ndarray:
        """All-reduce the subtree sums of `own` to the sum of all grains. The array is valid until the next `own`."""
        return self.gather(self.reduceScatter(sums))


def cutsOf(size: int, count: int) -> list[int]:
    """Return the beginnings of `count` pieces of an array of nearly the same size, and the end of the last."""
    return [cutAt(size, count, r) for r in range(count + 1)]


def cutAt(size: int, count: int, rank: int) -> int:
    """Return the beginning of one piece."""
    return min(size, UNCUT_ELEMENTS * (-(-size // UNCUT_ELEMENTS) * rank // count))


def spansIn(count: int, begin: int, end: int) -> list[Span]:
    """Return the largest subtrees over `count` grains within `begin` to `end`."""
    spans: list[Span] = []

    def visit(low: int, high: int) -> None:
        if begin <= low and high <= end:
            spans.append((low, high))
        elif low < end and begin < high:
            middle = (low + high) // 2
            visit(low, middle)
            visit(middle, high)

    visit(0, count)
    return spans


def joined(parts: dict[Span, np.ndarray], begin: int, end: int, out: np.ndarray | None = None) -> np.ndarray:
    """Sum grains in the shape of the tree from its parts; `out` may be one of these."""
    if (begin, end) in parts:
        return parts[begin, end]
    middle = (begin + end) // 2
    return np.add(joined(parts, begin, middle), joined(parts, middle, end), out=out)
