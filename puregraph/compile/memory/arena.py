"""Arena: choose buffer offsets by lifetime, so that the buffers take little memory."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import defaultdict
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from puregraph.compile.memory.planner import Buffer

BEST_FIT_BUFFERS = 3000  # number of largest buffers that are placed one by one, where they fit best
RANDOM_ORDERS, MAX_SHUFFLED_BUFFERS = 60, 400  # random orders to try, and the most buffers to try them for
END_OF_MEMORY = 2**63 - 1
WASTE = 1.01  # other orders are tried if the arena exceeds the peak use by this factor


def arranged(buffers: list[Buffer]) -> int:
    """Give every buffer its offset; returns the size of the arena in bytes."""
    bySize = sorted(buffers, key=lambda b: (-b.size, b.birth))
    total = inOrder(buffers)
    offsets = [b.offset for b in buffers]
    fitted = bestFit(bySize[:BEST_FIT_BUFFERS]) if buffers else 0
    if len(buffers) > BEST_FIT_BUFFERS:
        small = bySize[BEST_FIT_BUFFERS:]
        more = inOrder(small)
        for b in small:
            b.offset += fitted
        fitted += more
    if total <= fitted:
        for b, offset in zip(buffers, offsets):
            b.offset = offset
    best = min(total, fitted)
    return shuffled(bySize, best) if len(buffers) <= MAX_SHUFFLED_BUFFERS and best > WASTE * inUse(buffers) else best


class BufferOrder:
    """For each buffer of an arrangement, the buffers below it that are in use at the same time.

    Arranging other sizes with the same lifetimes in this order takes a tenth of the time.
    """

    def __init__(self, buffers: list[Buffer]):
        self.lifetimes = [(b.birth, b.death) for b in buffers]
        self.order = sorted(range(len(buffers)), key=lambda i: buffers[i].offset)
        self.below: list[list[int]] = [[] for _ in buffers]
        for count, i in enumerate(self.order):
            b = buffers[i]
            lower = (j for j in self.order[:count] if buffers[j].birth <= b.death and buffers[j].death >= b.birth)
            self.below[i] = list(lower)

    def arrange(self, buffers: list[Buffer]) -> int | None:
        """Give every buffer its offset; returns the size of the arena, None if another arrangement may be smaller."""
        if [(b.birth, b.death) for b in buffers] != self.lifetimes:
            return None
        ends = [0] * len(buffers)
        for i in self.order:
            b = buffers[i]
            b.offset = max([ends[j] for j in self.below[i]], default=0)
            ends[i] = b.offset + b.size
        total = max(ends, default=0)
        return total if total <= WASTE * inUse(buffers) else None


def shuffled(buffers: list[Buffer], total: int) -> int:
    """Arrange the buffers in other orders, by size with seeded random noise; keeps the best arrangement."""
    offsets, random = [b.offset for b in buffers], np.random.default_rng(0)
    sizes, enough = np.array([b.size for b in buffers]), WASTE * inUse(buffers)
    for _ in range(RANDOM_ORDERS):
        order = np.argsort(-sizes * np.exp(random.normal(0, 0.4, sizes.size)), kind="stable")
        candidate = bestFit([buffers[i] for i in order], total)
        if candidate < total:
            total, offsets = candidate, [b.offset for b in buffers]
        if total <= enough:
            break
    for b, offset in zip(buffers, offsets):
        b.offset = offset
    return total


def inUse(buffers: list[Buffer]) -> int:
    """The peak of the bytes in use: no arena is smaller."""
    change: dict[int, int] = defaultdict(int)
    for b in buffers:
        change[b.birth] += b.size
        change[b.death + 1] -= b.size
    return int(max(np.cumsum([change[time] for time in sorted(change)]), default=0))


def inOrder(buffers: list[Buffer]) -> int:
    """Offsets that an allocator would give in execution order: the smallest free block that fits, or the end."""
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
    """The free blocks of an arena that grows at its end."""

    def __init__(self) -> None:
        self.end = 0
        self.bySize: list[tuple[int, int]] = []
        self.starts: dict[int, int] = {}  # offset -> size
        self.stops: dict[int, int] = {}  # the end of a block -> its offset

    def take(self, size: int) -> int:
        """Allocate n bytes; returns their offset."""
        i = bisect_left(self.bySize, (size, 0))
        if i < len(self.bySize):
            free, offset = self.bySize[i]
            self.remove(offset)
            if free > size:
                self.add(offset + size, free - size)
            return offset
        last = self.stops.get(self.end)
        if last is not None:  # use and extend the free block at the end
            self.remove(last)
            self.end = last
        offset, self.end = self.end, self.end + size
        return offset

    def give(self, offset: int, size: int) -> None:
        """Free a block."""
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
        """Add a free block."""
        self.starts[offset] = size
        self.stops[offset + size] = offset
        insort(self.bySize, (size, offset))

    def remove(self, offset: int) -> None:
        """Remove a free block."""
        size = self.starts.pop(offset)
        del self.stops[offset + size]
        del self.bySize[bisect_left(self.bySize, (size, offset))]


def bestFit(buffers: list[Buffer], limit: int = END_OF_MEMORY) -> int:
    """Give each buffer the smallest gap between the buffers in use at the same time; returns the arena's size.

    Stops at the first buffer that ends at or past the limit. Plain Python: most steps have few buffers, for which
    calls of numpy take five times as long.
    """
    taken: list[tuple[int, int, int, int]] = []  # (start, end, birth, death), by start
    total = 0
    for b in buffers:
        size, birth, death = b.size, b.birth, b.death
        end, offset, smallest = 0, -1, END_OF_MEMORY
        for start, stop, first, last in taken:
            if first <= death and last >= birth:
                gap = start - end
                if size <= gap < smallest:
                    offset, smallest = end, gap
                if stop > end:
                    end = stop
        b.offset = end if offset < 0 else offset
        insort(taken, (b.offset, b.offset + size, birth, death))
        total = max(total, b.offset + size)
        if total >= limit:
            break
    return total
