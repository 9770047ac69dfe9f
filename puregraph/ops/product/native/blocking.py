"""Blocking: how a GEMM is cut into tasks, cache blocks and register tiles, by a cost model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from math import gcd, inf
from typing import NamedTuple

from puregraph.ops.native.llvm.instructions import SIZES
from puregraph.ops.product.native.microkernel import Microkernel, tiles
from puregraph.ops.product.native.pack import DEPTH, GROUP

PACKED_B = DEPTH << 8  # float32 elements of packed b that a task keeps in L2, to read them for each strip
ACCUMULATORS = 1 << 17  # float32 accumulators that a task keeps between blocks of k
CANDIDATE_TILES = 3  # tiles whose blockings are compared
NEARLY = 1.03  # a tile that is compiled already is taken up to this factor of the least time: LLVM takes 70 ms for one
FAR = 1.3  # tiles above this factor of the least cost of all tiles are not considered for that
TYPICAL_COLUMNS = 256  # columns of a typical task
TASKS_PER_THREAD = 8  # maximum number of tasks per thread; more never help
TRIANGLE_TASKS = 2  # more tasks per thread for blocks of a triangle, which take unequally long

# Costs in vector multiplications.
PACK_STRIP = {"rows": (0.3, 2.0), "any": (2.0, 2.0)}  # to pack a column of a strip: per row, and fixed
LINE_FETCH = 6.0  # to load a cache line of a contiguous column
PACK_PANEL = {"rows": 0.4, "columns": 0.4, "any": 2.0, "packed": 0.4}  # to pack an element of a panel, or to load it
TILE_OVERHEAD = (3.0, 40.0)  # to begin and end a tile: per vector, and fixed
TASK_OVERHEAD = 2000.0
REMOTE = 0.5  # to load an element of a from another core's cache


def capacity(count: int, real: str) -> int:
    """The number of elements in the memory of `count` float32 elements."""
    return count * SIZES["f32"] // SIZES[real]


class Blocking(NamedTuple):
    """Strips and panels of a task, the steps of a block of k, and the grid of tasks, down x across."""

    tile: Microkernel
    strips: int
    panels: int
    depth: int
    down: int
    across: int


class GemmSizes(NamedTuple):
    """The sizes that determine the blocking of a product."""

    m: int
    n: int
    k: int
    batch: int
    lanes: int
    aLayout: str
    bLayout: str
    vectors: int = 0  # vectors of the tile that b is packed for; 0: b is not packed
    real: str = "f32"
    isSymmetric: bool = False
    halves: bool = False

    @property
    def group(self) -> int:
        """The elements along k of a step of the microkernel."""
        return 2 if self.halves else 1

    @property
    def steps(self) -> int:
        return -(-self.k // self.group)

    @property
    def depth(self) -> int:
        """The steps of a block of k: all alike, in whole vectors."""
        return max(1, -(-self.steps // self.blocks // self.lanes)) * self.lanes

    @property
    def blocks(self) -> int:
        return max(1, -(-self.steps // DEPTH))

    def strips(self, tile: Microkernel) -> int:
        return -(-self.m // tile.rows)

    def panels(self, tile: Microkernel) -> int:
        return -(-self.n // tile.width)

    def share(self, tile: Microkernel) -> float:
        """The share of all tiles that is computed: those of a symmetric product that reach its upper triangle."""
        return min(1.0, (1 + tile.width / self.n) / 2) if self.isSymmetric else 1.0


def blockingFor(sizes: GemmSizes, threads: int, isCompiled: Callable[[Microkernel], bool] | None = None) -> Blocking:
    """The blocking with the least estimated time, or a nearly as fast one of a tile whose kernel is compiled already.

    Sums have the same bits with any tile.
    """
    if sizes.isSymmetric and threads > 1:
        threads *= TRIANGLE_TASKS
    best = fastest(sizes, threads)
    if isCompiled is None or isCompiled(best.blocking.tile):
        return best.blocking
    ready = [costs for costs in best.near if isCompiled(costs.tile)]
    cost, blocking = cheapest(sizes, ready, threads) if ready else (best.cost, best.blocking)
    return blocking if cost <= NEARLY * best.cost else best.blocking


class Fastest(NamedTuple):
    """The fastest blocking of a product, its cost, and the tiles that are nearly as fast."""

    cost: float
    blocking: Blocking
    near: list[TileCosts]


@lru_cache(4096)
def fastest(sizes: GemmSizes, threads: int) -> Fastest:
    """The blocking with the least estimated time, among the tiles with the least estimated cost of all tiles."""
    costs = tileCosts(sizes._replace(m=0, batch=0))
    ranked = sorted((c.total(sizes), -c.tile.rows, i) for i, c in enumerate(costs))
    cost, blocking = cheapest(sizes, [costs[i] for _, _, i in ranked[:CANDIDATE_TILES]], threads)
    return Fastest(cost, blocking, [costs[i] for total, _, i in ranked if total <= FAR * ranked[0][0]])


def cheapest(sizes: GemmSizes, tileCosts: Sequence[TileCosts], threads: int) -> tuple[float, Blocking]:
    """The least estimated time of some tiles, and its blocking."""
    return min([costs.cheapest(sizes, threads) for costs in tileCosts], key=lambda option: option[0])


def candidates(sizes: GemmSizes, tile: Microkernel, threads: int) -> Iterator[tuple[int, int, int, int]]:
    """Strips and panels of a task, and the grid of tasks, down and across: a sensible number of tasks, whose packed
    panels and accumulators fit their memory.

    Panels that were packed ahead are not copied, but stay in L2 from strip to strip as well: twice as many where no
    accumulators stay there between blocks of k.
    """
    strips, panels, isOne = sizes.strips(tile), sizes.panels(tile), sizes.blocks == 1
    most = capacity(2 * PACKED_B if sizes.bLayout == "packed" and isOne else PACKED_B, sizes.real)
    widest = max(1, most // (tile.width * sizes.depth))
    accumulators = capacity(ACCUMULATORS, sizes.real) // tile.size
    for across in taskCounts(ceilDiv(panels, widest), min(panels, TASKS_PER_THREAD * threads)):
        wide = -(-panels // across)
        sides = -(-panels // wide)
        least = 1 if isOne else -(-strips // max(1, accumulators // wide))
        for down in taskCounts(least, min(strips, TASKS_PER_THREAD * threads // across)):
            high = -(-strips // down)
            yield high, wide, -(-strips // high), sides


@lru_cache(4096)
def taskCounts(least: int, most: int) -> list[int]:
    """The task counts to try between two limits: all small ones and some larger ones."""
    counts = [least]
    count = least + 1
    while count <= most:
        counts.append(count)
        count += max(1, count // 6)
    return counts


def ceilDiv(count: int, size: int) -> int:
    """count / size, rounded up."""
    return -(-count // size)


class TileCosts(NamedTuple):
    """The costs of a tile per step, of any number of rows: of a strip, a panel, one tile and one task."""

    tile: Microkernel
    strip: float
    panel: float
    one: float
    task: float
    isRead: bool  # a single strip reads rows of b in place

    def panelFor(self, m: int) -> float:
        """The cost of packing a panel of b for m rows of a."""
        return 0.0 if self.isRead and m <= self.tile.rows else self.panel

    def total(self, sizes: GemmSizes) -> float:
        """The cost of all tiles: microkernels, packing, and tile overheads."""
        strips, panels = -(-sizes.m // self.tile.rows), sizes.panels(self.tile)
        copies = strips * self.strip * -(-sizes.n // TYPICAL_COLUMNS) + self.panelFor(sizes.m) * panels
        return strips * panels * self.one + copies

    def cheapest(self, sizes: GemmSizes, threads: int) -> tuple[float, Blocking]:
        """The least cost of the thread with the most tasks, and its blocking."""
        panel = self.panelFor(sizes.m)
        best: tuple[float, int, int, int, int] = inf, 0, 0, 0, 0
        rows, share, isOne = self.tile.rows, ceilDiv(sizes.m, threads), sizes.batch == 1
        for high, wide, down, across in candidates(sizes, self.tile, threads):
            tasks = -(-sizes.batch * down * across // threads)
            cost = tasks * (high * wide * self.one + high * self.strip + wide * panel + self.task)
            if isOne:  # rows of a that the thread reads but another one wrote: tasks are assigned in the order of rows
                read = min(sizes.m, -(-tasks // across) * high * rows)
                cost += REMOTE * max(0, read - share)
            if cost < best[0]:
                best = cost, high, wide, down, across
        cost, high, wide, down, across = best
        return cost, Blocking(self.tile, high, wide, sizes.depth, down, across)


@lru_cache(4096)
def tileCosts(sizes: GemmSizes) -> list[TileCosts]:
    """The costs of all tiles that fit the packing of b; the number of rows and the batch do not matter."""
    isRead, task = sizes.bLayout == "rows" and not sizes.halves, TASK_OVERHEAD / max(sizes.steps, 1)
    costs = []
    for tile in tiles(sizes.lanes, sizes.real, sizes.halves):
        if sizes.vectors in (0, tile.vectors):
            one = sizes.share(tile) * (tile.rowCost(sizes.n) / sizes.panels(tile) + tileTime(sizes, tile))
            costs.append(TileCosts(tile, stripTime(sizes, tile), panelTime(sizes, tile), one, task, isRead))
    return costs


def stripTime(sizes: GemmSizes, tile: Microkernel) -> float:
    """The cost of packing a strip of a, per step."""
    if sizes.aLayout == "columns":
        return LINE_FETCH * cacheLines(tile) * sizes.group
    row, fixed = PACK_STRIP[sizes.aLayout]
    return row * tile.rows * sizes.group + fixed


def cacheLines(tile: Microkernel) -> float:
    """Cache lines of a column of a strip, where columns are contiguous and GROUP strips are packed at once."""
    together = GROUP * tile.rows
    step = gcd(together, tile.line)  # the column starts at multiples of this offset in a line
    return (1 + (together - step) / tile.line) / GROUP


def panelTime(sizes: GemmSizes, tile: Microkernel) -> float:
    """The cost of packing a panel of b, or of loading a packed one, per step."""
    return tile.width * PACK_PANEL[sizes.bLayout] * (1 if sizes.bLayout == "packed" else sizes.group)


def tileTime(sizes: GemmSizes, tile: Microkernel) -> float:
    """The cost to begin and end a tile, per step."""
    vector, fixed = TILE_OVERHEAD
    return (vector * tile.rows * tile.vectors + fixed) / max(sizes.steps, 1)
