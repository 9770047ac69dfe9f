"""Direct convolution, channels last, for forward passes and data gradients.

A register tile has some pixels of one output row times a panel of output channels. For each row of taps, the inputs of
a pixel are contiguous; each is broadcast and multiplied by the weights of the panel, which are packed in the order in
which they are read. Taps outside the image are left out, never multiplied by zeros.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from math import ceil, prod
from typing import TYPE_CHECKING, NamedTuple

from puregraph.core.opensize import decided
from puregraph.ops.convolution.native.geometry import AxisMap
from puregraph.ops.convolution.native.padcopy import copyRow, interleaveRow, paddedRows
from puregraph.ops.convolution.native.registertiling import RegisterTile, tile
from puregraph.ops.native.llvm.bfloatpairs import pairDot
from puregraph.ops.native.llvm.instructions import SIZES, IRPointer, IRType, IRValue, IRVariable
from puregraph.ops.native.llvm.irbuilder import IRBuilder
from puregraph.ops.native.llvm.kernelcall import EpilogueSpec, KernelCall, madeFor

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from typing import Any


MIN_TASK_MULTIPLICATIONS = 1 << 19  # fewest multiplications of a task, unless there is only one
MAX_DIRECT_TASKS = 64  # maximum number of tasks
SIDES = 2  # parts that the images are split into, see `sidesOf`
MAX_WEIGHTS_PER_ELEMENT = 4  # maximum number of weights per element of the images for which images are split
MAX_UNROLLED_PRODUCTS = 64  # products up to which a loop is unrolled
MIN_UNPADDED_CHANNELS = 8  # input channels below which inputs are copied with their padding
LONG_ROW_PIXELS = 1024  # pixels of a row that is too long to copy
MAX_CHAIN_PRODUCTS = 256  # products of an output from which on they are summed in several chains
SHORT = 256  # products that need no loop


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


def edgeTaps(line: AxisMap) -> tuple[int, ...]:
    """The first and the last tap: if these are inside the image, all are."""
    return (0, len(line.taps) - 1) if line.taps else ()


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


class TapRun(NamedTuple):
    """Tiles of a row, from `start` to `stop`, that have the same taps; `skip` pixels belong to the tile before."""

    start: int
    stop: int
    skip: int
    inside: tuple[tuple[int, ...], ...]  # the pixels that have each tap


def tapRuns(line: AxisMap, pixels: int) -> list[TapRun]:
    """The tiles of a row, as runs with the same taps."""
    runs: list[TapRun] = []
    tiles, taps = ceil(line.count / pixels), range(len(line.taps))
    allPixels = (tuple(range(pixels)),) * len(taps)
    i = 0
    while i < tiles:
        first = min(i * pixels, line.count - pixels)
        skip = i * pixels - first
        kind = TapRun(i, i + 1, skip, allPixels)
        if all(line.isInside(a, t) for a in (first, first + pixels - 1) for t in edgeTaps(line)):
            # inside, like all tiles up to the last one whose taps are all inside the image
            last = (line.length - 1 - line.first - (len(taps) - 1) * line.step) // line.stride + 1
            if not skip:
                kind = kind._replace(stop=max(i + 1, min(last, line.count) // pixels))
        else:
            inside = tuple(tuple(p for p in range(pixels) if line.isInside(first + p, t)) for t in taps)
            kind = kind._replace(inside=inside)
        i = kind.stop
        if runs and runs[-1][2:] == kind[2:]:
            kind = kind._replace(start=runs.pop().start)
        runs.append(kind)
    return runs


def directConvolution(
    name: str, of: DirectConvolution, x: Any, xPixel: int, packed: Any, epilogue: EpilogueSpec, skip: int = 0
) -> KernelCall:
    """y = the correlation of x, with pixels `xPixel` elements apart, and the weights at `skip` in `packed`.

    Where x `isCopied`, it may also be stored as NCHW, with an `xPixel` of 1.
    """

    def make(of: DirectConvolution) -> KernelCall:
        t, (split, counts, tasks) = of.tile, splitOf(of)
        slots = {"x": x, "b": packed, "skip": skip, "origin": of.origin, **epilogue.slots}
        slots |= {"rows": of.rows, "chunk": split.chunk, "across": split.across, **counts._asdict()}
        # the taps matter only for packing, so all phases of equal size share a kernel, and so do all numbers of samples
        one = twoTiles(of) if of.isRow else of
        lines = [(*line._replace(taps=(), start=0), len(line.taps)) for line in one.lines]
        stored = split if of.isCopied or t.block < of.inChannels else split._replace(chunk=0, across=0)
        sizes = of._replace(n=0, lines=())  # type: ignore[arg-type]
        key = f"correlate {sizes} {lines} {xPixel} {t} {stored} {epilogue.key}"

        def write(code: IRBuilder) -> None:
            DirectWriter(code, one, t, xPixel, epilogue, split).write()

        return KernelCall(f"{name} in bfloat16" if of.halves else name, key, write, slots, tasks, of.halves)

    return madeFor(make, of)


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


class DirectWriter:
    """Writes the kernel of a direct convolution."""

    x: IRPointer

    def __init__(
        self,
        code: IRBuilder,
        of: DirectConvolution,
        t: RegisterTile,
        xPixel: int,
        epilogue: EpilogueSpec,
        split: DirectSplit,
    ):
        self.code, self.of, self.tile, self.pixel, self.epilogue = code, of, t, xPixel, epilogue
        self.xPixel = xPixel
        self.split, self.panels = split, ceil(of.outChannels / t.width)
        self.blocks = of.inChannels // t.block
        self.starts = [sum(t.vectors[:v]) for v in range(len(t.vectors))]
        self.inner = of.lines
        if of.isCopied:
            _, high, wide = of.lines
            self.strip = paddedRows(split.chunk, high, wide, of.inChannels)
            sizes = len(of.lines[0].taps), self.strip.high, self.strip.wide
            deep, high, wide = (line._replace(length=size, first=0) for line, size in zip(of.lines, sizes))
            self.inner = deep._replace(stride=0, step=1), high._replace(count=split.chunk), wide
            self.xPixel = of.inChannels

    def copy(self, plane: IRValue, first: IRValue) -> None:
        """Copy the inputs of the task, with their padding."""
        code, (deep, high, wide) = self.code, self.of.lines
        copied = code.scratch(self.of.real, len(deep.taps) * self.strip.plane)
        n, d = (plane // deep.count, plane % deep.count) if deep.count > 1 else (plane, code.i64(0))
        with code.loop(0, len(deep.taps), unroll=1) as i, code.loop(0, self.strip.high, unroll=1) as j:
            deepAt, h = d * deep.stride + deep.first + i * deep.step, first * high.stride + high.first + j
            isInside = (deepAt >= 0) & (deepAt < deep.length) & (h >= 0) & (h < high.length)
            to = copied.at(i * self.strip.plane + j * self.strip.pitch)
            if self.pixel < self.of.inChannels:
                start = ((n * (self.of.inChannels * deep.length) + deepAt) * high.length + h) * wide.length
                size = deep.length * high.length * wide.length
                interleaveRow(code, self.strip, wide, self.x, start, size, isInside, to)
            else:
                start = ((n * deep.length + deepAt) * high.length + h) * (wide.length * self.pixel)
                copyRow(code, self.strip, wide, self.x, start, self.pixel, isInside, to)
        self.x = copied

    def write(self) -> None:
        code, of, t = self.code, self.of, self.tile
        self.x, self.b = code.pointer("x", of.factor), code.pointer("b", of.factor)
        skip, self.origin = code.integer("skip"), code.integer("origin")
        self.epilogue.open(code)
        rows, chunk, across, parts, perSide = map(code.integer, ("rows", "chunk", "across", "parts", "perSide"))
        tiles, split = code.integer("tiles"), self.split
        panels = of.groups * self.panels
        sweeps = ceil(panels / split.together)
        self.kinds = tapRuns(self.inner[2], t.pixels)
        self.kindStarts: list[IRValue | int] = [kind.start for kind in self.kinds]
        if of.isRow and len(self.kinds) > 1:
            self.kindStarts[-1] = tiles - 1
        if self.blocks > 1:
            self.sums = code.scratch(of.real, split.chunk * split.across * t.pixels * t.width)
        if self.isLong:
            self.totals = code.scratch(of.real, t.pixels * t.width)
        self.perRow, task = across, code.task
        sweep = task // perSide % sweeps
        index = task % perSide + (task // (perSide * sweeps) * perSide if split.sides > 1 else 0)
        part, span = (index % parts, index // parts) if split.isParted else (code.i64(0), index)
        if of.isCopied:
            spans = ceil(of.lines[1].count / split.chunk)
            plane, span = span // spans, span % spans
            self.firstRow = plane * of.lines[1].count + span * split.chunk
            lastRow = code.min(self.firstRow + split.chunk, (plane + 1) * of.lines[1].count)
            self.copy(plane, span * split.chunk)
        else:
            self.firstRow = span * chunk
            lastRow = code.min(self.firstRow + chunk, rows)
        self.firstTile = part * across
        self.lastTile = code.min(self.firstTile + across, tiles)
        firstPanel = sweep * split.together
        with code.loop(firstPanel, code.min(firstPanel + split.together, panels), unroll=1) as panel:
            group, o = (None, panel * t.width)
            if of.groups > 1:
                group, o = panel // self.panels, panel % self.panels * t.width
            self.column = o if group is None else group * of.outChannels + o
            self.masks = [
                code.mask(of.outChannels - o - start, width) if of.outChannels % t.width else None
                for start, width in zip(self.starts, t.vectors)
            ]
            with code.loop(0, self.blocks, unroll=1) if self.blocks > 1 else SingleIteration(code) as block:
                self.block = block
                self.weights = (panel * self.blocks + block) * (of.taps * t.block * t.width) + skip
                self.inputs = block * t.block if group is None else group * of.inChannels + block * t.block
                with code.loop(self.firstRow, lastRow, unroll=1) as row:
                    self.row(row)

    def row(self, row: IRValue) -> None:
        """Compute an output row."""
        code, (deep, high, wide) = self.code, self.of.lines
        self.firstSum = (row - self.firstRow) * self.perRow - self.firstTile
        n = row
        d = h = code.i64(0)
        if high.count > 1:
            h, n = row % high.count, row // high.count
        if deep.count > 1:
            d, n = n % deep.count, n // deep.count
        out = (n * deep.full + d * deep.skip) * high.full + h * high.skip
        self.bounds = [tapBounds(code, line, a) for line, a in zip(self.inner, (d, h))]
        if self.of.isCopied:
            self.source = (row - self.firstRow) * high.stride
        else:
            d, h = d * deep.stride + deep.first, h * high.stride + high.first
            self.source = (n * deep.length + d) * high.length + h
        self.out = out * wide.full + self.origin
        self.tiles()

    def tiles(self) -> None:
        """The loop over the tiles of a row, or of the task's part of it."""
        code, t, (deep, high, wide) = self.code, self.tile, self.inner
        with code.loop(self.firstTile, self.lastTile, unroll=1) as i:
            a = self.ofKind(i, [code.i64(-kind.skip) for kind in self.kinds]) + i * t.pixels
            sums = self.begin()
            if self.isLong:
                self.put(sums, self.totals)
            runs = self.runs(i)
            with ExitStack() as loops:
                d, h = (loops.enter_context(self.taps(limits)) for limits in self.bounds)
                at = self.source + h * high.step + d * (deep.step * high.length)
                at = (at * wide.length + (a * wide.stride + wide.first)) * self.xPixel + self.inputs
                weights = (d * len(high.taps) + h) * (len(wide.taps) * t.block * t.width)
                for run in runs:
                    self.run(run, sums, at, weights + self.weights)
                if self.isLong:
                    self.gather(sums)
            if self.isLong:
                self.take(sums, self.totals)
            self.end(sums, i, a)

    def ofKind(self, i: IRValue, values: list[IRValue]) -> IRValue:
        """The value for the run that contains tile i."""
        selected = values[0]
        for start, before, value in zip(self.kindStarts[1:], values, values[1:]):
            if value.name != before.name:
                selected = self.code.select(i >= start, value, selected)
        return selected

    def taps(self, limits: tuple[IRValue, IRValue] | None) -> AbstractContextManager:
        return self.code.loop(*limits, unroll=1) if limits else SingleIteration(self.code)

    def runs(self, i: IRValue) -> list[Run]:
        """The tap ranges of a row that apply to the same pixels, in the order of taps."""
        ordered = []
        for pixels in {pixels: None for kind in self.kinds for pixels in kind.inside if pixels}:
            taps = [[k for k, inside in enumerate(kind.inside) if inside == pixels] for kind in self.kinds]
            order = sum(map(sum, taps)) / sum(map(len, taps))
            limits = [(min(indices, default=0), max(indices, default=-1) + 1) for indices in taps]
            start, stop = (self.ofKind(i, [self.code.i64(limit[side]) for limit in limits]) for side in (0, 1))
            same = limits[0] if len(set(limits)) == 1 else None
            ordered.append((order, Run(pixels, start, stop, same)))
        return [run for _, run in sorted(ordered, key=lambda entry: entry[0])]

    def begin(self) -> list[list[IRVariable]]:
        """The accumulators of a tile: zeros."""
        code, t, real = self.code, self.tile, self.of.real
        return [[code.variable(code.constant(0, IRType(real, width))) for width in t.vectors] for _ in range(t.pixels)]

    @property
    def isLong(self) -> bool:
        """True if each row of taps is summed separately: rounding errors grow with the root of the chain length."""
        rows = prod(len(line.taps) for line in self.of.lines[:2])
        return rows > 1 and self.of.taps * self.tile.block >= MAX_CHAIN_PRODUCTS

    def offsets(self, sums: list[list[IRVariable]]) -> Iterator[tuple[int, IRVariable]]:
        """The offset of each accumulator within its tile."""
        for p, row in enumerate(sums):
            for at, variable in zip(self.starts, row):
                yield p * self.tile.width + at, variable

    def take(self, sums: list[list[IRVariable]], address: IRPointer) -> None:
        """Add stored sums to the accumulators."""
        for at, variable in self.offsets(sums):
            variable.value = address.load(at, variable.type.lanes) + variable.value

    def put(self, sums: list[list[IRVariable]], address: IRPointer) -> None:
        """Store the accumulators."""
        for at, variable in self.offsets(sums):
            address.store(at, variable.value)

    def gather(self, sums: list[list[IRVariable]]) -> None:
        """Add the accumulators to the totals, and reset them."""
        self.take(sums, self.totals)
        self.put(sums, self.totals)
        for _, variable in self.offsets(sums):
            variable.value = self.code.constant(0, variable.type)

    def kept(self, i: IRValue) -> IRPointer:
        """The address of a tile's sums, stored between blocks of inputs."""
        return self.sums.at((self.firstSum + i) * (self.tile.pixels * self.tile.width))

    def run(self, run: Run, sums: list[list[IRVariable]], at: IRValue, weights: IRValue) -> None:
        """The taps of one row that some pixels have."""
        t, wide = self.tile, self.inner[2]
        step, size = wide.step * self.xPixel, t.block * t.width
        if wide.step == 1 and self.xPixel == t.block:
            self.products(run, sums, at, weights, t.block)
        elif run.same and run.same[1] == run.same[0] + 1:
            tap = run.same[0]
            self.products(run._replace(same=(0, 1)), sums, at + tap * step, weights + tap * size, t.block)
        else:
            with self.code.loop(run.start, run.stop, unroll=1) as k:
                self.products(run._replace(same=(0, 1)), sums, at + k * step, weights + k * size, t.block)

    def products(self, run: Run, sums: list[list[IRVariable]], x: IRValue, b: IRValue, block: int) -> None:
        """Add the inputs of some taps of each pixel times their weights."""
        code, t = self.code, self.tile
        step, first = self.of.lines[2].stride * self.xPixel, run.pixels[0]
        size = len(run.pixels) * len(t.vectors)
        start, stop = (code.i64(k * block) for k in run.same) if run.same else (run.start * block, run.stop * block)
        length = (run.same[1] - run.same[0]) * block if run.same else 0
        unroll = max(u for u in range(1, 9) if block % u == 0 and (u == 1 or u * size <= MAX_UNROLLED_PRODUCTS))
        if 0 < length * size <= SHORT:
            unroll = length
        with code.loop(start, stop, unroll, unroll=1) if unroll != length else SingleIteration(code, start) as j:
            inputs, weights = self.x.at(x + j + first * step), self.b.at(b + j * t.width)
            now = {p: [variable.value for variable in sums[p]] for p in run.pixels}
            for u in range(unroll):
                rows = [weights.load(u * t.width + start, width) for start, width in zip(self.starts, t.vectors)]
                for p in run.pixels:
                    factor = inputs.load(u + (p - first) * step)
                    splats = [(code.splat(factor, w.lanes), w) for w in rows]
                    if self.of.halves:
                        now[p] = [pairDot(code, s, *factors) for factors, s in zip(splats, now[p])]
                    else:
                        now[p] = [code.fma(*factors, s) for factors, s in zip(splats, now[p])]
            for p in run.pixels:
                for variable, value in zip(sums[p], now[p]):
                    variable.value = value

    def end(self, sums: list[list[IRVariable]], i: IRValue, a: IRValue) -> None:
        """Store the sums for the next block of inputs, or give them to the epilogue."""
        code, wide, skip = self.code, self.of.lines[2], self.kinds[-1].skip
        if self.blocks > 1:
            with code.when(self.block > 0):
                self.take(sums, self.kept(i))
            with code.when(self.block < self.blocks - 1):
                self.put(sums, self.kept(i))
        with code.when(self.block == self.blocks - 1) if self.blocks > 1 else SingleIteration(code):
            for pixels in (range(skip), range(skip, len(sums))):
                with code.when(i < self.kindStarts[-1]) if pixels.start < skip else SingleIteration(code):
                    for p in pixels:
                        row = self.out + (a + p) * wide.skip
                        for start, mask, variable in zip(self.starts, self.masks, sums[p]):
                            self.epilogue.put(code, row, self.column + start, variable.value, mask)


