"""The code of the weight gradient of a direct convolution: the loops of a task, and its register tiles."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from math import ceil
from typing import Any

from puregraph.ops.convolution.native.padcopy import copyRow, paddedRows
from puregraph.ops.convolution.native.taploops import SingleIteration, outputsOf, overTaps
from puregraph.ops.convolution.native.weightgradspec import WeightGradSpec, WeightGradSplit
from puregraph.ops.native.llvm.instructions import IRPointer, IRType, IRValue
from puregraph.ops.native.llvm.irbuilder import IRBuilder
from puregraph.ops.native.llvm.registertranspose import transposed

MAX_UNROLLED_PARTS = 8  # maximum number of parts of a row of taps that are unrolled; more of them take a loop


class WeightGradWriter:
    """Writes the kernel: the strips of a task, and the memory of its sums."""

    allSums: IRPointer
    copied: IRPointer

    def __init__(self, code: IRBuilder, of: WeightGradSpec, plan: WeightGradSplit, gradPixel: int, xPixel: int):
        self.code, self.of, self.plan, self.gradPixel, self.xPixel = code, of, plan, gradPixel, xPixel
        self.starts = [sum(plan.vectors[:v]) for v in range(len(plan.vectors))]

    def write(self) -> None:
        code, of, plan = self.code, self.of, self.plan
        self.g, self.x, to = (code.pointer(name, of.real) for name in ("g", "x", "to"))
        allPlanes, strips, parts = map(code.integer, ("planes", "strips", "parts"))
        panels, tiles = ceil(of.outChannels / plan.width), 1 if of.isFew else ceil(of.inChannels / plan.rows)
        sweeps = ceil(tiles / plan.tiles)
        task = code.task
        sides = ceil(panels / plan.panels)
        perPart = of.groups * sides * sweeps  # tasks of the same samples follow one another
        part, task = (task // perPart, task % perPart) if plan.parts > 1 else (code.i64(0), task)
        sweep, task = (task % sweeps, task // sweeps) if sweeps > 1 else (code.i64(0), task)
        side, self.group = (task % sides, task // sides) if of.groups > 1 else (task, code.i64(0))
        self.to = to.at(part * (of.groups * of.outChannels * of.inChannels * of.taps)) if plan.parts > 1 else to
        self.firstPanel = side * plan.panels
        self.lastPanel = code.min(self.firstPanel + plan.panels, panels)
        self.firstTile = sweep * plan.tiles
        self.lastTile = code.min(self.firstTile + plan.tiles, tiles)
        self.prepare()
        with code.loop(0, self.kept, 16, unroll=1) as i:
            self.allSums.store(i, code.constant(0, IRType(of.real, 16)))
        tall = max(1, ceil(of.lines[1].count / plan.high))
        with code.loop(part * strips // parts, (part + 1) * strips // parts, unroll=1) as strip:
            planes = strip // tall * plan.planes if tall > 1 else strip * plan.planes
            high = strip % tall * plan.high if tall > 1 else code.i64(0)
            self.strip(
                (planes, code.min(planes + plan.planes, allPlanes)),
                (high, code.min(high + plan.high, of.lines[1].count)),
            )
        with self.overPanels():
            self.writeGradient()

    @contextmanager
    def overPanels(self) -> Iterator[None]:
        """The loop over the panels of a task: the first output channel, the masks and the sums of each."""
        code, of, plan = self.code, self.of, self.plan
        loop = (
            code.loop(self.firstPanel, self.lastPanel, unroll=1)
            if plan.panels > 1
            else SingleIteration(code, self.firstPanel)
        )
        with loop as panel:
            self.o = panel * plan.width
            self.masks = [
                code.mask(of.outChannels - self.o - start, width) if of.outChannels % plan.width else None
                for start, width in zip(self.starts, plan.vectors)
            ]
            self.sums = self.allSums.at((panel - self.firstPanel) * (self.kept // plan.panels))
            yield

    def allocate(self, count: int) -> IRPointer:
        self.kept = ceil(count / 16) * 16 * self.plan.panels
        return self.code.scratch(self.of.real, self.kept)

    def prepare(self) -> None:
        raise NotImplementedError

    def strip(self, planes: tuple[IRValue, IRValue], high: tuple[IRValue, IRValue]) -> None:
        raise NotImplementedError

    def writeGradient(self) -> None:
        raise NotImplementedError

    def planeLoop(
        self, loops: ExitStack, planes: tuple[IRValue, IRValue], tap: IRValue
    ) -> tuple[IRValue, IRValue, IRValue]:
        """The loop over planes: the plane of grad, the plane of x for a tap of the first axis, and whether it is
        inside."""
        code, deep = self.code, self.of.lines[0]
        plane = loops.enter_context(code.loop(*planes, unroll=1))
        if deep.count == deep.length == len(deep.taps) == 1:
            return plane, plane, plane
        n, a = plane // deep.count, plane % deep.count
        d = a * deep.stride + (deep.first + tap * deep.step)
        return plane, n * deep.length + d, (d >= 0) & (d < deep.length)

    def sum(self, offset: IRValue | int, rows: int, offsets: list[Any], loop: Any) -> None:
        """Add a register tile to the sums at an offset; `loop(body)` calls body(x index, g index) for each pixel."""
        code, plan = self.code, self.plan
        zeros = [code.constant(0, IRType(self.of.real, width)) for width in plan.vectors]
        sums = [[code.variable(zero) for zero in zeros] for _ in range(rows)]

        def body(x: IRValue, g: IRValue) -> None:
            taken = [self.g.load(g + start, width, mask) for start, width, mask in self.columns()]
            for m, offset in enumerate(offsets):
                factor = self.x.load(x + offset) if not self.of.isFew else self.copied.load(x + offset)
                for variable, vector in zip(sums[m], taken):
                    variable.value = code.fma(code.splat(factor, vector.lanes), vector, variable.value)

        loop(body)
        for m, row in enumerate(sums):
            for start, width, variable in zip(self.starts, plan.vectors, row):
                total = self.sums.at(code.i64(offset) + (m * plan.width + start))
                total.store(0, total.load(0, width) + variable.value)

    def columns(self) -> Any:
        return zip(self.starts, self.plan.vectors, self.masks)

    def weightAt(self, lane: IRValue, c: IRValue, tap: IRValue) -> IRValue:
        of = self.of
        return ((self.group * of.outChannels + self.o + lane) * of.inChannels + c) * of.taps + tap


class OneTapTiles(WeightGradWriter):
    """Tiles of input channels, for one tap after the other."""

    def prepare(self) -> None:
        self.allSums = self.allocate(self.plan.tiles * self.of.taps * self.plan.rows * self.plan.width)

    def first(self, tile: IRValue) -> IRValue:
        """The first input channel of a tile: the last tile may overlap the one before."""
        return self.code.min(tile * self.plan.rows, self.of.inChannels - self.plan.rows)

    def strip(self, planes: tuple[IRValue, IRValue], high: tuple[IRValue, IRValue]) -> None:
        code, plan, (_, tall, wide) = self.code, self.plan, self.of.lines
        with ExitStack() as loops:
            loops.enter_context(self.overPanels())
            tile = loops.enter_context(code.loop(self.firstTile, self.lastTile, unroll=1))
            i, j, k = (loops.enter_context(overTaps(code, line)) for line in self.of.lines)
            tap = (i * len(tall.taps) + j) * len(wide.taps) + k
            offset = ((tile - self.firstTile) * self.of.taps + tap) * (plan.rows * plan.width)
            first, stop = outputsOf(code, tall, j, *high)
            left, right = outputsOf(code, wide, k, code.i64(0), code.i64(wide.count))
            inputs = self.first(tile) + self.group * self.of.inChannels
            outputs = self.o + self.group * self.of.outChannels

            def loop(body: Any) -> None:
                with ExitStack() as inner:
                    plane, source, isInside = self.planeLoop(inner, planes, i)
                    if isInside is not plane:
                        inner.enter_context(code.when(isInside))
                    a = inner.enter_context(code.loop(first, stop, unroll=1))
                    h = a * tall.stride + (tall.first + j * tall.step)
                    row = (source * tall.length + h) * wide.length + (wide.first + k * wide.step)
                    g = (plane * tall.count + a) * wide.count
                    b = inner.enter_context(code.loop(left, right, unroll=1))
                    body(
                        (row + b * wide.stride) * self.xPixel + inputs,
                        (g + b) * self.gradPixel + outputs,
                    )

            self.sum(offset, plan.rows, list(range(plan.rows)), loop)

    def writeGradient(self) -> None:
        """Store the filters of a tile, transposed in square tiles from vectors along outputs to OIHW."""
        code, of, plan = self.code, self.of, self.plan
        with code.loop(self.firstTile, self.lastTile, unroll=1) as tile:
            first = self.first(tile)
            skip = (tile * plan.rows - first) * of.taps
            for start, width in zip(self.starts, plan.vectors):
                sums = self.sums.at((tile - self.firstTile) * (of.taps * plan.rows * plan.width) + start)
                to = self.to.at(self.weightAt(code.i64(start), first, code.i64(0)))
                with code.loop(skip, plan.rows * of.taps, width, unroll=1) as m:
                    self.square(sums, to, m, start, width)

    def square(self, sums: IRPointer, to: IRPointer, m: IRValue, start: int, width: int) -> None:
        """A square tile: the elements from m on of the filters of some lanes."""
        code, of, plan = self.code, self.of, self.plan
        end = plan.rows * of.taps
        indices = [code.min(m + k, end - 1) for k in range(width)]
        rows = [sums.load((at % of.taps * plan.rows + at // of.taps) * plan.width, width) for at in indices]
        live = code.mask(end - m, width)
        for lane, value in enumerate(transposed(code, rows)):
            with (
                code.when(self.o + (start + lane) < of.outChannels)
                if of.outChannels % plan.width
                else SingleIteration(code)
            ):
                to.store(m + lane * (of.inChannels * of.taps), value, live)


class TapRowTiles(WeightGradWriter):
    """Tiles of the inputs of rows of taps, from a copy of the strip with its padding."""

    def prepare(self) -> None:
        of, plan = self.of, self.plan
        _, tall, wide = of.lines
        self.allSums = self.allocate(of.taps * of.inChannels * plan.width)
        self.isWhole = plan.rows == len(tall.taps) * len(wide.taps) * of.inChannels
        self.size = paddedRows(plan.high, tall, wide, of.inChannels)
        self.copied = self.code.scratch(of.real, plan.planes * self.size.plane)

    def strip(self, planes: tuple[IRValue, IRValue], high: tuple[IRValue, IRValue]) -> None:
        code, of, plan, (deep, tall, wide) = self.code, self.of, self.plan, self.of.lines
        run = of.inChannels * len(wide.taps)
        with overTaps(code, deep) as i:
            self.copy(planes, high, i)
            with self.overPanels():
                if self.isWhole:
                    offsets = [
                        j * tall.step * self.size.pitch + o for j in range(len(tall.taps)) for o in self.offsets()
                    ]
                    offset = i * (len(offsets) * plan.width)
                    self.sum(offset, len(offsets), offsets, self.pixels(planes, high, code.i64(0)))
                    return
                with code.loop(0, len(tall.taps), unroll=1) as j:
                    for parts, size in self.chunks(run):
                        with parts as first:
                            offset = ((i * len(tall.taps) + j) * run + first) * plan.width
                            skip, offsets = self.offsetsFrom(first, size)
                            skip = j * (tall.step * self.size.pitch) + skip
                            self.sum(offset, size, offsets, self.pixels(planes, high, skip))

    def chunks(self, run: int) -> Iterator[tuple[Any, int]]:
        """The parts of a row of taps, each as a loop over the first elements of parts of one size, and this size."""
        code, rows = self.code, self.plan.rows
        count = ceil(run / rows)
        if count <= MAX_UNROLLED_PARTS:
            for chunk in range(count):
                begin, end = run * chunk // count, run * (chunk + 1) // count
                yield SingleIteration(code, code.i64(begin)), end - begin
            return
        stop = run // rows * rows
        yield code.loop(0, stop, rows, unroll=1), rows
        if stop < run:
            yield SingleIteration(code, code.i64(stop)), run - stop

    def offsets(self) -> list[int]:
        """The offsets of the inputs of a pixel in a row: by tap, then channel."""
        wide, c = self.of.lines[2], self.of.inChannels
        return [t * wide.step * c + i for t in range(len(wide.taps)) for i in range(c)]

    def offsetsFrom(self, first: IRValue, size: int) -> tuple[IRValue, list[Any]]:
        """The offset of element `first` of a row of taps, and those of the elements from there on, seen from it."""
        step, c = self.of.lines[2].step, self.of.inChannels
        if step == 1:
            return first, list(range(size))
        start = first // c * (step * c) + first % c
        return start, [(first + m) // c * (step * c) + (first + m) % c - start for m in range(size)]

    def pixels(self, planes: tuple[IRValue, IRValue], high: tuple[IRValue, IRValue], skip: IRValue) -> Any:
        code, of, (_, tall, wide) = self.code, self.of, self.of.lines

        def loop(body: Any) -> None:
            with ExitStack() as inner:
                plane = inner.enter_context(code.loop(*planes, unroll=1))
                a = inner.enter_context(code.loop(*high, unroll=1))
                x = (plane - planes[0]) * self.size.plane + (a - high[0]) * (tall.stride * self.size.pitch) + skip
                g = (plane * tall.count + a) * wide.count
                b = inner.enter_context(code.loop(0, wide.count, unroll=1))
                body(
                    x + b * (wide.stride * of.inChannels),
                    (g + b) * self.gradPixel + (self.o + self.group * of.outChannels),
                )

        return loop

    def copy(self, planes: tuple[IRValue, IRValue], high: tuple[IRValue, IRValue], tap: IRValue) -> None:
        """Copy the inputs of the strip, with zeros outside the image."""
        code, (deep, tall, wide) = self.code, self.of.lines
        with code.loop(*planes, unroll=1) as plane, code.loop(0, self.size.high, unroll=1) as i:
            h = high[0] * tall.stride + tall.first + i
            isInside, source = (h >= 0) & (h < tall.length), plane
            if not deep.count == deep.length == len(deep.taps) == 1:
                d = plane % deep.count * deep.stride + (deep.first + tap * deep.step)
                source = plane // deep.count * deep.length + d
                isInside = isInside & (d >= 0) & (d < deep.length)
            to = self.copied.at((plane - planes[0]) * self.size.plane + i * self.size.pitch)
            row = (source * tall.length + h) * wide.length * self.xPixel + self.group * self.of.inChannels
            copyRow(code, self.size, wide, self.x, row, self.xPixel, isInside, to)

    def writeGradient(self) -> None:
        code, of, plan = self.code, self.of, self.plan
        with ExitStack() as loops:
            lane = loops.enter_context(code.loop(0, code.min(of.outChannels - self.o, plan.width), unroll=1))
            tap = loops.enter_context(code.loop(0, of.taps, unroll=1))
            c = loops.enter_context(code.loop(0, of.inChannels, unroll=1))
            at = (tap * of.inChannels + c) * plan.width + lane
            self.to.store(self.weightAt(lane, c, tap), self.sums.load(at))
