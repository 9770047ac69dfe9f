"""Weightsum: the gradient of a convolution's weight, from arrays that lie channels last.

dW[o, c, t] = sum over pixels of grad[pixel, o] x[pixel stride + t, c]. A tile of input maps times vectors of output
maps stays in registers while the pixels of a strip run by; between strips, which are short enough to stay near the
core for all taps, the sums wait in scratch memory. Where there are fewer tiles than work, the samples are dealt to
parts whose sums are added in the end, always the same parts in the same order.

Few input maps fill no tile: then a strip is copied with its padding, and a tile is made of what one row of taps reads.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from math import ceil, prod
from typing import Any, NamedTuple

from puregraph.native.conv.direct import SingleIteration
from puregraph.native.conv.geometry import AxisMap, Geometry, forwardLine
from puregraph.native.conv.padcopy import copyRow, stripOf
from puregraph.native.conv.registertiling import LATENCY, registers, vectorsOf
from puregraph.native.llvm import jit
from puregraph.native.llvm.instructions import IRPointer, IRType, IRValue
from puregraph.native.llvm.irbuilder import IRBuilder
from puregraph.native.llvm.kernelcall import KernelCall
from puregraph.native.llvm.registertranspose import transposed

GRAIN = 1 << 20  # products that a task has at least
MOST = 16  # tasks that the samples are dealt to parts for
FEW = 8  # input maps below which strips are copied
NEAR = 24 << 10  # bytes of x and grad that a tile reads from one strip
KEPT = 160 << 10  # bytes of sums that a task keeps


class WeightGradSplit(NamedTuple):
    """How the sums are dealt out."""

    vectors: tuple[int, ...]
    rows: int  # numbers of x in a tile
    tiles: int  # tiles of a task
    panels: int  # panels of output maps of a task
    planes: int  # in a strip
    high: int  # rows of a plane in a strip
    parts: int

    @property
    def width(self) -> int:
        return sum(self.vectors)


class WeightGradSpec(NamedTuple):
    """What is summed: n samples, `depth` input and `maps` output maps in each group, along three Lines."""

    n: int
    depth: int
    maps: int
    groups: int
    lines: tuple[AxisMap, AxisMap, AxisMap]

    @property
    def taps(self) -> int:
        return prod(len(line.taps) for line in self.lines)

    @property
    def isFew(self) -> bool:
        return self.depth < FEW

    @property
    def planes(self) -> int:
        return self.n * self.lines[0].count

    def plan(self) -> WeightGradSplit:
        """How they are dealt out."""
        vectors, rows = tileOf(self, jit.lanes(4))
        deep, high, wide = self.lines
        pixels = max(1, NEAR // (4 * (sum(vectors) + rows)))
        plane = max(1, high.count * wide.count)
        planes = max(1, min(self.planes, pixels // plane))
        tall = high.count if planes > 1 else max(1, min(high.count, round(pixels / max(1, wide.count))))
        tall = ceil(high.count / max(1, ceil(high.count / max(1, tall))))
        strips = ceil(self.planes / planes) * ceil(high.count / max(1, tall))
        each = 4 * sum(vectors) * (self.taps * rows)
        tiles = 1 if self.isFew else ceil(self.depth / rows)
        panels = self.groups * ceil(self.maps / sum(vectors))
        together = max(1, min(tiles, KEPT // each, ceil(tiles * panels / MOST)))
        across = 1
        if self.groups == 1 and each * tiles * panels <= KEPT:
            across, together = panels, tiles
        tasks = ceil(panels / across) * ceil(tiles / together)
        work = self.n * prod(line.count for line in self.lines) * self.taps * self.depth * self.maps * self.groups
        parts = max(1, min(strips, ceil(MOST / tasks), work // GRAIN // tasks))
        return WeightGradSplit(vectors, rows, together, across, planes, tall, parts)

    def chunks(self, limit: int) -> list[int]:
        """With few maps: how many numbers of x each tile takes, for all rows of taps or for each."""
        run = self.depth * len(self.lines[2].taps)
        most = len(self.lines[1].taps)
        if run * most <= limit:
            return [run * most]
        count = ceil(run / limit)
        return [(run * (i + 1)) // count - (run * i) // count for i in range(count)] * most


@cache
def tileOf(of: WeightGradSpec, lanes: int) -> tuple[tuple[int, ...], int]:
    """Vectors of output maps, and numbers of x."""
    most = registers(lanes)
    best: Any = None
    for panels in range(1, ceil(of.maps / lanes) + 1):
        vectors = vectorsOf(ceil(ceil(of.maps / panels) / 4) * 4, lanes)
        v, width = len(vectors), sum(vectors)
        if v > 4 or (panels > 1 and width % lanes and of.maps % width):
            continue
        for limit in range(1, (most - v - 1) // v + 1):
            if of.isFew:
                sizes = of.chunks(limit)
            else:
                rows = ceil(of.depth / ceil(of.depth / limit))
                sizes = [rows] * ceil(of.depth / rows)
            units = sum(1 if each == lanes else 0.6 for each in vectors)
            price = sum(max(units * rows, 0.95 * (rows + v), LATENCY) + 0.3 for rows in sizes)
            price *= ceil(of.maps / width)
            if best is None or price < best[0]:
                best = price, vectors, max(sizes)
    return best[1], best[2]


def sumsOf(g: Geometry) -> WeightGradSpec:
    """The sums that make the gradient of the weights of a convolution."""
    lines = tuple(forwardLine(axis) for axis in g.axes)
    return WeightGradSpec(g.n, g.c // g.groups, g.o // g.groups, g.groups, lines)  # type: ignore[arg-type]


def weightRoom(g: Geometry) -> int:
    """Numbers of temporary memory for the parts of the gradient."""
    parts = sumsOf(g).plan().parts
    return 0 if parts == 1 else parts * g.o * (g.c // g.groups) * g.taps


def weightGradient(
    grad: Any, x: Any, dW: Any, room: Any, g: Geometry, gradPixel: int | None = None, xPixel: int | None = None
) -> list[KernelCall]:
    """dW (o, c / groups, *size) from grad (n, *count, o) and x (n, *spatial, c), pixels lying so many numbers apart."""
    of = sumsOf(g)
    plan = of.plan()
    size = g.o * (g.c // g.groups) * g.taps
    tiles = 1 if of.isFew else ceil(of.depth / plan.rows)
    panels = ceil(of.maps / plan.width)
    tasks = of.groups * ceil(panels / plan.panels) * ceil(tiles / plan.tiles) * plan.parts
    gradPixel, xPixel = gradPixel or g.o, xPixel or g.c
    key = f"convdw {of} {plan} {gradPixel} {xPixel}"

    def write(code: IRBuilder) -> None:
        (TapRowTiles if of.isFew else OneTapTiles)(code, of, plan, gradPixel, xPixel).write()

    to = dW if plan.parts == 1 else room
    works = [KernelCall(f"conv dW {g.text}", key, write, {"g": grad, "x": x, "to": to}, tasks)]
    if plan.parts > 1:
        works.append(together(f"sum dW {g.text}", room, dW, size, plan.parts))
    return works


def together(name: str, room: Any, to: Any, size: int, parts: int) -> KernelCall:
    """to = the sum of the parts, in order."""
    lanes = jit.lanes(4)
    chunk = max(4 * lanes, ceil(size / 16 / lanes) * lanes)

    def write(code: IRBuilder) -> None:
        source, y, count = code.pointer("parts", "f32"), code.pointer("y", "f32"), code.integer("size")
        first = code.task * chunk
        with code.loop(first, code.min(first + chunk, count), lanes) as i:
            live = code.mask(count - i, lanes)
            total = source.load(i, lanes, live)
            for part in range(1, parts):
                total = total + source.load(count * part + i, lanes, live)
            y.store(i, total, live)

    return KernelCall(name, f"parts {parts} {chunk}", write, {"parts": room, "y": to, "size": size}, ceil(size / chunk))


class WeightGradWriter:
    """Writes the code: which strips a task sums, and where the sums go."""

    def __init__(self, code: IRBuilder, of: WeightGradSpec, plan: WeightGradSplit, gradPixel: int, xPixel: int):
        self.code, self.of, self.plan, self.gradPixel, self.xPixel = code, of, plan, gradPixel, xPixel
        self.starts = [sum(plan.vectors[:v]) for v in range(len(plan.vectors))]

    def write(self) -> None:
        code, of, plan = self.code, self.of, self.plan
        self.g, self.x, to = code.pointer("g", "f32"), code.pointer("x", "f32"), code.pointer("to", "f32")
        panels, tiles = ceil(of.maps / plan.width), 1 if of.isFew else ceil(of.depth / plan.rows)
        sweeps = ceil(tiles / plan.tiles)
        task = code.task
        sides = ceil(panels / plan.panels)
        each = of.groups * sides * sweeps  # tasks of the same samples follow one another
        part, task = (task // each, task % each) if plan.parts > 1 else (code.i64(0), task)
        sweep, task = (task % sweeps, task // sweeps) if sweeps > 1 else (code.i64(0), task)
        side, self.group = (task % sides, task // sides) if of.groups > 1 else (task, code.i64(0))
        self.to = to.at(part * (of.groups * of.maps * of.depth * of.taps)) if plan.parts > 1 else to
        self.firstPanel = side * plan.panels
        self.lastPanel = code.min(self.firstPanel + plan.panels, panels)
        self.firstTile = sweep * plan.tiles
        self.lastTile = code.min(self.firstTile + plan.tiles, tiles)
        self.prepare()
        with code.loop(0, self.kept, 16, unroll=1) as i:
            self.allSums.store(i, code.constant(0, IRType("f32", 16)))
        tall = max(1, ceil(of.lines[1].count / plan.high))
        strips = ceil(of.planes / plan.planes) * tall
        with code.loop(part * strips // plan.parts, (part + 1) * strips // plan.parts, unroll=1) as strip:
            planes = strip // tall * plan.planes if tall > 1 else strip * plan.planes
            high = strip % tall * plan.high if tall > 1 else code.i64(0)
            self.strip(
                (planes, code.min(planes + plan.planes, of.planes)),
                (high, code.min(high + plan.high, of.lines[1].count)),
            )
        with self.overPanels():
            self.finish()

    @contextmanager
    def overPanels(self) -> Iterator[None]:
        """For each panel of the task: its first output map, which of its lanes there are, where its sums lie."""
        code, of, plan = self.code, self.of, self.plan
        loop = (
            code.loop(self.firstPanel, self.lastPanel, unroll=1)
            if plan.panels > 1
            else SingleIteration(code, self.firstPanel)
        )
        with loop as panel:
            self.o = panel * plan.width
            self.masks = [
                code.mask(of.maps - self.o - start, width) if of.maps % plan.width else None
                for start, width in zip(self.starts, plan.vectors)
            ]
            self.sums = self.allSums.at((panel - self.firstPanel) * (self.kept // plan.panels))
            yield

    def room(self, count: int) -> IRPointer:
        self.kept = ceil(count / 16) * 16 * self.plan.panels
        return self.code.scratch("f32", self.kept)

    def prepare(self) -> None:
        raise NotImplementedError

    def strip(self, planes: tuple[IRValue, IRValue], high: tuple[IRValue, IRValue]) -> None:
        raise NotImplementedError

    def finish(self) -> None:
        raise NotImplementedError

    def planeLoop(
        self, loops: ExitStack, planes: tuple[IRValue, IRValue], tap: IRValue
    ) -> tuple[IRValue, IRValue, IRValue]:
        """For each plane that has the tap of the first axis: the plane of grad, and that of x."""
        code, deep = self.code, self.of.lines[0]
        plane = loops.enter_context(code.loop(*planes, unroll=1))
        if deep.count == deep.length == len(deep.taps) == 1:
            return plane, plane, plane
        n, a = plane // deep.count, plane % deep.count
        d = a * deep.stride + (deep.first + tap * deep.step)
        return plane, n * deep.length + d, (d >= 0) & (d < deep.length)

    def sum(self, place: IRValue | int, rows: int, offsets: list[Any], loop: Any) -> None:
        """Add to the sums at `place`; `loop(body)` calls body(x index, g index) inside of its loops over pixels."""
        code, plan = self.code, self.plan
        zeros = [code.constant(0, IRType("f32", width)) for width in plan.vectors]
        sums = [[code.variable(zero) for zero in zeros] for _ in range(rows)]

        def body(x: IRValue, g: IRValue) -> None:
            taken = [self.g.load(g + start, width, mask) for start, width, mask in self.columns()]
            for m, offset in enumerate(offsets):
                factor = self.x.load(x + offset) if not self.of.isFew else self.copied.load(x + offset)
                for variable, vector in zip(sums[m], taken):
                    variable.value = code.fma(code.splat(factor, vector.lanes), vector, variable.value)

        loop(body)
        for m, each in enumerate(sums):
            for start, width, variable in zip(self.starts, plan.vectors, each):
                total = self.sums.at(code.i64(place) + (m * plan.width + start))
                total.store(0, total.load(0, width) + variable.value)

    def columns(self) -> Any:
        return zip(self.starts, self.plan.vectors, self.masks)

    def weightAt(self, lane: IRValue, c: IRValue, tap: IRValue) -> IRValue:
        of = self.of
        return ((self.group * of.maps + self.o + lane) * of.depth + c) * of.taps + tap


class OneTapTiles(WeightGradWriter):
    """Tiles of input maps, for one tap after the other."""

    def prepare(self) -> None:
        self.allSums = self.room(self.plan.tiles * self.of.taps * self.plan.rows * self.plan.width)

    def first(self, tile: IRValue) -> IRValue:
        """The first input map of a tile: the last tile may overlap the one before."""
        return self.code.min(tile * self.plan.rows, self.of.depth - self.plan.rows)

    def strip(self, planes: tuple[IRValue, IRValue], high: tuple[IRValue, IRValue]) -> None:
        code, plan, (_, tall, wide) = self.code, self.plan, self.of.lines
        with ExitStack() as loops:
            loops.enter_context(self.overPanels())
            tile = loops.enter_context(code.loop(self.firstTile, self.lastTile, unroll=1))
            i, j, k = (loops.enter_context(overTaps(code, line)) for line in self.of.lines)
            tap = (i * len(tall.taps) + j) * len(wide.taps) + k
            place = ((tile - self.firstTile) * self.of.taps + tap) * (plan.rows * plan.width)
            first, stop = reach(code, tall, j, *high)
            left, right = reach(code, wide, k, code.i64(0), code.i64(wide.count))
            inputs = self.first(tile) + self.group * self.of.depth
            outputs = self.o + self.group * self.of.maps

            def loop(body: Any) -> None:
                with ExitStack() as inner:
                    plane, source, isThere = self.planeLoop(inner, planes, i)
                    if isThere is not plane:
                        inner.enter_context(code.when(isThere))
                    a = inner.enter_context(code.loop(first, stop, unroll=1))
                    h = a * tall.stride + (tall.first + j * tall.step)
                    row = (source * tall.length + h) * wide.length + (wide.first + k * wide.step)
                    g = (plane * tall.count + a) * wide.count
                    b = inner.enter_context(code.loop(left, right, unroll=1))
                    body(
                        (row + b * wide.stride) * self.xPixel + inputs,
                        (g + b) * self.gradPixel + outputs,
                    )

            self.sum(place, plan.rows, list(range(plan.rows)), loop)

    def finish(self) -> None:
        """The filters of a tile lie side by side: as many numbers of as many of them as fill squares, turned."""
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
        """The numbers from m on of the filters of some lanes."""
        code, of, plan = self.code, self.of, self.plan
        end = plan.rows * of.taps
        places = [code.min(m + k, end - 1) for k in range(width)]
        rows = [sums.load((at % of.taps * plan.rows + at // of.taps) * plan.width, width) for at in places]
        live = code.mask(end - m, width)
        for lane, value in enumerate(transposed(code, rows)):
            with code.when(self.o + (start + lane) < of.maps) if of.maps % plan.width else SingleIteration(code):
                to.store(m + lane * (of.depth * of.taps), value, live)


class TapRowTiles(WeightGradWriter):
    """Tiles of what rows of taps read, from a copy of the strip that has its padding."""

    def prepare(self) -> None:
        of, plan = self.of, self.plan
        _, tall, wide = of.lines
        self.allSums = self.room(of.taps * of.depth * plan.width)
        self.isWhole = plan.rows == len(tall.taps) * len(wide.taps) * of.depth
        self.size = stripOf(plan.high, tall, wide, of.depth)
        self.copied = self.code.scratch("f32", plan.planes * self.size.plane)

    def strip(self, planes: tuple[IRValue, IRValue], high: tuple[IRValue, IRValue]) -> None:
        code, of, plan, (deep, tall, wide) = self.code, self.of, self.plan, self.of.lines
        run = of.depth * len(wide.taps)
        with overTaps(code, deep) as i:
            self.copy(planes, high, i)
            with self.overPanels():
                if self.isWhole:
                    offsets = [
                        j * tall.step * self.size.pitch + o for j in range(len(tall.taps)) for o in self.offsets()
                    ]
                    place = i * (len(offsets) * plan.width)
                    self.sum(place, len(offsets), offsets, self.pixels(planes, high, code.i64(0)))
                    return
                count = ceil(run / plan.rows)
                with code.loop(0, len(tall.taps), unroll=1) as j:
                    for chunk in range(count):
                        begin, end = run * chunk // count, run * (chunk + 1) // count
                        place = ((i * len(tall.taps) + j) * run + begin) * plan.width
                        offsets = self.offsets()[begin:end]
                        self.sum(
                            place, end - begin, offsets, self.pixels(planes, high, j * (tall.step * self.size.pitch))
                        )

    def offsets(self) -> list[int]:
        """What one pixel reads of a row: by tap, then map."""
        wide, c = self.of.lines[2], self.of.depth
        return [t * wide.step * c + i for t in range(len(wide.taps)) for i in range(c)]

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
                    x + b * (wide.stride * of.depth),
                    (g + b) * self.gradPixel + (self.o + self.group * of.maps),
                )

        return loop

    def copy(self, planes: tuple[IRValue, IRValue], high: tuple[IRValue, IRValue], tap: IRValue) -> None:
        """The inputs of the strip, with zeros where there are none."""
        code, (deep, tall, wide) = self.code, self.of.lines
        with code.loop(*planes, unroll=1) as plane, code.loop(0, self.size.high, unroll=1) as i:
            h = high[0] * tall.stride + tall.first + i
            isThere, source = (h >= 0) & (h < tall.length), plane
            if not deep.count == deep.length == len(deep.taps) == 1:
                d = plane % deep.count * deep.stride + (deep.first + tap * deep.step)
                source = plane // deep.count * deep.length + d
                isThere = isThere & (d >= 0) & (d < deep.length)
            to = self.copied.at((plane - planes[0]) * self.size.plane + i * self.size.pitch)
            row = (source * tall.length + h) * wide.length * self.xPixel + self.group * self.of.depth
            copyRow(code, self.size, wide, self.x, row, self.xPixel, isThere, to)

    def finish(self) -> None:
        code, of, plan = self.code, self.of, self.plan
        with ExitStack() as loops:
            lane = loops.enter_context(code.loop(0, code.min(of.maps - self.o, plan.width), unroll=1))
            tap = loops.enter_context(code.loop(0, of.taps, unroll=1))
            c = loops.enter_context(code.loop(0, of.depth, unroll=1))
            at = (tap * of.depth + c) * plan.width + lane
            self.to.store(self.weightAt(lane, c, tap), self.sums.load(at))


def overTaps(code: IRBuilder, line: AxisMap) -> Any:
    """A loop over the taps of a line; the body once where there is only one."""
    return SingleIteration(code) if len(line.taps) == 1 else code.loop(0, len(line.taps), unroll=1)


def reach(code: IRBuilder, line: AxisMap, tap: IRValue, start: IRValue, stop: IRValue) -> tuple[IRValue, IRValue]:
    """Which outputs from `start` to `stop` have an input for a tap."""
    first = line.first + tap * line.step
    if line.first >= 0 and line.isInside(line.count - 1, len(line.taps) - 1):
        return start, stop
    low = code.select(first < 0, (line.stride - 1 - first) // line.stride, 0)
    left = line.length - 1 - first
    high = code.select(left < 0, 0, left // line.stride + 1)
    return code.select(low > start, low, start), code.min(high, stop)
