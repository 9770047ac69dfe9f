"""Sliding: windows over maps that lie channels last, where each map is on its own: vectors are stretches of maps.

Depthwise convolutions and pooling differ in what they do with each number of a window; how they go over samples,
phases, rows, tiles of pixels, stretches of maps and taps is here.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import product
from math import ceil, prod
from typing import Any, NamedTuple

from puregraph.native.conv.direct import SingleIteration, TapRun, bounds, kinds
from puregraph.native.conv.geometry import AxisMap, ConvolutionAxis, dataLines, forwardLine
from puregraph.native.conv.registertiling import registers, vectorsOf
from puregraph.native.llvm import jit
from puregraph.native.llvm.instructions import IRPointer, IRValue
from puregraph.native.llvm.irbuilder import IRBuilder

Lines = tuple[AxisMap, AxisMap, AxisMap]
GRAIN = 1 << 17  # numbers that a task takes
MOST = 64  # tasks
WRITTEN = 25  # taps that are written out; the rows of taps of larger windows are loops
WIDEST = 12  # taps of a row that are written out; of longer rows, one pixel is made at a time


class ChannelVector(NamedTuple):
    """Maps that a vector holds: the first of them, and which lanes are on where not all are."""

    map: IRValue
    lanes: int
    live: IRValue | None


class Tap(NamedTuple):
    """A tap of the window."""

    number: IRValue | int  # flat, in the window
    offset: IRValue | int  # how much further than those of the first tap its inputs lie, flat
    input: IRValue  # the flat index of the input that the first pixel of the tile reads
    places: tuple[IRValue, IRValue, IRValue]  # and its place on each axis
    first: int  # how many inputs further than the first of the row of taps that is
    step: int  # inputs from pixel to pixel
    ahead: int  # how many inputs further the next row of outputs reads; 0 if another tap has read it by then
    output: IRValue  # the flat place on its map of the first pixel
    skip: int  # outputs from pixel to pixel


def fetch(
    x: IRPointer, pixel: int, states: dict[int, Any], stretch: ChannelVector, tap: Tap, seen: dict[int, IRValue]
) -> Any:
    """For each pixel: what is kept of it, and the numbers that it reads; those of the next row are asked for."""
    c, lanes, live = stretch
    for p, state in states.items():
        place = tap.first + p * tap.step
        if place not in seen:
            at = (tap.input + p * tap.step) * pixel + c
            seen[place] = x.load(at, lanes, live)
            if tap.ahead:
                x.prefetch(at + tap.ahead * pixel)
        yield p, state, seen[place]


class WindowPosition(NamedTuple):
    """Where a window lies: its sample, and on each axis its first input, which may be outside."""

    n: IRValue
    starts: tuple[IRValue, IRValue, IRValue]


def forwardPhases(axes: tuple[ConvolutionAxis, ...]) -> list[Lines]:
    """Those of a window that goes over its inputs."""
    return [tuple(forwardLine(axis) for axis in axes)]  # type: ignore[list-item]


def dataPhases(axes: tuple[ConvolutionAxis, ...]) -> list[Lines]:
    """Those of its adjoint."""
    return list(product(*(dataLines(axis) for axis in axes)))  # type: ignore[arg-type]


def taskCount(n: int, maps: int, phases: list[Lines]) -> int:
    """Tasks, each of some of the rows of every phase."""
    numbers = sum(prod(line.count * max(1, len(line.taps)) for line in lines) for lines in phases)
    rows = n * max(lines[0].count for lines in phases) * max(lines[1].count for lines in phases)
    return max(1, min(rows, MOST, n * maps * numbers // GRAIN))


class WindowLoop:
    """Writes the loops; a subclass says what becomes of the numbers."""

    def __init__(self, code: IRBuilder, n: int, maps: int, size: tuple[int, ...], phases: list[Lines], tasks: int):
        self.code, self.n, self.maps, self.size, self.phases, self.tasks = code, n, maps, size, phases, tasks

    def begin(self, stretch: ChannelVector) -> Any:
        """What is kept of a pixel while its window is read."""
        raise NotImplementedError

    def take(self, states: dict[int, Any], stretch: ChannelVector, tap: Tap, seen: dict[int, IRValue]) -> None:
        """Read a tap of some pixels; `seen` is empty when a row of taps begins."""
        raise NotImplementedError

    def end(self, state: Any, stretch: ChannelVector, row: IRValue, place: WindowPosition) -> None:
        """The window of the output with the flat index `row` has been read."""
        raise NotImplementedError

    def write(self) -> None:
        code = self.code
        deep, high = (max(lines[axis].count for lines in self.phases) for axis in (0, 1))
        rows = self.n * deep * high
        with code.loop(code.task * rows // self.tasks, (code.task + 1) * rows // self.tasks, unroll=1) as row:
            h, n = (row % high, row // high) if high > 1 else (code.i64(0), row)
            d, n = (n % deep, n // deep) if deep > 1 else (code.i64(0), n)
            for lines in self.phases:
                if not all(line.count for line in lines):
                    continue
                with ExitStack() as stack:
                    for place, line, most in ((d, lines[0], deep), (h, lines[1], high)):
                        if line.count < most:
                            stack.enter_context(code.when(place < line.count))
                    OutputRow(self, lines, n, d, h).write()


class OutputRow:
    """One row of outputs of one phase."""

    def __init__(self, slider: WindowLoop, lines: Lines, n: IRValue, d: IRValue, h: IRValue):
        self.slider, self.code, self.lines, self.n = slider, slider.code, lines, n
        deep, high, wide = lines
        out = (n * deep.full + (d * deep.skip + deep.start)) * high.full + (h * high.skip + high.start)
        self.out = out * wide.full + wide.start
        self.starts = d * deep.stride + deep.first, h * high.stride + high.first
        self.limits = [bounds(self.code, line, a) for line, a in zip(lines, (d, h))]

    def write(self) -> None:
        code, wide = self.code, self.lines[2]
        if len(wide.taps) > WIDEST:
            with code.loop(0, wide.count, unroll=1) as a:
                self.tile(None, 1, a, bounds(code, wide, a))
            return
        pixels = tileOf(wide)
        for kind in kinds(wide, pixels):
            with code.loop(kind.start, kind.stop, unroll=1) as i:
                self.tile(kind, pixels, i * pixels - kind.skip, None)

    def tile(self, kind: TapRun | None, pixels: int, a: IRValue, limit: tuple[IRValue, IRValue] | None) -> None:
        """A tile of pixels, all maps; without a kind, of one pixel with the taps in the limit."""
        code, slider, wide = self.code, self.slider, self.lines[2]
        self.left = a * wide.stride + wide.first
        self.here = self.out - self.n * prod(line.full for line in self.lines) + a * wide.skip
        for begin, stop, lanes, live in stretches(code, slider.maps):
            with code.loop(begin, stop, lanes, unroll=1) as c:
                stretch = ChannelVector(c, lanes, live)
                states = {p: slider.begin(stretch) for p in range(kind.skip if kind else 0, pixels)}
                self.window(kind, limit, states, stretch)
                for p, state in states.items():
                    starts = (*self.starts, self.left + p * wide.stride)
                    slider.end(state, stretch, self.out + (a + p) * wide.skip, WindowPosition(self.n, starts))

    def window(self, kind: TapRun | None, limit: Any, states: dict[int, Any], stretch: ChannelVector) -> None:
        """All taps of a tile."""
        code, (deep, high, wide) = self.code, self.lines
        with ExitStack() as stack:
            if kind and len(deep.taps) * len(high.taps) * len(wide.taps) <= WRITTEN:
                for i, j in product(range(len(deep.taps)), range(len(high.taps))):
                    d, h = self.starts[0] + i * deep.step, self.starts[1] + j * high.step
                    with inside(code, (deep, i, d), (high, j, h)):
                        self.taps(kind, states, stretch, i, j)
                return
            i, j = (stack.enter_context(overTaps(code, each)) for each in self.limits)
            if kind:
                self.taps(kind, states, stretch, i, j)
            else:
                k = stack.enter_context(overTaps(code, limit))
                self.tap(states, stretch, i, j, k, {})

    def taps(
        self, kind: TapRun, states: dict[int, Any], stretch: ChannelVector, i: IRValue | int, j: IRValue | int
    ) -> None:
        """One row of taps."""
        seen: dict[int, IRValue] = {}
        for k, pixels in enumerate(kind.inside):
            some = {p: states[p] for p in pixels if p in states}
            if some:
                self.tap(some, stretch, i, j, k, seen)

    def tap(self, states: Any, stretch: ChannelVector, i: Any, j: Any, k: Any, seen: dict[int, IRValue]) -> None:
        (deep, high, wide), size = self.lines, self.slider.size
        number = (tapOf(deep, i) * size[1] + tapOf(high, j)) * size[2] + tapOf(wide, k)
        offset = (i * (deep.step * high.length) + j * high.step) * wide.length + k * wide.step
        d, h = self.starts[0] + i * deep.step, self.starts[1] + j * high.step
        row = ((self.n * deep.length + d) * high.length + h) * wide.length + self.left
        first = k * wide.step if isinstance(k, int) else 0
        places = d, h, self.left + k * wide.step
        isNew = isinstance(j, IRValue) or j >= len(high.taps) - max(1, high.stride // high.step)
        ahead = high.stride * wide.length if isNew else 0
        tap = Tap(number, offset, row + k * wide.step, places, first, wide.stride, ahead, self.here, wide.skip)
        self.slider.take(states, stretch, tap, seen)


def tapOf(line: AxisMap, i: IRValue | int) -> IRValue | int:
    """The number in the window of a tap of a Line."""
    if isinstance(i, int):
        return line.taps[i]
    return i * (line.taps[1] - line.taps[0]) + line.taps[0] if len(line.taps) > 1 else i + line.taps[0]


def overTaps(code: IRBuilder, limit: tuple[IRValue, IRValue] | None) -> Any:
    """A loop over the taps from one limit to the other; without limits the body once."""
    return code.loop(*limit, unroll=1) if limit else SingleIteration(code)


def tileOf(line: AxisMap) -> int:
    """Pixels of a tile."""
    most = 8 if registers(jit.lanes(4)) == 32 else 4
    return max(1, ceil(line.count / max(1, ceil(line.count / most))))


def stretches(code: IRBuilder, maps: int) -> Iterator[tuple[int, int, int, IRValue | None]]:
    """From which map to which, how many at a time, and which of them there are."""
    lanes = jit.lanes(4)
    whole = maps // lanes * lanes
    if whole:
        yield 0, whole, lanes, None
    if maps > whole:
        width = vectorsOf(maps - whole, lanes)[-1]
        yield whole, maps, width, code.mask(maps - whole, width) if maps - whole < width else None


@contextmanager
def inside(code: IRBuilder, *taps: tuple[AxisMap, int, IRValue]) -> Iterator[None]:
    """Only where there are inputs for the taps."""
    with ExitStack() as stack:
        for line, tap, place in taps:
            if line.isInside(0, tap) and line.isInside(line.count - 1, tap):
                continue
            stack.enter_context(code.when((place >= 0) & (place < line.length)))
        yield
