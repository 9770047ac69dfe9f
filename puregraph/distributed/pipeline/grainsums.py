"""GrainSums: a TreeSum that is given the grains of this process one after the other, when they are there."""

from __future__ import annotations

import numpy as np

from puregraph.distributed.collectives.grains import Grains
from puregraph.distributed.collectives.treesum import Span, TreeSum
from puregraph.distributed.worlds.world import World


class GrainSums(TreeSum):
    """Adds up arrays of grains as they come, in their order: what belongs together in the tree is added at once.

    So it keeps as many arrays as the tree has levels, and then one for each part of the tree that this process has.
    """

    def __init__(self, world: World, grains: Grains, size: int, dtype: np.dtype, cuts: list[int] | None = None):
        super().__init__(world, grains, size, dtype, cuts)
        self.nodes = nodesOf(0, grains.count)
        self.parts: list[tuple[Span, np.ndarray]] = []
        self.next = grains.own.start

    def begin(self) -> None:
        """Begin another sum; arrays of one that was not finished are used again."""
        self.spare += [array for _, array in self.parts]
        self.parts, self.next = [], self.grains.own.start

    def blank(self) -> np.ndarray:
        """An array for the next grain."""
        return self.spare.pop() if self.spare else np.empty(self.size, self.dtype)

    def push(self, grain: int, array: np.ndarray) -> None:
        """Add the array of a grain, which belongs to this then; those that were left out before it are nothing."""
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
        """The sum of all grains of all processes; the array belongs to the next `begin`."""
        return self.reduce(self.ended())

    def piece(self) -> np.ndarray:
        """This process's piece of it; the array belongs to the next `begin` as well."""
        return self.reduceScatter(self.ended())

    def ended(self) -> list[np.ndarray]:
        """The sums of this process; grains that were left out at the end are nothing."""
        end = self.grains.own.stop
        if self.next < end:
            empty = self.blank()
            empty[...] = 0
            self.push(end - 1, empty)
        sums, self.parts = [array for _, array in self.parts], []
        return sums


def nodesOf(begin: int, end: int) -> set[Span]:
    """The parts of the tree over some grains."""
    if end - begin == 1:
        return {(begin, end)}
    middle = (begin + end) // 2
    return {(begin, end)} | nodesOf(begin, middle) | nodesOf(middle, end)
