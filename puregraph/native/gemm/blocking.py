"""Plan: how a matrix product is cut into tasks, and into tiles within them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from math import gcd
from typing import NamedTuple

from puregraph.native.gemm.microkernel import Microkernel, tiles
from puregraph.native.gemm.pack import DEPTH, GROUP

STORE = DEPTH << 8  # numbers of packed b that each strip of a task meets again
KEPT = 1 << 17  # sums that a task keeps between blocks of k
TRIED = 3  # tiles whose cuts are compared
WIDE = 256  # columns that a task usually has
CACHED = 16  # numbers in a line
MANY = 8  # tasks for each thread that are always enough

# Times in vector multiplications.
STRIP = {"rows": (0.3, 2.0), "any": (2.0, 2.0)}  # to copy a column of a strip: a row, the rest
LINE = 6.0  # to fetch a line of a column that is contiguous
PANEL = {"rows": 0.4, "columns": 0.4, "any": 2.0, "packed": 0.4}  # to copy a number of a panel, or to fetch it
TILE = (3.0, 40.0)  # to begin and end a tile: a vector, the rest
TASK = 2000.0
FOREIGN = 0.5  # to meet a number of a that another thread has made


class Blocking(NamedTuple):
    """Tiles down and across in each task, how many blocks of them there are, and how much of k is done at a time."""

    tile: Microkernel
    strips: int
    panels: int
    depth: int
    down: int
    across: int


class GemmSizes(NamedTuple):
    """A product, as far as its plan depends on it."""

    m: int
    n: int
    k: int
    batch: int
    lanes: int
    aLayout: str
    bLayout: str
    vectors: int = 0  # of the tile that b is packed for

    @property
    def depth(self) -> int:
        """Blocks of k are of one size, as far as whole vectors allow."""
        return max(1, -(-self.k // self.blocks // self.lanes)) * self.lanes

    @property
    def blocks(self) -> int:
        return max(1, -(-self.k // DEPTH))

    def strips(self, tile: Microkernel) -> int:
        return -(-self.m // tile.rows)

    def panels(self, tile: Microkernel) -> int:
        return -(-self.n // tile.width)


@lru_cache(4096)
def planFor(sizes: GemmSizes, threads: int) -> Blocking:
    """The plan that all threads are done with first, as far as its parts tell their times."""
    fit = [tile for tile in tiles(sizes.lanes) if sizes.vectors in (0, tile.vectors)]
    best = sorted(fit, key=lambda tile: (timeAlone(sizes, tile), -tile.rows))[:TRIED]
    plans = (plan for tile in best for plan in plansOf(sizes, tile, threads))
    return min(plans, key=lambda plan: timeOf(sizes, plan, threads))


def plansOf(sizes: GemmSizes, tile: Microkernel, threads: int) -> Iterator[Blocking]:
    """Cuts whose blocks have room, into no more tasks than make sense.

    Panels that were packed ahead need no room of their own, but are to stay in L2 as well, from strip to strip: where
    no sums wait there between blocks of k, twice as many do.
    """
    strips, panels = sizes.strips(tile), sizes.panels(tile)
    most = 2 * STORE if sizes.bLayout == "packed" and sizes.blocks == 1 else STORE
    widest = max(1, most // (tile.width * sizes.depth))
    for across in counts(parts(panels, widest), min(panels, MANY * threads)):
        wide = parts(panels, across)
        highest = max(1, KEPT // tile.size // wide) if sizes.blocks > 1 else strips
        for down in counts(parts(strips, highest), min(strips, MANY * threads // across)):
            high = parts(strips, down)
            yield Blocking(tile, high, wide, sizes.depth, parts(strips, high), parts(panels, wide))


def counts(least: int, most: int) -> Iterator[int]:
    """The least, and up to most all small numbers and some of the larger ones."""
    yield least
    count = least + 1
    while count <= most:
        yield count
        count += max(1, count // 6)


def parts(count: int, size: int) -> int:
    """How many pieces of at most a size there are; how large equal pieces of a number are."""
    return -(-count // size)


def timeAlone(sizes: GemmSizes, tile: Microkernel) -> float:
    """Of all tiles, for one k: their loops, their copies, their beginnings and ends."""
    strips, panels = sizes.strips(tile), sizes.panels(tile)
    copies = strips * stripTime(sizes, tile) * parts(sizes.n, WIDE) + panelTime(sizes, tile) * panels
    return strips * tile.across(sizes.n) + copies + strips * panels * tileTime(sizes, tile)


def timeOf(sizes: GemmSizes, plan: Blocking, threads: int) -> float:
    """Of the thread with most tasks, for one k."""
    tile, high, wide = plan.tile, plan.strips, plan.panels
    task = high * tile.across(sizes.n) * wide / sizes.panels(tile) + high * wide * tileTime(sizes, tile)
    task += high * stripTime(sizes, tile) + wide * panelTime(sizes, tile) + TASK / max(sizes.k, 1)
    tasks = parts(sizes.batch * plan.down * plan.across, threads)
    return tasks * task + FOREIGN * foreign(sizes, plan, tasks, threads)


def foreign(sizes: GemmSizes, plan: Blocking, tasks: int, threads: int) -> int:
    """How many rows of a a thread meets beyond its share: blocks of rows are dealt out in order, as they were made."""
    rows = min(sizes.m, parts(tasks, plan.across) * plan.strips * plan.tile.rows)
    return max(0, rows - parts(sizes.m, threads)) if sizes.batch == 1 else 0


def stripTime(sizes: GemmSizes, tile: Microkernel) -> float:
    """Of copying a strip of a, for one k: by its rows, and what comes on top."""
    if sizes.aLayout == "columns":
        return LINE * linesOf(tile)
    row, rest = STRIP[sizes.aLayout]
    return row * tile.rows + rest


def linesOf(tile: Microkernel) -> float:
    """How many lines a column of a strip lies in, where columns are contiguous and GROUP strips are copied together."""
    together = GROUP * tile.rows
    step = gcd(together, CACHED)  # between places where the first of them may lie in a line
    return (1 + (together - step) / CACHED) / GROUP


def panelTime(sizes: GemmSizes, tile: Microkernel) -> float:
    """A single strip reads rows of b where they are."""
    isRead = sizes.bLayout == "rows" and sizes.m <= tile.rows
    return 0.0 if isRead else tile.width * PANEL[sizes.bLayout]


def tileTime(sizes: GemmSizes, tile: Microkernel) -> float:
    """Of the sums of a tile, for one k: by its vectors, and what comes on top."""
    vector, rest = TILE
    return (vector * tile.rows * tile.vectors + rest) / max(sizes.k, 1)
