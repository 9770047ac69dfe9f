"""Arena: offsets for buffers that are in use for a while, so that all of them take little memory."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import defaultdict
from typing import Any

import numpy as np

FEW = 3000  # the largest buffers, which are placed one by one where they fit best
TRIES, LITTLE = 60, 400  # other orders of so few buffers that are tried
WASTE = 1.01  # of what is in use at the worst time, from which on they are


def arranged(buffers: list[Any]) -> int:
    """Give every buffer its offset; the bytes that all take together."""
    bySize = sorted(buffers, key=lambda b: (-b.size, b.birth))
    total = inOrder(buffers)
    offsets = [b.offset for b in buffers]
    other = bestFit(bySize[:FEW]) if buffers else 0
    if len(buffers) > FEW:
        rest = bySize[FEW:]
        more = inOrder(rest)
        for b in rest:
            b.offset += other
        other += more
    if total <= other:
        for b, offset in zip(buffers, offsets):
            b.offset = offset
    best = min(total, other)
    return shuffled(bySize, best) if len(buffers) <= LITTLE and best > WASTE * inUse(buffers) else best


def shuffled(buffers: list[Any], total: int) -> int:
    """The same with buffers of about equal size in other orders, always the same ones: the best that is found."""
    offsets, random = [b.offset for b in buffers], np.random.default_rng(0)
    sizes, enough = np.array([b.size for b in buffers]), WASTE * inUse(buffers)
    for _ in range(TRIES):
        order = np.argsort(-sizes * np.exp(random.normal(0, 0.4, sizes.size)), kind="stable")
        found = bestFit([buffers[i] for i in order])
        if found < total:
            total, offsets = found, [b.offset for b in buffers]
        if total <= enough:
            break
    for b, offset in zip(buffers, offsets):
        b.offset = offset
    return total


def inUse(buffers: list[Any]) -> int:
    """The bytes of the buffers that are in use at the worst time: no arena is smaller."""
    change: dict[int, int] = defaultdict(int)
    for b in buffers:
        change[b.birth] += b.size
        change[b.death + 1] -= b.size
    return int(max(np.cumsum([change[time] for time in sorted(change)]), default=0))


def inOrder(buffers: list[Any]) -> int:
    """As memory is handed out and back in the course of time: the smallest gap that is large enough, or the end."""
    births, deaths = defaultdict(list), defaultdict(list)
    for b in buffers:
        births[b.birth].append(b)
        deaths[b.death].append(b)
    gaps = Gaps()
    for time in sorted({*births, *deaths}):
        for b in sorted(births[time], key=lambda b: -b.size):
            b.offset = gaps.take(b.size)
        for b in deaths[time]:
            gaps.give(b.offset, b.size)
    return gaps.end


class Gaps:
    """The free pieces of an arena that grows at its end."""

    def __init__(self) -> None:
        self.end = 0
        self.bySize: list[tuple[int, int]] = []
        self.starts: dict[int, int] = {}  # offset -> size
        self.stops: dict[int, int] = {}  # the end of a piece -> its offset

    def take(self, size: int) -> int:
        """An offset at which so many bytes are free."""
        place = bisect_left(self.bySize, (size, 0))
        if place < len(self.bySize):
            found, offset = self.bySize[place]
            self.remove(offset)
            if found > size:
                self.add(offset + size, found - size)
            return offset
        last = self.stops.get(self.end)
        if last is not None:  # the piece at the end is used, and made longer
            self.remove(last)
            self.end = last
        offset, self.end = self.end, self.end + size
        return offset

    def give(self, offset: int, size: int) -> None:
        """These bytes are free again."""
        before, after = self.stops.get(offset), offset + size
        if after in self.starts:
            size += self.starts[after]
            self.remove(after)
        if before is not None:
            size += offset - before
            self.remove(before)
            offset = before
        self.add(offset, size)

    def add(self, offset: int, size: int) -> None:
        """Note a free piece."""
        self.starts[offset] = size
        self.stops[offset + size] = offset
        insort(self.bySize, (size, offset))

    def remove(self, offset: int) -> None:
        """Forget a free piece."""
        size = self.starts.pop(offset)
        del self.stops[offset + size]
        del self.bySize[bisect_left(self.bySize, (size, offset))]


def bestFit(buffers: list[Any]) -> int:
    """One after the other, each in the smallest gap between those that are in use at the same time."""
    count = len(buffers)
    births = np.array([b.birth for b in buffers])
    deaths = np.array([b.death for b in buffers])
    starts = np.zeros(count, np.int64)
    stops = np.zeros(count, np.int64)
    total = 0
    for i, b in enumerate(buffers):
        meets = np.flatnonzero((births[:i] <= b.death) & (deaths[:i] >= b.birth))
        order = meets[np.argsort(starts[meets], kind="stable")]
        ends = np.maximum.accumulate(np.concatenate([[0], stops[order]]))
        room = np.concatenate([starts[order], [np.iinfo(np.int64).max]]) - ends
        fitting = np.flatnonzero(room >= b.size)
        b.offset = int(ends[fitting[np.argmin(room[fitting])]])
        starts[i], stops[i] = b.offset, b.offset + b.size
        total = max(total, b.offset + b.size)
    return total
