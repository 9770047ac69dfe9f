"""BucketedSum: a tree's sum in buckets, which a thread exchanges while the process computes the rest."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from itertools import pairwise

import numpy as np

from puregraph.distributed.collectives.exchangethread import EXCHANGING, Exchange
from puregraph.distributed.collectives.grains import Grains
from puregraph.distributed.collectives.sharedarena import SharedArena, arenaFor
from puregraph.distributed.collectives.treesum import Span, TreeSum, cutsOf, joined
from puregraph.distributed.worlds.world import World

INFLIGHT = 2  # buckets that have memory at one time with `isBrief`


class BucketRow:
    """An array in buckets. A bucket's memory is allocated on first use, and reused after `release`.

    `free`  unused memory by bucket
    """

    def __init__(self, sizes: list[int], dtype: np.dtype, free: list[list[np.ndarray]]):
        self.sizes, self.dtype, self.free = sizes, dtype, free
        self.arrays: dict[int, np.ndarray] = {}

    def __getitem__(self, number: int) -> np.ndarray:
        if number not in self.arrays:
            spare = self.free[number]
            self.arrays[number] = spare.pop() if spare else np.empty(self.sizes[number], self.dtype)
        return self.arrays[number]

    def add(self, number: int, other: BucketRow) -> None:
        """Add a bucket of another array."""
        np.add(self[number], other[number], out=self[number])

    def release(self, number: int, isKept: bool = True) -> None:
        """Release the memory of a bucket: for reuse by other rows if `isKept`, otherwise it is freed."""
        array = self.arrays.pop(number, None)
        if isKept and array is not None:
            self.free[number].append(array)


class SharedRow(BucketRow):
    """An array in the shared memory of a machine, which is never released."""

    def __init__(self, arrays: list[np.ndarray]):
        super().__init__([len(array) for array in arrays], arrays[0].dtype, [[] for _ in arrays])
        self.arrays.update(enumerate(arrays))

    def release(self, number: int, isKept: bool = True) -> None:
        """Do nothing: shared memory stays allocated."""


Leaf = Callable[[int, BucketRow], None]
Views = tuple[dict[Span, np.ndarray], np.ndarray, list[tuple[np.ndarray, np.ndarray]]]


class BucketedSum(TreeSum):
    """A TreeSum whose array is exchanged in buckets, each as soon as it is computed; the sums are equal to the bit.

    `bounds`   where the buckets begin, multiples of BLOCK, and the end of the last
    `labels`   the description of each bucket, for reports of the watchdog
    `shares`   True if every process gets the complete sum; else only its shard of each bucket
    `isBrief`  True to free a bucket's memory as soon as it is exchanged, and to exchange few at a time
    `shards`   by bucket the beginning of each process's shard, and the end: `cuts`, or shards of nearly equal size
    `runs`     by process the (begin, end) of its shard of each bucket
    `total`    the sum of all grains, complete if `shares`, and `pieces` this process's shard of each bucket of it:
               valid from `finish` to the next `add`

    If all processes are on one machine, they exchange buckets in a SharedArena, unless `isBrief`: each process sums its
    shard of all rows there, and copies the other shards of the sum.

    All processes start the buckets in the order of their numbers. From the first start to the end of `finish` nothing
    else may use the world.
    """

    def __init__(
        self,
        world: World,
        grains: Grains,
        dtype: np.dtype,
        bounds: list[int],
        labels: list[str],
        shares: bool = True,
        isBrief: bool = False,
        cuts: list[list[int]] | None = None,
    ):
        super().__init__(world, grains, bounds[-1], dtype)
        self.bounds, self.labels, self.shares, self.isBrief = bounds, labels, shares, isBrief
        self.sizes = [end - begin for begin, end in pairwise(bounds)]
        self.shards = cuts or [cutsOf(size, world.size) for size in self.sizes]
        within = list(zip(bounds, self.shards))
        self.runs = [[(a + ends[r], a + ends[r + 1]) for a, ends in within] for r in range(world.size)]
        self.free: list[list[np.ndarray]] = [[] for _ in labels]
        self.sums: list[BucketRow] = []
        self.chain: list[BucketRow] = []
        self.pending: list[Future[np.ndarray]] = []
        self.pieces: list[np.ndarray] = []
        self.total = self.row()
        self.started, self.isEnding = 0, False
        heights = [len(spans) for spans in self.spans]
        self.views: dict[int, Views] = {}
        self.arena = None if isBrief or world.size == 1 else arenaFor(world, heights, bounds, self.dtype)

    def row(self) -> BucketRow:
        """Return an array whose buckets are not allocated yet."""
        return BucketRow(self.sizes, self.dtype, self.free)

    def rowOf(self, index: int) -> BucketRow:
        """Return the array of one exchanged sum, in shared memory if there is an arena."""
        return self.row() if self.arena is None else SharedRow(self.arena.rows[self.world.rank][index])

    def add(self, leaf: Leaf) -> None:
        """Add up this process's grains; while `leaf` computes the last one, it may call `start`."""
        EXCHANGING.drive(self.pending)  # exchanges of a failed step
        self.pending, self.started, self.pieces, self.isEnding = [], 0, [], False
        self.release(self.total)
        if self.arena is not None:
            self.arena.waitFree()
        *first, (begin, end) = self.spans[self.world.rank]
        self.sums = [self.sumIn(leaf, *span, self.rowOf(index)) for index, span in enumerate(first)]
        self.chain, row = [], self.rowOf(len(first))
        while end - begin > 1:
            middle = (begin + end) // 2
            self.chain.append(self.sumIn(leaf, begin, middle, row))
            begin, row = middle, self.row()
        self.chain.append(row)
        self.sums.append(self.chain[0])
        leaf(begin, self.chain[-1])

    def sumIn(self, leaf: Leaf, begin: int, end: int, row: BucketRow) -> BucketRow:
        """Sum the grains from `begin` to before `end`, a subtree, into `row`, and return it."""
        if end - begin == 1:
            leaf(begin, row)
            return row
        middle = (begin + end) // 2
        left, right = self.sumIn(leaf, begin, middle, row), self.sumIn(leaf, middle, end, self.row())
        for number in range(len(self.sizes)):
            left.add(number, right)
            right.release(number)
        return left

    def release(self, row: BucketRow) -> None:
        """Release all buckets of an array for reuse."""
        for number in list(row.arrays):
            row.release(number)

    def start(self) -> None:
        """Add the next bucket of the last grain to the pending subtrees, and start its exchange."""
        number, world = self.started, self.world
        for left, right in reversed(list(pairwise(self.chain))):
            left.add(number, right)
            right.release(number, not self.isBrief)
        if world.size > 1:
            world.isComputing = True
            done = EXCHANGING.submit(world, self.labels[number], self.exchange(number), self.isEnding)
            self.pending.append(done)
            if self.isBrief and len(self.pending) >= INFLIGHT:
                EXCHANGING.drive(self.pending[-INFLIGHT : 1 - INFLIGHT])
        self.started += 1

    def finish(self) -> None:
        """Start the remaining buckets, and wait for the `total`."""
        self.isEnding = True
        while self.started < len(self.labels):
            self.start()
        self.world.isComputing = False
        EXCHANGING.drive(self.pending)  # this thread has nothing else to do, and waking the other one takes time
        self.pieces = [exchange.result() for exchange in self.pending]
        self.total = self.sums[0]
        if self.world.size == 1:
            self.pieces = [self.total[number] for number in range(len(self.sizes))]
        self.sums, self.chain, self.pending = [], [], []

    def multiply(self, factor: float) -> None:
        """Multiply this process's part of the total."""
        isWhole = self.shares or self.world.size == 1
        for array in [self.total[number] for number in range(len(self.sizes))] if isWhole else self.pieces:
            array *= array.dtype.type(factor)

    def exchange(self, number: int) -> Exchange:
        """Exchange a bucket, for this process's shard of its total. With `shares`, the first sum becomes the total."""
        return self.exchangeSent(number) if self.arena is None else self.exchangeShared(number, self.arena)

    def exchangeShared(self, number: int, arena: SharedArena) -> Exchange:
        """Exchange a bucket in memory that all processes read."""
        parts, piece, others = self.views[number] = self.views.get(number) or self.viewsOf(number, arena)
        yield arena.reach(number)  # all processes have written their sums
        total = joined(parts, 0, self.grains.count, piece if self.shares else None)
        if self.shares:
            yield arena.reach(number)  # all processes have written their shards of the total
            for into, of in others:
                into[...] = of
        arena.leave(number)
        return total

    def viewsOf(self, number: int, arena: SharedArena) -> Views:
        """Return views of a bucket in the arena: this process's shard of all sums, its shard of its first sum, which
        becomes the total, and pairs of each other shard of that sum with the owner's total."""
        rank, cuts = self.world.rank, self.shards[number]
        pieces = [slice(*pair) for pair in pairwise(cuts)]
        parts: dict[Span, np.ndarray] = {}
        for spans, rows in zip(self.spans, arena.rows):
            parts.update(zip(spans, [row[number][pieces[rank]] for row in rows]))
        firsts = [(rows[0][number][span], span) for rows, span in zip(arena.rows, pieces)]
        total = arena.rows[rank][0][number]
        others = [(total[span], first) for r, (first, span) in enumerate(firsts) if r != rank]
        return parts, total[pieces[rank]], others

    def exchangeSent(self, number: int) -> Exchange:
        """Exchange a bucket by messages."""
        world, cuts = self.world, self.shards[number]
        sent, received = self.sides([row[number] for row in self.sums], cuts)
        yield world.startAllToAll(sent, received)
        if not self.shares:
            piece = self.joinedFrom(received)
            del sent, received
            for row in self.sums:
                row.release(number, not self.isBrief)
            return piece
        whole = self.sums[0][number]
        piece = whole[cuts[world.rank] : cuts[world.rank + 1]]
        self.joinedFrom(received, piece)
        for row in self.sums[1:]:
            row.release(number, not self.isBrief)
        yield world.startAllGatherOn(number, whole, cuts)
        return piece
