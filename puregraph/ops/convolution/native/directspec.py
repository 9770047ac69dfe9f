"""The sums of a direct convolution, and their split into tasks."""

from __future__ import annotations

from math import ceil, prod
from typing import NamedTuple

from puregraph.core.opensize import decided
from puregraph.ops.convolution.native.geometry import AxisMap
from puregraph.ops.convolution.native.registertiling import RegisterTile, tile
from puregraph.ops.convolution.native.taploops import edgeTaps
from puregraph.ops.native.llvm.instructions import SIZES

MIN_TASK_MULTIPLICATIONS = 1 << 19  # fewest multiplications of a task, unless there is only one
MAX_DIRECT_TASKS = 64  # maximum number of tasks
SIDES = 2  # parts that the images are split into, see `sidesOf`
MAX_WEIGHTS_PER_ELEMENT = 4  # maximum number of weights per element of the images for which images are split
MIN_UNPADDED_CHANNELS = 8  # input channels below which inputs are copied with their padding
LONG_ROW_PIXELS = 1024  # pixels of a row that is too long to copy


class DirectConvolution(NamedTuple):
    """The sums: n samples, `inChannels` to `outChannels` in each group, along three axes.

    With `halves`, inputs and weights are pairs of bfloat16 channels, and `inChannels` counts pairs.
    """

    n: int
    inChannels: int
    outChannels: int
    groups: int
    lines: tuple[AxisMap, AxisMap, AxisMap]
    real: str = "f32"
    halves: bool = False

    @property
    def factor(self) -> str:
        """The kind of inputs and of packed weights."""
        return "i32" if self.halves else self.real

    @property
    def taps(self) -> int:
        return prod(len(line.taps) for line in self.lines)

    @property
    def rows(self) -> int:
        return self.n * self.lines[0].count * self.lines[1].count

    @property
    def isRow(self) -> bool:
        """True for one row without taps beside its pixels: the pixels of all samples, see `flattened`."""
        length, unitAxis = self.lines[2].length, AxisMap(1, 1, 1, 0, 1, (0,), full=1)
        row = AxisMap(length, length, 1, 0, 1, (0,), full=length)
        return self.n == 1 and length > 0 and self.lines == (unitAxis, unitAxis, row)

    @property
    def origin(self) -> int:
        """The flat index of the first output in its image."""
        deep, high, wide = self.lines
        return (deep.start * high.full + high.start) * wide.full + wide.start

    @property
    def isCopied(self) -> bool:
        """True if tasks copy their inputs with padding: for few channels, border cases cost more than zeros."""
        isInside = all(line.isInside(a, t) for line in self.lines for a in (0, line.count - 1) for t in edgeTaps(line))
        return (
            self.inChannels < MIN_UNPADDED_CHANNELS
            and self.groups == 1
            and not isInside
            and 0 < self.lines[2].count <= LONG_ROW_PIXELS
        )

    def spans(self, chunk: int) -> int:
        """The number of chunks of rows; a copied chunk belongs to one plane."""
        if self.isCopied:
            return self.n * self.lines[0].count * ceil(self.lines[1].count / chunk)
        return ceil(self.rows / chunk)

    @property
    def tile(self) -> RegisterTile:
        stride = self.lines[2].stride * self.inChannels * self.groups
        return tile(self.lines[2].count, self.outChannels, self.inChannels, max(1, self.taps), stride, self.real)

    @property
    def panels(self) -> int:
        """Panels of output channels in each group."""
        return ceil(self.outChannels / self.tile.width)

    @property
    def packed(self) -> int:
        """Elements of the packed weight."""
        return packedSize(self)


@decided
def packedSize(of: DirectConvolution) -> int:
    """Elements of the packed weight of a convolution."""
    return of.groups * of.panels * of.taps * of.inChannels * of.tile.width


def flattened(of: DirectConvolution) -> DirectConvolution:
    """A pointwise (1x1) convolution as one long row; any other as it is."""
    for line in of.lines:
        if line != AxisMap(line.length, line.length, 1, 0, line.step, (0,), 0, 1, line.length):
            return of
    length = of.n * prod(line.length for line in of.lines)
    unitAxis = AxisMap(1, 1, 1, 0, 1, (0,), full=1)
    return of._replace(n=1, lines=(unitAxis, unitAxis, AxisMap(length, length, 1, 0, 1, (0,), full=length)))


def twoTiles(of: DirectConvolution) -> DirectConvolution:
    """A convolution of one long row as one of at most two of its tiles, the last as short as its last: equal code."""
    pixels, count = of.tile.pixels, of.lines[2].count
    written = pixels * min(2, ceil(count / pixels)) - -count % pixels
    return of._replace(lines=(*of.lines[:2], of.lines[2]._replace(length=written, count=written, full=written)))


class DirectCounts(NamedTuple):
    """The parts of a row of tiles, the tasks of a side, and the tiles of a row."""

    parts: int
    perSide: int
    tiles: int


def splitOf(of: DirectConvolution) -> tuple[DirectSplit, DirectCounts, int]:
    """The split of a convolution into tasks."""
    t = of.tile
    tiles = ceil(of.lines[2].count / t.pixels)
    panels = of.groups * of.panels
    work = of.rows * of.lines[2].count * max(1, of.taps) * of.inChannels * of.outChannels * of.groups
    wanted = max(1, min(MAX_DIRECT_TASKS, work // MIN_TASK_MULTIPLICATIONS))
    # weights that fit L2 are used for a few rows at a time; larger ones are read once, by few tasks
    together = panels if of.packed * SIZES[of.real] <= 1 << 19 else 1
    sweeps = ceil(panels / together)
    if of.rows >= wanted or of.rows >= tiles:
        chunk, across = max(1, of.rows * sweeps // wanted), tiles
        if sweeps == 1 and of.rows < wanted and panels > 1:
            together = 1
            sweeps = panels
    else:
        chunk, across = 1, max(1, tiles * sweeps // wanted)
    sides = sidesOf(of) if sweeps > 1 else 1
    if of.rows > 1:
        chunk = min(chunk, ceil(of.rows / sides))
    else:
        across = min(across, ceil(tiles / sides))
    if of.isCopied:
        across = tiles
        chunk = min(chunk, of.lines[1].count)
        chunk = ceil(of.lines[1].count / ceil(of.lines[1].count / chunk))
    elif t.block < of.inChannels:
        chunk = min(chunk, max(1, (96 << 10) // (min(across, tiles) * t.pixels * t.width * SIZES[of.real])))
    spans, parts = of.spans(chunk), ceil(tiles / across)
    perSide = ceil(spans * parts / sides)
    isParted = parts > 1
    split = DirectSplit(chunk, across, together, sides, isParted)
    return split, DirectCounts(parts, perSide, tiles), sides * sweeps * perSide


def sidesOf(of: DirectConvolution) -> int:
    """The number of sides that the images are split into before the weights. With two, weights are read twice, but a
    thread keeps the same part of the images in its cache for all steps."""
    outChannels = of.rows * of.lines[2].count * (of.inChannels + of.outChannels) * of.groups
    return SIDES if of.packed <= MAX_WEIGHTS_PER_ELEMENT * outChannels and not of.isCopied else 1


class DirectSplit(NamedTuple):
    """The split of the outputs into tasks: rows, tiles of a row and panels of each; see `sidesOf`."""

    chunk: int
    across: int
    together: int
    sides: int
    isParted: bool  # rows of tiles are split
