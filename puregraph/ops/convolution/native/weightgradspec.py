"""The sums of the weight gradient of a direct convolution, their split into tasks, and the register tile."""

from __future__ import annotations

from functools import cache
from math import ceil, prod
from typing import Any, NamedTuple

from puregraph.ops.convolution.native.geometry import AxisMap
from puregraph.ops.convolution.native.registertiling import LATENCY, registers, vectorsOf
from puregraph.ops.native.llvm import jit
from puregraph.ops.native.llvm.instructions import SIZES

MIN_TASK_MULTIPLICATIONS = 1 << 20  # fewest multiplications of a task
MAX_GRADIENT_TASKS = 16  # the samples are split into parts until there are this many tasks
MIN_UNCOPIED_CHANNELS = 8  # input channels below which strips are copied
STRIP_BYTES = 24 << 10  # bytes of x and grad that a tile reads from one strip
KEPT_SUMS_BYTES = 160 << 10  # bytes of sums that a task keeps


class WeightGradSplit(NamedTuple):
    """The split of the sums into tasks."""

    vectors: tuple[int, ...]
    rows: int  # elements of x in a tile
    tiles: int  # tiles of a task
    panels: int  # panels of output channels of a task
    planes: int  # planes of a strip
    high: int  # rows of each plane of a strip
    parts: int

    @property
    def width(self) -> int:
        return sum(self.vectors)

    def strips(self, of: WeightGradSpec) -> int:
        """The number of strips of all samples."""
        return ceil(of.planes / self.planes) * max(1, ceil(of.lines[1].count / self.high))


class WeightGradSpec(NamedTuple):
    """The sums: n samples, `inChannels` and `outChannels` in each group, along three axes."""

    n: int
    inChannels: int
    outChannels: int
    groups: int
    lines: tuple[AxisMap, AxisMap, AxisMap]
    real: str = "f32"

    @property
    def taps(self) -> int:
        return prod(len(line.taps) for line in self.lines)

    @property
    def isFew(self) -> bool:
        return self.inChannels < MIN_UNCOPIED_CHANNELS

    @property
    def planes(self) -> int:
        return self.n * self.lines[0].count

    def plan(self) -> WeightGradSplit:
        """Split the sums into tasks."""
        vectors, rows = tileOf(self, jit.lanes(SIZES[self.real]))
        size = SIZES[self.real]
        deep, high, wide = self.lines
        pixels = max(1, STRIP_BYTES // (size * (sum(vectors) + rows)))
        plane = max(1, high.count * wide.count)
        planes = max(1, min(self.planes, pixels // plane))
        tall = high.count if planes > 1 else max(1, min(high.count, round(pixels / max(1, wide.count))))
        tall = ceil(high.count / max(1, ceil(high.count / max(1, tall))))
        strips = ceil(self.planes / planes) * ceil(high.count / max(1, tall))
        tileBytes = size * sum(vectors) * (self.taps * rows)
        tiles = 1 if self.isFew else ceil(self.inChannels / rows)
        panels = self.groups * ceil(self.outChannels / sum(vectors))
        together = max(1, min(tiles, KEPT_SUMS_BYTES // tileBytes, ceil(tiles * panels / MAX_GRADIENT_TASKS)))
        across = 1
        if self.groups == 1 and tileBytes * tiles * panels <= KEPT_SUMS_BYTES:
            across, together = panels, tiles
        tasks = ceil(panels / across) * ceil(tiles / together)
        work = (
            self.n
            * prod(line.count for line in self.lines)
            * self.taps
            * self.inChannels
            * self.outChannels
            * self.groups
        )
        parts = max(1, min(strips, ceil(MAX_GRADIENT_TASKS / tasks), work // MIN_TASK_MULTIPLICATIONS // tasks))
        return WeightGradSplit(vectors, rows, together, across, planes, tall, parts)

    def chunks(self, limit: int) -> list[int]:
        """For few channels: the number of elements of x in each tile, for all rows of taps at once or for each."""
        run = self.inChannels * len(self.lines[2].taps)
        most = len(self.lines[1].taps)
        if run * most <= limit:
            return [run * most]
        count = ceil(run / limit)
        return [(run * (i + 1)) // count - (run * i) // count for i in range(count)] * most


@cache
def tileOf(of: WeightGradSpec, lanes: int) -> tuple[tuple[int, ...], int]:
    """The register tile: vectors of output channels, and elements of x."""
    most = registers(lanes, of.real)
    best: Any = None
    for panels in range(1, ceil(of.outChannels / lanes) + 1):
        vectors = vectorsOf(ceil(ceil(of.outChannels / panels) / 4) * 4, lanes)
        v, width = len(vectors), sum(vectors)
        if v > 4 or (panels > 1 and width % lanes and of.outChannels % width):
            continue
        for limit in range(1, (most - v - 1) // v + 1):
            if of.isFew:
                sizes = of.chunks(limit)
            else:
                rows = ceil(of.inChannels / ceil(of.inChannels / limit))
                sizes = [rows] * ceil(of.inChannels / rows)
            units = sum(1 if vectorLanes == lanes else 0.6 for vectorLanes in vectors)
            cost = sum(max(units * rows, 0.95 * (rows + v), LATENCY) + 0.3 for rows in sizes)
            cost *= ceil(of.outChannels / width)
            if best is None or cost < best[0]:
                best = cost, vectors, max(sizes)
    return best[1], best[2]
