"""Depthwise: convolutions whose maps have filters of their own, channels last: vectors are stretches of maps."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import product
from math import ceil, prod
from typing import Any

from puregraph.native import machine
from puregraph.native.code import Code, Type, Value, Variable
from puregraph.native.correlation import Kind, kinds, once
from puregraph.native.geometry import Geometry, Line, dataLines, forwardLine
from puregraph.native.tiling import registers, vectorsOf
from puregraph.native.weightsum import overTaps
from puregraph.native.work import Finish, Work

Lines = tuple[Line, Line, Line]
GRAIN = 1 << 18  # products of a task
MOST = 64  # tasks
PARTS = 16  # of the samples, in the gradient of the weight


def room(g: Geometry) -> int:
    """Numbers of the packed weight."""
    return g.taps * g.c


def pack(W: Any, packed: Any, g: Geometry) -> list[Work]:
    """W (c, 1, *size) as (taps, c): forward and the data gradient take the same."""
    taps, maps = g.taps, g.c

    def write(code: Code) -> None:
        w, to = code.pointer("W", "f32"), code.pointer("packed", "f32")
        with code.loop(0, taps, unroll=1) as t, code.loop(0, maps) as c:
            to.store(t * maps + c, w.load(c * taps + t))

    return [Work(f"pack {g.text}", f"packdw {taps} {maps}", write, {"W": W, "packed": packed}, 1)]


def forward(x: Any, packed: Any, finish: Finish, g: Geometry, xPixel: int | None = None) -> list[Work]:
    """y (n, *count, c) from x (n, *spatial, c)."""
    lines = tuple(forwardLine(axis) for axis in g.axes)
    return [slide(f"depthwise {g.text}", g, [lines], x, xPixel or g.c, packed, finish)]  # type: ignore[list-item]


def dataGradient(grad: Any, packed: Any, finish: Finish, g: Geometry, gradPixel: int | None = None) -> list[Work]:
    """dx (n, *spatial, c) from grad (n, *count, c)."""
    phases = list(product(*(dataLines(axis) for axis in g.axes)))
    return [slide(f"depthwise dx {g.text}", g, phases, grad, gradPixel or g.c, packed, finish)]  # type: ignore[arg-type]


def slide(name: str, g: Geometry, phases: list[Lines], x: Any, xPixel: int, packed: Any, finish: Finish) -> Work:
    """The sums along each of the phases, of which every task has its share."""
    places = sum(prod(line.count for line in lines) for lines in phases)
    rows = max(g.n * lines[0].count * lines[1].count for lines in phases)
    products = g.n * places * g.c * max(4, g.taps // len(phases))
    tasks = max(1, min(rows, MOST, products // GRAIN))
    key = f"depthwise {g.n} {g.c} {[a.size for a in g.axes]} {phases} {xPixel} {tasks} {finish.key}"

    def write(code: Code) -> None:
        pointers = code.pointer("x", "f32"), code.pointer("b", "f32")
        finish.open(code)
        for lines in phases:
            Slider(code, g, lines, pointers, xPixel, finish, tasks).write()

    return Work(name, key, write, {"x": x, "b": packed, **finish.slots}, tasks)


class Slider:
    """Writes the code of one phase."""

    def __init__(self, code: Code, g: Geometry, lines: Lines, pointers: Any, xPixel: int, finish: Finish, tasks: int):
        self.code, self.g, self.lines, self.xPixel, self.finish, self.tasks = code, g, lines, xPixel, finish, tasks
        self.x, self.b = pointers
        self.pixels = tileOf(lines[2])

    def write(self) -> None:
        code, (deep, high, wide) = self.code, self.lines
        rows = self.g.n * deep.count * high.count
        if not rows or not wide.count:
            return
        first, last = code.task * rows // self.tasks, (code.task + 1) * rows // self.tasks
        with code.loop(first, last, unroll=1) as row:
            h, n = (row % high.count, row // high.count) if high.count > 1 else (code.whole(0), row)
            d, n = (n % deep.count, n // deep.count) if deep.count > 1 else (code.whole(0), n)
            self.d, self.h = d * deep.stride + deep.first, h * high.stride + high.first
            self.source = n * deep.length
            self.out = (n * deep.full + (d * deep.skip + deep.start)) * high.full + (h * high.skip + high.start)
            for kind in kinds(wide, self.pixels):
                with code.loop(kind.start, kind.stop, unroll=1) as i:
                    self.tile(kind, i * self.pixels - kind.skip)

    def tile(self, kind: Kind, a: Value) -> None:
        """Some pixels of a row, all maps."""
        for begin, stop, lanes, live in stretches(self.code, self.g.c):
            with self.code.loop(begin, stop, lanes, unroll=1) as c:
                self.stretch(kind, a, c, lanes, live)

    def stretch(self, kind: Kind, a: Value, c: Value, lanes: int, live: Value | None) -> None:
        code, (deep, high, wide), size = self.code, self.lines, [axis.size for axis in self.g.axes]
        zero = code.constant(0, Type("f32", lanes))
        sums: list[Variable] = [code.variable(zero) for _ in range(self.pixels)]
        for variable in sums:
            variable.value = 0.0
        for i, j in product(range(len(deep.taps)), range(len(high.taps))):
            d, h = self.d + i * deep.step, self.h + j * high.step
            with inside(code, (deep, i, d), (high, j, h)):
                row = ((self.source + d) * high.length + h) * wide.length
                at = (row + a * wide.stride + wide.first) * self.xPixel + c
                loaded: dict[int, Value] = {}
                now = {p: variable.value for p, variable in enumerate(sums)}
                for k, position in enumerate(wide.taps):
                    if not kind.inside[k]:
                        continue
                    tap = (deep.taps[i] * size[1] + high.taps[j]) * size[2] + position
                    weight = self.b.load(c + tap * self.g.c, lanes, live)
                    for p in kind.inside[k]:
                        place = p * wide.stride + k * wide.step
                        if place not in loaded:
                            loaded[place] = self.x.load(at + place * self.xPixel, lanes, live)
                        now[p] = code.fma(loaded[place], weight, now[p])
                for p, variable in enumerate(sums):
                    variable.value = now[p]
        for p in range(kind.skip, self.pixels):
            row = self.out * wide.full + ((a + p) * wide.skip + wide.start)
            self.finish.put(code, row, c, sums[p].value, live)


def tileOf(line: Line) -> int:
    """Pixels of a tile."""
    most = 8 if registers() == 32 else 4
    return max(1, ceil(line.count / max(1, ceil(line.count / most))))


def stretches(code: Code, maps: int) -> Iterator[tuple[int, int, int, Value | None]]:
    """From which map to which, how many at a time, and which of them there are."""
    lanes = machine.lanes(4)
    whole = maps // lanes * lanes
    if whole:
        yield 0, whole, lanes, None
    if maps > whole:
        width = vectorsOf(maps - whole, lanes)[-1]
        yield whole, maps, width, code.mask(maps - whole, width) if maps - whole < width else None


@contextmanager
def inside(code: Code, *taps: tuple[Line, int, Value]) -> Iterator[None]:
    """Only where there are inputs for the taps."""
    with ExitStack() as stack:
        for line, tap, place in taps:
            if line.isInside(0, tap) and line.isInside(line.count - 1, tap):
                continue
            stack.enter_context(code.when((place >= 0) & (place < line.length)))
        yield


def weightRoom(g: Geometry) -> int:
    """Numbers of temporary memory for the parts of the gradient."""
    return partsOf(g) * g.taps * g.c


def partsOf(g: Geometry) -> int:
    lines = [forwardLine(axis) for axis in g.axes]
    rows = g.n * lines[0].count * lines[1].count
    return max(1, min(rows, PARTS, g.n * g.places * g.c * g.taps // GRAIN))


def weightGradient(
    grad: Any, x: Any, dW: Any, room: Any, g: Geometry, gradPixel: int | None = None, xPixel: int | None = None
) -> list[Work]:
    """dW (c, 1, *size) from grad (n, *count, c) and x (n, *spatial, c)."""
    parts, gradPixel, xPixel = partsOf(g), gradPixel or g.c, xPixel or g.c
    taps, maps = g.taps, g.c

    def write(code: Code) -> None:
        Summer(code, g, gradPixel, xPixel, parts).write()

    def add(code: Code) -> None:
        source, to = code.pointer("room", "f32"), code.pointer("dW", "f32")
        first, last = code.task * maps // tasks, (code.task + 1) * maps // tasks
        with code.loop(first, last, unroll=1) as c, code.loop(0, taps, unroll=1) as t:
            total = source.load(t * maps + c)
            for part in range(1, parts):
                total = total + source.load(part * taps * maps + t * maps + c)
            to.store(c * taps + t, total)

    key = f"depthwisedw {g} {gradPixel} {xPixel} {parts}"
    tasks = max(1, min(8, maps * taps * parts >> 14))
    return [
        Work(f"depthwise dW {g.text}", key, write, {"g": grad, "x": x, "room": room}, parts),
        Work(f"sum dW {g.text}", f"partsdw {parts} {taps} {maps} {tasks}", add, {"room": room, "dW": dW}, tasks),
    ]


class Summer:
    """Writes the code of the weight's gradient."""

    def __init__(self, code: Code, g: Geometry, gradPixel: int, xPixel: int, parts: int):
        self.code, self.geometry, self.gradPixel, self.xPixel, self.parts = code, g, gradPixel, xPixel, parts
        self.lines = [forwardLine(axis) for axis in g.axes]
        self.pixels = min(tileOf(self.lines[2]), 4)

    def write(self) -> None:
        code, g, (deep, high, _wide) = self.code, self.geometry, self.lines
        self.g, self.x, to = code.pointer("g", "f32"), code.pointer("x", "f32"), code.pointer("room", "f32")
        self.to = to.at(code.task * (g.taps * g.c))
        rows = g.n * deep.count * high.count
        first, last = code.task * rows // self.parts, (code.task + 1) * rows // self.parts
        with code.loop(0, g.taps * g.c) as i:
            self.to.store(i, code.constant(0, Type("f32")))
        with code.loop(first, last, unroll=1) as row:
            h, n = row % high.count, row // high.count
            d, n = (n % deep.count, n // deep.count) if deep.count > 1 else (code.whole(0), n)
            self.h = h * high.stride + high.first
            self.row = row
            with overTaps(code, deep) as i:
                depth = d * deep.stride + (deep.first + i * deep.step)
                self.plane = n * deep.length + depth
                self.tap = i * (len(high.taps) * g.axes[2].size)
                isThere = (depth >= 0) & (depth < deep.length)
                with once(code) if deep.length == deep.count == len(deep.taps) == 1 else code.when(isThere):
                    for begin, stop, lanes, live in stretches(code, g.c):
                        with code.loop(begin, stop, lanes, unroll=1) as c:
                            self.stretch(c, lanes, live)

    def stretch(self, c: Value, lanes: int, live: Value | None) -> None:
        """One row of pixels, the maps of one vector: rows of taps a few at a time, as many as registers keep."""
        _deep, high, wide = self.lines
        most = max(1, (registers() - 6) // len(wide.taps))
        for begin in range(0, len(high.taps), most):
            self.rows(range(begin, min(begin + most, len(high.taps))), c, lanes, live)

    def rows(self, taps: range, c: Value, lanes: int, live: Value | None) -> None:
        code, g, (_deep, high, wide) = self.code, self.geometry, self.lines
        places = {
            (j, k): c + (self.tap + (j * len(wide.taps) + k)) * g.c for j, k in product(taps, range(len(wide.taps)))
        }
        sums = {tap: code.variable(self.to.load(at, lanes, live)) for tap, at in places.items()}
        for kind in kinds(wide, self.pixels):
            with code.loop(kind.start, kind.stop, unroll=1) as i:
                a = i * self.pixels - kind.skip
                at = (self.row * wide.count + a) * self.gradPixel + c
                grads = {p: self.g.load(at + p * self.gradPixel, lanes, live) for p in range(kind.skip, self.pixels)}
                for j in taps:
                    h = self.h + j * high.step
                    with inside(code, (high, j, h)):
                        row = (self.plane * high.length + h) * wide.length
                        source = (row + a * wide.stride + wide.first) * self.xPixel + c
                        loaded: dict[int, Value] = {}
                        for k in range(len(wide.taps)):
                            now = sums[j, k].value
                            for p in kind.inside[k]:
                                if p < kind.skip:
                                    continue
                                place = p * wide.stride + k * wide.step
                                if place not in loaded:
                                    loaded[place] = self.x.load(source + place * self.xPixel, lanes, live)
                                now = code.fma(loaded[place], grads[p], now)
                            sums[j, k].value = now
        for tap, at in places.items():
            self.to.store(at, sums[tap].value, live)