class Run(NamedTuple):
    """The taps of a row, from `start` to `stop`, that apply to `pixels`; `same`: both as constants, if tiles agree."""

    pixels: tuple[int, ...]
    start: IRValue
    stop: IRValue
    same: tuple[int, int] | None


class SingleIteration:
    """A loop of one iteration: the body runs without a loop, with a constant index."""

    def __init__(self, code: IRBuilder, index: IRValue | None = None):
        self.index = code.i64(0) if index is None else index

    def __enter__(self) -> IRValue:
        return self.index

    def __exit__(self, *error: object) -> None:
        pass


def tapBounds(code: IRBuilder, line: AxisMap, a: IRValue) -> tuple[IRValue, IRValue] | None:
    """The range of taps with which an output has inputs; None if there is one tap, which is always inside."""
    taps = len(line.taps)
    if all(line.isInside(i, t) for i in (0, line.count - 1) for t in (0, taps - 1)) and taps:
        return None if taps == 1 else (code.i64(0), code.i64(taps))
    first = a * line.stride + line.first
    start = code.select(first < 0, (line.step - 1 - first) // line.step, 0)
    left = line.length - 1 - first
    stop = code.select(left < 0, 0, left // line.step + 1)
    return code.min(start, taps), code.min(stop, taps)


def outputsOf(code: IRBuilder, line: AxisMap, tap: IRValue, start: IRValue, stop: IRValue) -> tuple[IRValue, IRValue]:
    """The range of outputs from `start` to `stop` that have an input for a tap."""
    first = line.first + tap * line.step
    if line.first >= 0 and line.isInside(line.count - 1, len(line.taps) - 1):
        return start, stop
    low = code.select(first < 0, (line.stride - 1 - first) // line.stride, 0)
    left = line.length - 1 - first
    high = code.select(left < 0, 0, left // line.stride + 1)
    return code.select(low > start, low, start), code.min(high, stop)
