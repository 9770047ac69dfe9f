"""Depthwise convolutions, channels last, vectorised along channels."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import TYPE_CHECKING, Any

from puregraph.core.opensize import decided
from puregraph.ops.convolution.native.geometry import Geometry, forwardLine
from puregraph.ops.convolution.native.registertiling import registers
from puregraph.ops.convolution.native.slidingwindow import (
    MAX_UNROLLED_ROW_TAPS,
    ChannelVector,
    Lines,
    Tap,
    WindowLoop,
    channelVectors,
    dataPhases,
    fetch,
    forwardPhases,
    inside,
    taskCount,
    tileOf,
)
from puregraph.ops.convolution.native.taploops import SingleIteration, outputsOf, tapRuns
from puregraph.ops.native.llvm import jit
from puregraph.ops.native.llvm.instructions import SIZES, IRType, IRValue
from puregraph.ops.native.llvm.irbuilder import IRBuilder
from puregraph.ops.native.llvm.kernelcall import EpilogueSpec, KernelCall

if TYPE_CHECKING:
    from puregraph.core.protocols import Strided

MIN_PART_MULTIPLICATIONS = 1 << 18  # fewest multiplications of a part
MAX_ROW_PARTS = 16  # maximum number of parts that the rows are split into, in the weight gradient
MIN_LOOPED_TAPS = 64  # taps in a row from which on a loop sums them one by one
MAX_UNROLLED_GROUPS = 7  # maximum number of groups of tap rows that are unrolled in the weight gradient


def packedSize(g: Geometry) -> int:
    """Elements of the packed weight."""
    return g.taps * g.c


def pack(W: Any, packed: Strided, g: Geometry) -> list[KernelCall]:
    """W (c, 1, *size) as (taps, c), for forward and the data gradient."""
    taps, channels = g.taps, g.c

    def write(code: IRBuilder) -> None:
        w, to = code.pointer("W", g.real), code.pointer("packed", g.real)
        with code.loop(0, taps, unroll=1) as t, code.loop(0, channels) as c:
            to.store(t * channels + c, w.load(c * taps + t))

    return [KernelCall(f"pack {g.text}", f"packdw {taps} {channels} {g.real}", write, {"W": W, "packed": packed}, 1)]


def forward(
    x: Strided, packed: Strided, epilogue: EpilogueSpec, g: Geometry, xPixel: int | None = None
) -> list[KernelCall]:
    """y (n, *count, c) from x (n, *spatial, c)."""
    return [slide(f"depthwise {g.text}", g, forwardPhases(g.axes), x, xPixel or g.c, packed, epilogue)]


def dataGradient(
    grad: Strided, packed: Strided, epilogue: EpilogueSpec, g: Geometry, gradPixel: int | None = None
) -> list[KernelCall]:
    """dx (n, *spatial, c) from grad (n, *count, c)."""
    return [slide(f"depthwise dx {g.text}", g, dataPhases(g.axes), grad, gradPixel or g.c, packed, epilogue)]


def slide(
    name: str, g: Geometry, phases: list[Lines], x: Strided, xPixel: int, packed: Strided, epilogue: EpilogueSpec
) -> KernelCall:
    """The convolutions of all phases; every task computes some rows of each."""
    size = tuple(axis.size for axis in g.axes)
    tasks = taskCount(g.n, g.c, tuple(phases))
    key = f"depthwise {g.real} {g.c} {size} {phases} {xPixel} {epilogue.key}"

    def write(code: IRBuilder) -> None:
        DepthwiseForward(code, g, size, phases, xPixel, epilogue).write()

    return KernelCall(name, key, write, {"x": x, "b": packed, **epilogue.slots, "n": g.n, "tasks": tasks}, tasks)


class DepthwiseForward(WindowLoop):
    """The kernel: weighted sums of windows, for each channel."""

    def __init__(
        self,
        code: IRBuilder,
        g: Geometry,
        size: tuple[int, ...],
        phases: list[Lines],
        xPixel: int,
        epilogue: EpilogueSpec,
    ):
        super().__init__(code, g.c, size, phases, g.real)
        self.x, self.b, self.xPixel, self.epilogue = (
            code.pointer("x", g.real),
            code.pointer("b", g.real),
            xPixel,
            epilogue,
        )
        epilogue.open(code)

    def take(self, states: dict[int, Any], vector: ChannelVector, tap: Tap, seen: dict[int, IRValue]) -> None:
        c, lanes, live = vector
        weight = self.b.load(tap.number * self.channels + c, lanes, live)
        for _, state, value in fetch(self.x, self.xPixel, states, vector, tap, seen):
            state.value = self.code.fma(value, weight, state.value)


def weightWorkspace(g: Geometry) -> int:
    """Elements of workspace for the partial sums of the gradient."""
    return partsOf(g) * g.taps * g.c


@decided
def partsOf(g: Geometry) -> int:
    """The number of parts that the rows are split into, each with its own partial sums."""
    lines = [forwardLine(axis) for axis in g.axes]
    rows = g.n * lines[0].count * lines[1].count
    return max(1, min(rows, MAX_ROW_PARTS, g.n * g.outputPixels * g.c * g.taps // MIN_PART_MULTIPLICATIONS))


def weightGradient(
    grad: Strided,
    x: Strided,
    dW: Strided,
    workspace: Strided,
    g: Geometry,
    gradPixel: int | None = None,
    xPixel: int | None = None,
) -> list[KernelCall]:
    """dW (c, 1, *size) from grad (n, *count, c) and x (n, *spatial, c)."""
    parts, gradPixel, xPixel = partsOf(g), gradPixel or g.c, xPixel or g.c
    taps, channels = g.taps, g.c

    def write(code: IRBuilder) -> None:
        DepthwiseWeightGrad(code, g, gradPixel, xPixel).write()

    def add(code: IRBuilder) -> None:
        source, to, parts = code.pointer("workspace", g.real), code.pointer("dW", g.real), code.integer("parts")
        first, last = code.task * channels // tasks, (code.task + 1) * channels // tasks
        with code.loop(first, last, unroll=1) as c, code.loop(0, taps, unroll=1) as t:
            total = code.variable(source.load(t * channels + c))
            with code.loop(1, parts) as part:
                total.value = total.value + source.load(part * (taps * channels) + t * channels + c)
            to.store(c * taps + t, total.value)

    rows = g.n * g.axes[0].count * g.axes[1].count
    key = f"depthwisedw {g._replace(n=0)} {gradPixel} {xPixel}"
    tasks = max(1, min(8, channels * taps * parts >> 14))
    adding = f"partsdw {taps} {channels} {tasks} {g.real}"
    slots = {"g": grad, "x": x, "workspace": workspace, "rows": rows, "parts": parts}
    return [
        KernelCall(f"depthwise dW {g.text}", key, write, slots, parts),
        KernelCall(f"sum dW {g.text}", adding, add, {"workspace": workspace, "dW": dW, "parts": parts}, tasks),
    ]


class DepthwiseWeightGrad:
    """Writes the kernel of the weight gradient."""

    def __init__(self, code: IRBuilder, g: Geometry, gradPixel: int, xPixel: int):
        self.code, self.geometry, self.gradPixel, self.xPixel = code, g, gradPixel, xPixel
        self.lines = [forwardLine(axis) for axis in g.axes]
        self.pixels = min(tileOf(self.lines[2], g.real), 4)

    def write(self) -> None:
        code, g, (deep, high, _wide) = self.code, self.geometry, self.lines
        self.g, self.x, to = (code.pointer(name, g.real) for name in ("g", "x", "workspace"))
        self.to = to.at(code.task * (g.taps * g.c))
        rows, parts = code.integer("rows"), code.integer("parts")
        first, last = code.task * rows // parts, (code.task + 1) * rows // parts
        with code.loop(0, g.taps * g.c) as i:
            self.to.store(i, code.constant(0, IRType(g.real)))
        with code.loop(first, last, unroll=1) as row:
            h, n = row % high.count, row // high.count
            d, n = (n % deep.count, n // deep.count) if deep.count > 1 else (code.i64(0), n)
            self.h = h * high.stride + high.first
            self.row = row
            with SingleIteration(code) if len(deep.taps) == 1 else code.loop(0, len(deep.taps), unroll=1) as i:
                depth = d * deep.stride + (deep.first + i * deep.step)
                self.plane = n * deep.length + depth
                self.tap = i * (len(high.taps) * g.axes[2].size)
                isInside = (depth >= 0) & (depth < deep.length)
                with SingleIteration(code) if deep.length == deep.count == len(deep.taps) == 1 else code.when(isInside):
                    for begin, stop, lanes, live in channelVectors(code, g.c, g.real):
                        with code.loop(begin, stop, lanes, unroll=1) as c:
                            self.vector(c, lanes, live)

    def vector(self, c: IRValue, lanes: int, live: IRValue | None) -> None:
        """A row of pixels and a vector of channels: as many rows of taps at a time as the registers hold."""
        (_deep, high, wide), real = self.lines, self.geometry.real
        if len(wide.taps) > MIN_LOOPED_TAPS:
            self.oneByOne(c, lanes, live)
            return
        parts = ceil(len(wide.taps) / MAX_UNROLLED_ROW_TAPS)
        for part in range(parts):
            columns = wide.taps[part * len(wide.taps) // parts : (part + 1) * len(wide.taps) // parts]
            most = max(1, (registers(jit.lanes(SIZES[real]), real) - 6) // len(columns))
            count, stop = len(high.taps), 0
            if ceil(count / most) > MAX_UNROLLED_GROUPS:
                stop = count // most * most
                with self.code.loop(0, stop, most, unroll=1) as j:
                    self.rows([j + i for i in range(most)], columns, c, lanes, live)
            for begin in range(stop, count, most):
                self.rows(range(begin, min(begin + most, count)), columns, c, lanes, live)

    def oneByOne(self, c: IRValue, lanes: int, live: IRValue | None) -> None:
        """Tap after tap, in loops: code for each would grow with the square of a row of taps."""
        code, g, (_deep, high, wide) = self.code, self.geometry, self.lines
        with code.loop(0, len(high.taps), unroll=1) as j, code.loop(0, len(wide.taps), unroll=1) as k:
            at = c + (self.tap + (j * len(wide.taps) + k)) * g.c
            total = code.variable(self.to.load(at, lanes, live))
            h = self.h + j * high.step
            left, right = outputsOf(code, wide, k, code.i64(0), code.i64(wide.count))
            with inside(code, (high, j, h)), code.loop(left, right, unroll=1) as a:
                source = (self.plane * high.length + h) * wide.length + a * wide.stride + (wide.first + k * wide.step)
                grad = self.g.load((self.row * wide.count + a) * self.gradPixel + c, lanes, live)
                total.value = code.fma(self.x.load(source * self.xPixel + c, lanes, live), grad, total.value)
            self.to.store(at, total.value, live)

    def rows(
        self, taps: Sequence[IRValue | int], columns: Sequence[int], c: IRValue, lanes: int, live: IRValue | None
    ) -> None:
        """Some columns of some rows of taps."""
        code, g, (_deep, high, wide) = self.code, self.geometry, self.lines
        offsets = {
            (number, k): c + (self.tap + (j * len(wide.taps) + k)) * g.c
            for number, j in enumerate(taps)
            for k in columns
        }
        sums = {tap: code.variable(self.to.load(at, lanes, live)) for tap, at in offsets.items()}
        for kind in tapRuns(wide, self.pixels):
            with code.loop(kind.start, kind.stop, unroll=1) as i:
                a = i * self.pixels - kind.skip
                at = (self.row * wide.count + a) * self.gradPixel + c
                grads = {p: self.g.load(at + p * self.gradPixel, lanes, live) for p in range(kind.skip, self.pixels)}
                for number, j in enumerate(taps):
                    h = self.h + j * high.step
                    with inside(code, (high, j, h)):
                        row = (self.plane * high.length + h) * wide.length
                        source = (row + a * wide.stride + wide.first) * self.xPixel + c
                        loaded: dict[int, IRValue] = {}
                        for k in columns:
                            now = sums[number, k].value
                            for p in kind.inside[k]:
                                if p < kind.skip:
                                    continue
                                position = p * wide.stride + k * wide.step
                                if position not in loaded:
                                    loaded[position] = self.x.load(source + position * self.xPixel, lanes, live)
                                now = code.fma(loaded[position], grads[p], now)
                            sums[number, k].value = now
        for tap, at in offsets.items():
            self.to.store(at, sums[tap].value, live)
