"""Sliding windows, channels last: the loop nest of depthwise convolutions and pooling, vectorised along channels.

It loops over samples, phases, rows, tiles of pixels, vectors of channels and taps; subclasses define the operation on
each element of a window.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import product
from math import ceil, prod
from typing import TYPE_CHECKING, Any, NamedTuple

from puregraph.core.opensize import decided
from puregraph.ops.convolution.native.geometry import AxisMap, ConvolutionAxis, dataLines, forwardLine
from puregraph.ops.convolution.native.registertiling import registers, vectorsOf
from puregraph.ops.convolution.native.taploops import SingleIteration, TapRun, edgeTaps, tapBounds, tapRuns
from puregraph.ops.native.llvm import jit
from puregraph.ops.native.llvm.instructions import SIZES, IRPointer, IRType, IRValue
from puregraph.ops.native.llvm.irbuilder import IRBuilder
from puregraph.ops.native.llvm.kernelcall import EpilogueSpec

if TYPE_CHECKING:
    from contextlib import AbstractContextManager


Lines = tuple[AxisMap, AxisMap, AxisMap]
TASK_ELEMENTS = 1 << 17  # elements of a task
MAX_SLIDING_TASKS = 64  # maximum number of tasks
MAX_UNROLLED_TAPS = 25  # taps up to which a window is unrolled; larger ones loop over rows of taps
MAX_UNROLLED_ROW_TAPS = 12  # taps of a row up to which it is unrolled; with more, a tile has one pixel
MAX_UNROLLED_PHASES = 16  # phases up to which each has code of its own


class ChannelVector(NamedTuple):
    """A vector of channels: the first of them, its lanes, and a mask where not all are on."""

    channel: IRValue
    lanes: int
    live: IRValue | None


class Tap(NamedTuple):
    """A tap of the window."""

    number: IRValue | int  # the flat index of the tap in the window
    offset: IRValue | int  # the flat offset of its inputs from those of the first tap
    input: IRValue  # the flat index of the input that the tile's first pixel reads
    indices: tuple[IRValue, IRValue, IRValue]  # the index of that input on each axis
    first: int  # the offset of that input from the first input of the row of taps
    step: int  # the distance between the inputs of neighbouring pixels
    ahead: int  # the offset of the input that the next row of outputs reads; 0 if another tap reads it before
    output: IRValue  # the flat index of the tile's first pixel in its image
    skip: int  # the distance between neighbouring pixels of the output


def fetch(
    x: IRPointer, pixel: int, states: dict[int, Any], vector: ChannelVector, tap: Tap, seen: dict[int, IRValue]
) -> Any:
    """For each pixel: its state and the vector that it reads; that of the next row is prefetched."""
    c, lanes, live = vector
    for p, state in states.items():
        position = tap.first + p * tap.step
        if position not in seen:
            at = (tap.input + p * tap.step) * pixel + c
            seen[position] = x.load(at, lanes, live)
            if tap.ahead:
                x.prefetch(at + tap.ahead * pixel)
        yield p, state, seen[position]


class WindowPosition(NamedTuple):
    """The position of a window: its sample, and on each axis its first input, which may be outside."""

    n: IRValue
    starts: tuple[IRValue, IRValue, IRValue]


def forwardPhases(axes: tuple[ConvolutionAxis, ...]) -> list[Lines]:
    """The only phase of a forward pass."""
    return [tuple(forwardLine(axis) for axis in axes)]  # type: ignore[list-item]


def dataPhases(axes: tuple[ConvolutionAxis, ...]) -> list[Lines]:
    """The phases of its adjoint."""
    return list(product(*(dataLines(axis) for axis in axes)))  # type: ignore[arg-type]


class PhaseGroup(NamedTuple):
    """Phases of an axis that differ only in their position: the q-th starts q outputs, and its taps q `step`, later."""

    line: AxisMap
    count: int = 1  # type: ignore[assignment]
    step: int = 0


def phaseGroups(lines: Sequence[AxisMap]) -> list[PhaseGroup]:
    """The phases of an axis, in groups that share their code."""
    groups: list[PhaseGroup] = []
    for line in lines:
        if groups:
            first, count, step = groups[-1]
            if count == 1 and line.taps and first.taps:
                step = line.taps[0] - first.taps[0]
            taps = tuple(tap + count * step for tap in first.taps)
            if line == first._replace(start=first.start + count, taps=taps):
                groups[-1] = PhaseGroup(first, count + 1, step)
                continue
        groups.append(PhaseGroup(line))
    return groups


@decided
def taskCount(n: int, channels: int, phases: tuple[Lines, ...]) -> int:
    """The number of tasks, each with some rows of every phase."""
    elements = sum(prod(line.count * max(1, len(line.taps)) for line in lines) for lines in phases)
    return max(1, min(n * prod((*planeOf(phases),)), MAX_SLIDING_TASKS, n * channels * elements // TASK_ELEMENTS))


def planeOf(phases: Sequence[Lines]) -> tuple[int, int]:
    """The most outputs that a phase has on the first and on the second axis."""
    return max(lines[0].count for lines in phases), max(lines[1].count for lines in phases)


class WindowLoop:
    """Writes the loop nest; a subclass defines the state of a pixel and its update."""

    epilogue: EpilogueSpec

    def __init__(self, code: IRBuilder, channels: int, size: tuple[int, ...], phases: list[Lines], real: str):
        self.code, self.channels, self.size, self.phases, self.real = code, channels, size, phases, real

    def begin(self, vector: ChannelVector) -> Any:
        """The initial state of a pixel: here a sum of nothing."""
        return self.code.variable(self.code.constant(0, IRType(self.real, vector.lanes)))

    def take(self, states: dict[int, Any], vector: ChannelVector, tap: Tap, seen: dict[int, IRValue]) -> None:
        """Update the states of some pixels with a tap; `seen` holds vectors loaded in this row of taps."""
        raise NotImplementedError

    def end(self, state: Any, vector: ChannelVector, row: IRValue, position: WindowPosition) -> None:
        """Give the result of the output with the flat index `row`, here its sum, to the epilogue."""
        self.epilogue.put(self.code, row, vector.channel, state.value, vector.live)

    def write(self) -> None:
        """The loops over rows and phases."""
        code = self.code
        deep, high = planeOf(self.phases)
        rows, tasks = code.integer("n") * (deep * high), code.integer("tasks")
        with code.loop(code.task * rows // tasks, (code.task + 1) * rows // tasks, unroll=1) as row:
            h, n = (row % high, row // high) if high > 1 else (code.i64(0), row)
            d, n = (n % deep, n // deep) if deep > 1 else (code.i64(0), n)
            for groups in product(*self.groups()):
                if not all(group.line.count for group in groups):
                    continue
                with ExitStack() as stack:
                    for position, group, most in ((d, groups[0], deep), (h, groups[1], high)):
                        if group.line.count < most:
                            stack.enter_context(code.when(position < group.line.count))
                    phases = [
                        stack.enter_context(code.loop(0, group.count, unroll=1)) if group.count > 1 else 0
                        for group in groups
                    ]
                    OutputRow(self, groups, phases, n, d, h).write()

    def groups(self) -> list[list[PhaseGroup]]:
        """The phases of each axis, one by one unless they are many."""
        axes = [list(dict.fromkeys(lines[axis] for lines in self.phases)) for axis in range(3)]
        return [
            phaseGroups(lines) if len(self.phases) > MAX_UNROLLED_PHASES else list(map(PhaseGroup, lines))
            for lines in axes
        ]


class OutputRow:
    """A row of outputs of one phase, given by its number in a group on each axis."""

    def __init__(
        self,
        slider: WindowLoop,
        groups: tuple[PhaseGroup, ...],
        phases: Sequence[IRValue | int],
        n: IRValue,
        d: IRValue,
        h: IRValue,
    ):
        self.slider, self.code, self.n = slider, slider.code, n
        self.lines: Any = tuple(group.line for group in groups)
        self.later = [phase * group.step for phase, group in zip(phases, groups)]
        lines = deep, high, wide = self.lines
        starts = [phase + line.start for phase, line in zip(phases, lines)]
        out = (n * deep.full + (d * deep.skip + starts[0])) * high.full + (h * high.skip + starts[1])
        self.out = out * wide.full + starts[2]
        self.starts = d * deep.stride + deep.first, h * high.stride + high.first
        self.limits = [tapBounds(self.code, line, a) for line, a in zip(lines, (d, h))]

    def write(self) -> None:
        code, wide = self.code, self.lines[2]
        if len(wide.taps) > MAX_UNROLLED_ROW_TAPS:
            with code.loop(0, wide.count, unroll=1) as a:
                self.tile(None, 1, a, tapBounds(code, wide, a))
            return
        pixels = tileOf(wide, self.slider.real)
        for kind in tapRuns(wide, pixels):
            with code.loop(kind.start, kind.stop, unroll=1) as i:
                self.tile(kind, pixels, i * pixels - kind.skip, None)

    def tile(self, kind: TapRun | None, pixels: int, a: IRValue, limit: tuple[IRValue, IRValue] | None) -> None:
        """A tile of pixels, all channels; without a run, one pixel with the taps in the limit."""
        code, slider, wide = self.code, self.slider, self.lines[2]
        self.left = a * wide.stride + wide.first
        self.here = self.out - self.n * prod(line.full for line in self.lines) + a * wide.skip
        for begin, stop, lanes, live in channelVectors(code, slider.channels, slider.real):
            with code.loop(begin, stop, lanes, unroll=1) as c:
                vector = ChannelVector(c, lanes, live)
                states = {p: slider.begin(vector) for p in range(kind.skip if kind else 0, pixels)}
                self.window(kind, limit, states, vector)
                for p, state in states.items():
                    starts = (*self.starts, self.left + p * wide.stride)
                    slider.end(state, vector, self.out + (a + p) * wide.skip, WindowPosition(self.n, starts))

    def window(self, kind: TapRun | None, limit: Any, states: dict[int, Any], vector: ChannelVector) -> None:
        """All taps of a tile."""
        code, (deep, high, wide) = self.code, self.lines
        if not all(line.taps for line in self.lines):
            return  # inputs that no window reads
        with ExitStack() as stack:
            if kind and len(deep.taps) * len(high.taps) * len(wide.taps) <= MAX_UNROLLED_TAPS:
                for i, j in product(range(len(deep.taps)), range(len(high.taps))):
                    d, h = self.starts[0] + i * deep.step, self.starts[1] + j * high.step
                    with inside(code, (deep, i, d), (high, j, h)):
                        self.taps(kind, states, vector, i, j)
                return
            i, j = (stack.enter_context(overTaps(code, bounds)) for bounds in self.limits)
            if kind:
                self.taps(kind, states, vector, i, j)
            else:
                k = stack.enter_context(overTaps(code, limit))
                self.tap(states, vector, i, j, k, {})

    def taps(
        self, kind: TapRun, states: dict[int, Any], vector: ChannelVector, i: IRValue | int, j: IRValue | int
    ) -> None:
        """A row of taps."""
        seen: dict[int, IRValue] = {}
        for k, pixels in enumerate(kind.inside):
            some = {p: states[p] for p in pixels if p in states}
            if some:
                self.tap(some, vector, i, j, k, seen)

    def tap(
        self,
        states: Any,
        vector: ChannelVector,
        i: Any,
        j: Any,
        k: Any,
        seen: dict[int, IRValue],
    ) -> None:
        (deep, high, wide), size = self.lines, self.slider.size
        taps = [tapOf(line, a) + later for line, a, later in zip(self.lines, (i, j, k), self.later)]
        number = (taps[0] * size[1] + taps[1]) * size[2] + taps[2]
        offset = (i * (deep.step * high.length) + j * high.step) * wide.length + k * wide.step
        d, h = self.starts[0] + i * deep.step, self.starts[1] + j * high.step
        row = ((self.n * deep.length + d) * high.length + h) * wide.length + self.left
        first = k * wide.step if isinstance(k, int) else 0
        indices = d, h, self.left + k * wide.step
        isNew = isinstance(j, IRValue) or j >= len(high.taps) - max(1, high.stride // high.step)
        ahead = high.stride * wide.length if isNew else 0
        tap = Tap(number, offset, row + k * wide.step, indices, first, wide.stride, ahead, self.here, wide.skip)
        self.slider.take(states, vector, tap, seen)


def tapOf(line: AxisMap, i: IRValue | int) -> IRValue | int:
    """The index in the window of a tap of an axis."""
    if isinstance(i, int):
        return line.taps[i]
    return i * (line.taps[1] - line.taps[0]) + line.taps[0] if len(line.taps) > 1 else i + line.taps[0]


def overTaps(code: IRBuilder, limit: tuple[IRValue, IRValue] | None) -> AbstractContextManager:
    """A loop over the taps within the limits; without limits the body once."""
    return code.loop(*limit, unroll=1) if limit else SingleIteration(code)


def tileOf(line: AxisMap, real: str) -> int:
    """Pixels of a tile."""
    most = 8 if registers(jit.lanes(SIZES[real]), real) == 32 else 4
    return max(1, ceil(line.count / max(1, ceil(line.count / most))))


def channelVectors(code: IRBuilder, channels: int, real: str) -> Iterator[tuple[int, int, int, IRValue | None]]:
    """Ranges of channels: begin, stop, lanes, and the mask of the last one."""
    lanes = jit.lanes(SIZES[real])
    vectorEnd = channels // lanes * lanes
    if vectorEnd:
        yield 0, vectorEnd, lanes, None
    if channels > vectorEnd:
        width = vectorsOf(channels - vectorEnd, lanes)[-1]
        yield (
            vectorEnd,
            channels,
            width,
            code.mask(channels - vectorEnd, width) if channels - vectorEnd < width else None,
        )


@contextmanager
def inside(code: IRBuilder, *taps: tuple[AxisMap, IRValue | int, IRValue]) -> Iterator[None]:
    """Run the body only where the taps are inside the image."""
    with ExitStack() as stack:
        for line, tap, position in taps:
            known = (tap,) if isinstance(tap, int) else edgeTaps(line)
            if all(line.isInside(a, t) for a in (0, line.count - 1) for t in known):
                continue
            stack.enter_context(code.when((position >= 0) & (position < line.length)))
        yield
