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

from puregraph.ops.convolution.native.directspec import DirectConvolution, DirectSplit, splitOf, twoTiles
from puregraph.ops.convolution.native.padcopy import copyRow, interleaveRow, paddedRows
from puregraph.ops.convolution.native.registertiling import RegisterTile
from puregraph.ops.convolution.native.taploops import SingleIteration, tapBounds, tapRuns
from puregraph.ops.native.llvm.bfloatpairs import pairDot
from puregraph.ops.native.llvm.instructions import IRPointer, IRType, IRValue, IRVariable
from puregraph.ops.native.llvm.irbuilder import IRBuilder
from puregraph.ops.native.llvm.kernelcall import EpilogueSpec, KernelCall, madeFor

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from typing import Any


MAX_UNROLLED_PRODUCTS = 64  # products up to which a loop is unrolled
MAX_CHAIN_PRODUCTS = 256  # products of an output from which on they are summed in several chains
SHORT = 256  # products that need no loop


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
