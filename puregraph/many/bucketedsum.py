"""BucketedSum: a tree's sum in buckets, which a thread exchanges while the process computes the rest."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import pairwise

import numpy as np

from puregraph.many.grains import Grains
from puregraph.many.treesum import TreeSum, cutsOf
from puregraph.many.world import World

EXCHANGING = ThreadPoolExecutor(1, "puregraph exchange")  # one thread: of several, two could be in one collective


def renew() -> None:
    """After a fork, in the child: a thread of its own, for it has none of its parent's."""
    global EXCHANGING
    EXCHANGING = ThreadPoolExecutor(1, "puregraph exchange")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=renew)


class BucketedSum(TreeSum):
    """A TreeSum whose array is exchanged in buckets, each as soon as it is there; the sums are the same to the bit.

    `bounds`  where the buckets begin, multiples of BLOCK, and the end of the last
    `labels`  what each of them is, for who waits too long
    `shares`  whether every process gets the whole sum; else its piece of each bucket alone
    `runs`    by process its piece of each bucket, from where to where
    `total`   the sum of all grains, as far as this process gets it, from `finish` to the next `add`

    All processes start the buckets in the order of their numbers. From the first start to the end of `finish` nothing
    else may use the world.
    """

    def __init__(
        self, world: World, grains: Grains, dtype: np.dtype, bounds: list[int], labels: list[str], shares: bool = True
    ):
        super().__init__(world, grains, bounds[-1], dtype)
        self.bounds, self.labels, self.shares = bounds, labels, shares
        rows = [(a, cutsOf(b - a, world.size)) for a, b in pairwise(bounds)]
        self.runs = [[(a + cuts[r], a + cuts[r + 1]) for a, cuts in rows] for r in range(world.size)]
        self.sums: list[np.ndarray] = []
        self.chain: list[np.ndarray] = []
        self.pending: list[Future[None]] = []
        self.total = np.empty(0, dtype)
        self.started = 0

    def add(self, leaf: Callable[[int, np.ndarray], None]) -> None:
        """Add up this process's grains; while `leaf` computes the last one, it may call `start`."""
        for each in self.pending:  # of a step that has failed
            each.exception()
        self.pending, self.started = [], 0
        *first, (begin, end) = self.spans[self.world.rank]
        self.sums = [self.sumOf(leaf, *span) for span in first]
        self.chain = []
        while end - begin > 1:
            middle = (begin + end) // 2
            self.chain.append(self.sumOf(leaf, begin, middle))
            begin = middle
        self.chain.append(self.spare.pop() if self.spare else np.empty(self.size, self.dtype))
        self.sums.append(self.chain[0])
        leaf(begin, self.chain[-1])

    def start(self) -> None:
        """The next bucket of the last grain is there: add it to what it belongs to, and have it exchanged."""
        a, b = self.bounds[self.started : self.started + 2]
        for left, right in reversed(list(pairwise(self.chain))):
            left[a:b] += right[a:b]
        if self.world.size > 1:
            self.world.isComputing = True
            self.pending.append(EXCHANGING.submit(self.exchange, self.started))
        self.started += 1

    def finish(self) -> None:
        """Start what is left, and wait for the `total`."""
        while self.started < len(self.labels):
            self.start()
        self.world.isComputing = False
        for each in self.pending:
            each.result()
        self.total = self.sums[0]
        self.spare += [*self.sums[:-1], *self.chain]
        self.sums, self.chain, self.pending = [], [], []

    def pieces(self, areLone: bool = False) -> list[np.ndarray]:
        """This process's pieces of the total, one of each bucket; lone ones are all that is kept of it."""
        found = [self.total[begin:end] for begin, end in self.runs[self.world.rank]]
        if areLone:
            found = [piece.copy() for piece in found]
            self.total = self.total[:0].copy()
            self.spare.clear()
        return found

    def multiply(self, factor: float) -> None:
        """Multiply the total, as far as this process has it."""
        self.total *= self.total.dtype.type(factor)

    def exchange(self, number: int) -> None:
        """Replace a bucket of the first of this process's sums by the sum of all grains."""
        world, (a, b) = self.world, self.bounds[number : number + 2]
        world.bucket = self.labels[number]
        cuts = cutsOf(b - a, world.size)
        sums = [one[a:b] for one in self.sums]
        sums[0][slice(*cuts[world.rank : world.rank + 2])] = self.scatter(sums, cuts)
        if self.shares:
            world.allGather(sums[0], cuts)
        world.bucket = ""
