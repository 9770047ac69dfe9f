"""SharedArena: arrays of the processes of one machine in shared memory, with a progress counter for each process."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from puregraph.distributed.collectives.backoff import Backoff
from puregraph.distributed.worlds.world import Pending

CACHE_LINE_BYTES = 64  # bytes of a cache line


class ArenaPending(Pending):
    """Wait until the counts of all processes for a bucket have reached this process's count."""

    def __init__(self, arena: SharedArena, number: int):
        self.arena, self.number, self.least = arena, number, arena.counts[arena.world.rank][number]

    def isDone(self) -> bool:
        return all(counts[self.number] >= self.least for counts in self.arena.counts)

    def wait(self) -> None:
        self.look()
        self.arena.world.finished()

    def look(self) -> None:
        """Wait, without counting a collective: not every process has to."""
        world, backoff = self.arena.world, Backoff(self.arena.world)
        while not self.isDone():
            world.waiting = world.waiting or time.monotonic()
            backoff.pause()
        world.waiting = None


class SharedArena:
    """Arrays in buckets that one process writes and all others read, synchronized by a count per process and bucket.

    A process increments its count when it has written data that others read, or has read theirs. Nothing is sent.

    `rows`    the arrays, by process, row and bucket
    `counts`  the counts, by process and bucket
    """

    def __init__(self, world: Any, memory: list[np.ndarray], heights: list[int], bounds: list[int], dtype: np.dtype):
        self.world = world
        head = headOf(len(bounds) - 1)
        self.counts = [block[:head].data.cast("q") for block in memory]
        self.rows = []
        for block, height in zip(memory, heights):
            data = block[head:].view(dtype)[: height * bounds[-1]].reshape(height, bounds[-1])
            self.rows.append([[row[a:b] for a, b in zip(bounds, bounds[1:])] for row in data])

    def reach(self, number: int) -> Pending:
        """Increment this process's count for a bucket; the Pending is over when all processes have done so."""
        self.leave(number)
        return ArenaPending(self, number)

    def leave(self, number: int) -> None:
        """Increment this process's count for a bucket, without waiting."""
        self.counts[self.world.rank][number] += 1

    def waitFree(self) -> None:
        """Wait until no process reads the buckets any more, so that this one may overwrite them."""
        for number in range(len(self.counts[0])):
            ArenaPending(self, number).look()


def headOf(count: int) -> int:
    """Return the bytes of the counts before the rows, rounded up to cache lines."""
    return -(-8 * count // CACHE_LINE_BYTES) * CACHE_LINE_BYTES


def arenaFor(world: Any, heights: list[int], bounds: list[int], dtype: np.dtype) -> SharedArena | None:
    """Create an arena with `heights[r]` rows for process r; None if the processes have no shared memory.

    All processes call it.
    """
    sizes = [headOf(len(bounds) - 1) + height * bounds[-1] * dtype.itemsize for height in heights]
    memory = world.sharedMemory(sizes)
    return None if memory is None else SharedArena(world, memory, heights, bounds, dtype)
