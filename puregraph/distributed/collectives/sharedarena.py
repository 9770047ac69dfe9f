"""SharedArena: rows of the processes of one machine in memory that all of them read, and how far each of them is."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from puregraph.distributed.collectives.backoff import Backoff
from puregraph.distributed.worlds.world import Pending

LINE = 64  # bytes that a processor exchanges at once


class ArenaPending(Pending):
    """All processes have come to one point of a bucket."""

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
    """Rows in buckets, which their process writes and all others read; a count for each process and bucket says when.

    A count goes up when a process has written what others read next, or has read it. Nothing is sent.

    `rows`    by process its rows, each by bucket
    `counts`  by process, by bucket
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
        """Say that this process has come to the next point of a bucket; all others have, when that is over."""
        self.leave(number)
        return ArenaPending(self, number)

    def leave(self, number: int) -> None:
        """Report that this process is done with a bucket, without waiting."""
        self.counts[self.world.rank][number] += 1

    def waitFree(self) -> None:
        """Wait until no process reads any more what this one is about to write."""
        for number in range(len(self.counts[0])):
            ArenaPending(self, number).look()


def headOf(count: int) -> int:
    """The bytes before the rows: a count for each bucket, in whole lines."""
    return -(-8 * count // LINE) * LINE


def arenaFor(world: Any, heights: list[int], bounds: list[int], dtype: np.dtype) -> SharedArena | None:
    """An arena with n rows for each process, by rank; None where there is no memory that all of them read.

    All processes call it.
    """
    sizes = [headOf(len(bounds) - 1) + height * bounds[-1] * dtype.itemsize for height in heights]
    memory = world.sharedMemory(sizes)
    return None if memory is None else SharedArena(world, memory, heights, bounds, dtype)
