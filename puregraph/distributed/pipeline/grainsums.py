"""GrainSums: a TreeSum that takes the grains of this process one by one, as they are computed."""

from __future__ import annotations

import numpy as np

from puregraph.distributed.collectives.grains import Grains
from puregraph.distributed.collectives.treesum import Span, TreeSum
from puregraph.distributed.worlds.world import World


class GrainSums(TreeSum):
    """Adds arrays of grains in order as they come; two subtrees are added as soon as both are complete.

    So it keeps at most one array per level of the tree, and in the end one for each subtree of this process.
    """

    def __init__(self, world: World, grains: Grains, size: int, dtype: np.dtype, cuts: list[int] | None = None):
        super().__init__(world, grains, size, dtype, cuts)
        self.nodes = nodesOf(0, grains.count)
        self.parts: list[tuple[Span, np.ndarray]] = []
        self.next = grains.own.start

    def begin(self) -> None:
        """Begin another sum, and reuse the arrays of an unfinished one."""
        self.spare += [array for _, array in self.parts]
        self.parts, self.next = [], self.grains.own.start

    def blank(self) -> np.ndarray:
        """Return an array for the next grain, uninitialized."""
        return self.spare.pop() if self.spare else np.empty(self.size, self.dtype)

    def push(self, grain: int, array: np.ndarray) -> None:
        """Add the array of a grain, and take ownership of it; skipped grains count as 0."""
        while self.next < grain:
            empty = self.blank()
            empty[...] = 0
            self.push(self.next, empty)
        begin, end = grain, grain + 1
        while self.parts and (self.parts[-1][0][0], end) in self.nodes:
            (begin, _), left = self.parts.pop()
            left += array
            self.spare.append(array)
            array = left
        self.parts.append(((begin, end), array))
        self.next = grain + 1

    def total(self) -> np.ndarray:
        """Return the sum of all grains of all processes; the array is valid until the next `begin`."""
        return self.reduce(self.ended())

    def piece(self) -> np.ndarray:
        """Return this process's shard of the total; the array is valid until the next `begin`."""
        return self.reduceScatter(self.ended())

    def ended(self) -> list[np.ndarray]:
        """Return the subtree sums of this process; grains skipped at the end count as 0."""
        end = self.grains.own.stop
        if self.next < end:
            empty = self.blank()
            empty[...] = 0
            self.push(end - 1, empty)
        sums, self.parts = [array for _, array in self.parts], []
        return sums


def nodesOf(begin: int, end: int) -> set[Span]:
    """Return the (begin, end) of all subtrees over these grains."""
    if end - begin == 1:
        return {(begin, end)}
    middle = (begin + end) // 2
    return {(begin, end)} | nodesOf(begin, middle) | nodesOf(middle, end)
