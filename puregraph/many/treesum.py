"""TreeSum: the sum of all grains in the shape of one binary tree, so that no bit depends on who computes what."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from puregraph.many.grains import Grains
from puregraph.many.world import World

Span = tuple[int, int]


class TreeSum:
    """Sums arrays of `size` elements, one for each grain: those of grains a to b are (a to the middle) + (the rest).

    Each process adds what belongs together of its own grains. Then process r gets these sums from all others for the
    r-th piece of the array, adds them in the shape of the tree, and gives its piece to all. Where the processes divide
    the grains evenly, each sends 2 (n - 1) / n arrays, as in a ring.
    """

    def __init__(self, world: World, grains: Grains, size: int, dtype: np.dtype):
        self.world, self.grains, self.dtype = world, grains, dtype
        self.cuts = [size * r // world.size for r in range(world.size + 1)]
        self.spans = [spansIn(grains.count, begin, end) for begin, end in zip(grains.bounds, grains.bounds[1:])]
        self.spare: list[np.ndarray] = []
        self.total = np.zeros(size, dtype)

    def own(self, leaf: Callable[[int, np.ndarray], None]) -> list[np.ndarray]:
        """The sums of this process's grains, for `reduce`; `leaf(grain, array)` computes one of them into an array."""

        def total(begin: int, end: int) -> np.ndarray:
            if end - begin == 1:
                array = self.spare.pop() if self.spare else np.empty_like(self.total)
                leaf(begin, array)
                return array
            middle = (begin + end) // 2
            left, right = total(begin, middle), total(middle, end)
            left += right
            self.spare.append(right)
            return left

        return [total(*span) for span in self.spans[self.world.rank]]

    def reduce(self, sums: list[np.ndarray]) -> np.ndarray:
        """The sum of all grains from what `own` gives each process; the array belongs to the next `reduce`."""
        world, cuts = self.world, self.cuts
        if world.size == 1:
            self.total[...] = sums[0]
        else:
            pieces = list(zip(cuts, cuts[1:]))
            begin, end = pieces[world.rank]
            sent = [np.concatenate([one[a:b] for one in sums]) if len(sums) > 1 else sums[0][a:b] for a, b in pieces]
            received = [np.empty(len(spans) * (end - begin), self.dtype) for spans in self.spans]
            world.allToAll(sent, received)
            parts: dict[Span, np.ndarray] = {}
            for spans, array in zip(self.spans, received):
                parts.update(zip(spans, array.reshape(len(spans), end - begin)))
            self.total[begin:end] = joined(parts, 0, self.grains.count)
            world.allGather(self.total, cuts)
        self.spare += sums
        return self.total


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


def joined(parts: dict[Span, np.ndarray], begin: int, end: int) -> np.ndarray:
    """The sum of grains in the shape of the tree, of the parts that there are."""
    if (begin, end) in parts:
        return parts[begin, end]
    middle = (begin + end) // 2
    return joined(parts, begin, middle) + joined(parts, middle, end)
