"""The weight gradient of a direct convolution, channels last.

dW[o, c, t] = sum over pixels of grad[pixel, o] x[pixel stride + t, c]. A register tile of input channels times vectors
of output channels accumulates over the pixels of a strip; between strips, which are small enough to stay in L1 for all
taps, the sums are stored in scratch memory. Where there are too few tiles for the tasks, the samples are split into
parts whose partial sums are added in the end, always the same parts in the same order.

Few input channels fill no tile: then a strip is copied with its padding, and a tile has the inputs of a row of taps.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from math import ceil, prod
from typing import TYPE_CHECKING, Any, NamedTuple

from puregraph.core.opensize import decided
from puregraph.ops.convolution.native.direct import SingleIteration, outputsOf
from puregraph.ops.convolution.native.geometry import AxisMap, Geometry, forwardLine
from puregraph.ops.convolution.native.padcopy import copyRow, paddedRows
from puregraph.ops.convolution.native.registertiling import LATENCY, registers, vectorsOf
from puregraph.ops.native.llvm import jit
from puregraph.ops.native.llvm.instructions import SIZES, IRPointer, IRType, IRValue
from puregraph.ops.native.llvm.irbuilder import IRBuilder
from puregraph.ops.native.llvm.kernelcall import KernelCall, madeFor
from puregraph.ops.native.llvm.registertranspose import transposed

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from puregraph.core.protocols import Strided
    from puregraph.ops.ir.value import Value

MIN_TASK_MULTIPLICATIONS = 1 << 20  # fewest multiplications of a task
MAX_GRADIENT_TASKS = 16  # the samples are split into parts until there are this many tasks
MIN_UNCOPIED_CHANNELS = 8  # input channels below which strips are copied
STRIP_BYTES = 24 << 10  # bytes of x and grad that a tile reads from one strip
KEPT_SUMS_BYTES = 160 << 10  # bytes of sums that a task keeps
MAX_UNROLLED_PARTS = 8  # maximum number of parts of a row of taps that are unrolled; more of them take a loop


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


def specOf(g: Geometry) -> WeightGradSpec:
    """The sums of the weight gradient of a convolution."""
    lines = tuple(forwardLine(axis) for axis in g.axes)
    return WeightGradSpec(g.n, g.c // g.groups, g.o // g.groups, g.groups, lines, g.real)  # type: ignore[arg-type]


@decided
def partsOf(g: Geometry) -> int:
    """The parts that the sums are split into."""
    return specOf(g).plan().parts


def weightWorkspace(g: Geometry) -> int:
    """Elements of workspace for the partial sums of the gradient."""
    parts = partsOf(g)
    return 0 if parts == 1 else parts * g.o * (g.c // g.groups) * g.taps


def weightGradient(
    grad: Value,
    x: Value,
    dW: Value,
    workspace: Value,
    g: Geometry,
    gradPixel: int | None = None,
    xPixel: int | None = None,
) -> list[KernelCall]:
    """dW (o, c / groups, *size) from grad (n, *count, o) and x (n, *spatial, c), with strides of pixels."""
    of, parts = specOf(g), partsOf(g)
    gradPixel, xPixel = gradPixel or g.o, xPixel or g.c
    isSplit = parts > 1

    def make(of: WeightGradSpec) -> KernelCall:
        plan = of.plan()
        tiles = 1 if of.isFew else ceil(of.inChannels / plan.rows)
        panels = ceil(of.outChannels / plan.width)
        tasks = of.groups * ceil(panels / plan.panels) * ceil(tiles / plan.tiles) * plan.parts
        key = f"convdw {of._replace(n=0)} {plan._replace(parts=0)} {isSplit} {gradPixel} {xPixel}"

        def write(code: IRBuilder) -> None:
            (TapRowTiles if of.isFew else OneTapTiles)(code, of, plan, gradPixel, xPixel).write()

        slots: dict[str, Any] = {"g": grad, "x": x, "to": workspace if isSplit else dW}
        slots |= {"planes": of.planes, "strips": plan.strips(of), "parts": plan.parts}
        return KernelCall(f"conv dW {g.text}", key, write, slots, tasks)

    calls = [madeFor(make, of)]
    if isSplit:
        size = g.o * (g.c // g.groups) * g.taps
        calls.append(addParts(f"sum dW {g.text}", workspace, dW, size, parts, g.real))
    return calls


def addParts(name: str, workspace: Strided, to: Any, size: int, parts: int, real: str = "f32") -> KernelCall:
    """to = the sum of the partial sums, in order."""
    lanes = jit.lanes(SIZES[real])
    chunk = max(4 * lanes, ceil(size / 16 / lanes) * lanes)

    def write(code: IRBuilder) -> None:
        source, y, count = code.pointer("parts", real), code.pointer("y", real), code.integer("size")
        end = count * code.integer("count")
        first = code.task * chunk
        with code.loop(first, code.min(first + chunk, count), lanes) as i:
            live = code.mask(count - i, lanes)
            total = code.variable(source.load(i, lanes, live))
            with code.loop(count, end, count) as part:
                total.value = total.value + source.load(part + i, lanes, live)
            y.store(i, total.value, live)

    slots = {"parts": workspace, "y": to, "size": size, "count": parts}
    return KernelCall(name, f"parts {chunk} {real}", write, slots, ceil(size / chunk))


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


def overTaps(code: IRBuilder, line: AxisMap) -> AbstractContextManager:
    """A loop over the taps of an axis; the body once where there is only one."""
    return SingleIteration(code) if len(line.taps) == 1 else code.loop(0, len(line.taps), unroll=1)
