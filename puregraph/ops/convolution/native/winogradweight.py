"""Winograd weight gradient: the gradient of a convolution's weight, summed over transformed tiles.

A task has a block of input channels, a panel of output channels and a part of the tiles. It transforms some tiles of x
and of grad at a time and adds, for each of the 36 positions, their products to accumulators that stay in L2; in the
end these are transformed to gradients of 3x3 filters. Partial sums are added in their order.
"""

from __future__ import annotations

from math import ceil, prod
from typing import TYPE_CHECKING, Any, NamedTuple

from puregraph.core.opensize import decided, largest, smallest
from puregraph.ops.convolution.native.geometry import Geometry
from puregraph.ops.convolution.native.registertiling import registers
from puregraph.ops.convolution.native.tilegather import TileReader, TileScratch
from puregraph.ops.convolution.native.weightgrad import addParts
from puregraph.ops.convolution.native.winograd import isSupported
from puregraph.ops.convolution.native.winogradmath import (
    POSITIONS,
    TILE,
    TILE_OUTPUTS,
    both,
    inputs,
    outputsBack,
    weightsBack,
)
from puregraph.ops.native.llvm import jit
from puregraph.ops.native.llvm.instructions import IRType, IRValue
from puregraph.ops.native.llvm.irbuilder import IRBuilder
from puregraph.ops.native.llvm.kernelcall import KernelCall, variedFor
from puregraph.ops.native.llvm.registertranspose import transposed

if TYPE_CHECKING:
    from puregraph.core.protocols import Strided

MAX_SPLIT_TASKS = 16  # tasks beyond which the tiles are not split
TRANSFORMED_TILES = 28  # tiles that are transformed at a time
MAX_TASK_CHANNELS = 64  # maximum number of input channels of a task
FILTER_TAPS = 9


@decided
def isFaster(g: Geometry) -> bool:
    """True if this is supported and faster than direct sums: if there are enough tiles."""
    n, high, wide = tilesOf(g)
    waste = high * wide * TILE_OUTPUTS**2 / max(1, g.axes[1].count * g.axes[2].count)
    return isSupported(g) and n * high * wide >= TRANSFORMED_TILES and waste < 2


class WinogradWeightSplit(NamedTuple):
    """The split of the sums into tasks."""

    block: int  # input channels of a task
    width: int  # output channels of a task
    rows: int  # input channels in registers
    parts: int  # parts that the tiles are split into


def tilesOf(g: Geometry) -> tuple[int, int, int]:
    """Samples, and tiles on each axis."""
    return g.n, ceil(g.axes[1].count / TILE_OUTPUTS), ceil(g.axes[2].count / TILE_OUTPUTS)


def planOf(g: Geometry) -> WinogradWeightSplit:
    """The widest blocks and most rows that channels and registers allow, in enough parts for about 16 tasks."""
    lanes = jit.lanes(4)
    most = registers(lanes)
    vectors = next(v for v in (2, 3, 1) if g.o % (v * lanes) == 0)
    block = max(b for b in range(lanes, MAX_TASK_CHANNELS + 1, lanes) if g.c % b == 0)
    rows = max(r for r in range(1, 17) if block % r == 0 and r * vectors + vectors < most)
    n, high, wide = tilesOf(g)
    tasks = g.c // block * (g.o // (vectors * lanes))
    parts = largest(1, smallest(MAX_SPLIT_TASKS // tasks, n * high * wide // TRANSFORMED_TILES))
    return WinogradWeightSplit(block, vectors * lanes, rows, parts)


@decided
def weightWorkspace(g: Geometry) -> int:
    """Elements of workspace for the partial sums of the gradient."""
    parts = planOf(g).parts
    return 0 if parts == 1 else parts * g.o * g.c * FILTER_TAPS


def weightGradient(
    grad: Strided,
    x: Strided,
    dW: Strided,
    workspace: Strided,
    g: Geometry,
    gradPixel: int | None = None,
    xPixel: int | None = None,
) -> list[KernelCall]:
    """dW (o, c, 3, 3) from grad (n, *count, o) and x (n, *spatial, c)."""
    gradPixel, xPixel = gradPixel or g.o, xPixel or g.c

    def calls(g: Geometry) -> list[KernelCall]:
        plan = planOf(g)
        isSplit, tasks = plan.parts > 1, plan.parts * (g.c // plan.block) * (g.o // plan.width)

        def write(code: IRBuilder) -> None:
            WinogradWeightWriter(code, g, plan, gradPixel, xPixel).write()

        slots = {"g": grad, "x": x, "to": workspace if isSplit else dW, "tiles": prod(tilesOf(g)), "parts": plan.parts}
        key = f"winograddw {g._replace(n=0)} {plan._replace(parts=0)} {isSplit} {gradPixel} {xPixel}"
        sums = KernelCall(f"conv dW {g.text}", key, write, slots, tasks)
        if not isSplit:
            return [sums]
        return [sums, addParts(f"sum dW {g.text}", workspace, dW, g.o * g.c * FILTER_TAPS, plan.parts)]

    return variedFor(calls, g)


class WinogradWeightWriter:
    """Writes the kernel."""

    def __init__(self, code: IRBuilder, g: Geometry, plan: WinogradWeightSplit, gradPixel: int, xPixel: int):
        self.code, self.geometry, self.plan, self.gradPixel, self.xPixel = code, g, plan, gradPixel, xPixel
        self.lanes = jit.lanes(4)
        self.starts = range(0, plan.width, self.lanes)

    def write(self) -> None:
        code, g, plan, (_, high, wide) = self.code, self.geometry, self.plan, self.geometry.axes
        grad, x, to = code.pointer("g", "f32"), code.pointer("x", "f32"), code.pointer("to", "f32")
        tiles, parts = code.integer("tiles"), code.integer("parts")
        blocks = g.c // plan.block
        part, task = code.task % parts, code.task // parts
        c, o = task % blocks * plan.block, task // blocks * plan.width
        self.v = TileScratch(code, TRANSFORMED_TILES, plan.block)
        self.m = TileScratch(code, TRANSFORMED_TILES, plan.width)
        self.sums = TileScratch(code, plan.block, plan.width)
        self.filters = code.scratch("f32", FILTER_TAPS * self.lanes * self.lanes)
        reader = TileReader(
            code, x, self.xPixel, plan.block, (high.length, high.before), (wide.length, wide.before), inputs
        )
        back = TileReader(code, grad, self.gradPixel, plan.width, (high.count, 0), (wide.count, 0), outputsBack)
        with code.loop(0, POSITIONS * self.sums.pitch, self.lanes, unroll=1) as i:
            self.sums.memory.store(i, code.constant(0, IRType("f32", self.lanes)))
        _, rows, columns = tilesOf(g)
        last = (part + 1) * tiles // parts
        with code.loop(part * tiles // parts, last, TRANSFORMED_TILES, unroll=1) as begin:
            count = code.min(last - begin, TRANSFORMED_TILES)
            with code.loop(0, count, unroll=1) as i:
                tile = begin + i
                where = tile // (rows * columns), tile // columns % rows, tile % columns
                reader.tile(*where, self.v, i, c)
                back.tile(*where, self.m, i, o)
            with code.loop(0, POSITIONS, unroll=1) as position, code.loop(0, plan.block, plan.rows, unroll=1) as row:
                self.product(position, row, count)
        to = to.at(part * (g.o * g.c * FILTER_TAPS)) if plan.parts > 1 else to
        with code.loop(0, plan.block, self.lanes, unroll=1) as i:
            for start in self.starts:
                self.writeGradient(i, start, to.at(((o + start) * g.c + c + i) * FILTER_TAPS))

    def product(self, position: IRValue, row: IRValue, count: IRValue) -> None:
        """Add the products of some tiles at one position to the accumulators of some input channels."""
        code, plan, lanes = self.code, self.plan, self.lanes
        address = self.sums.memory.at(self.sums.at(position, row, 0))
        sums = [
            [code.variable(address.load(r * plan.width + start, lanes)) for start in self.starts]
            for r in range(plan.rows)
        ]
        v, m = self.v.at(position, code.i64(0), row), self.m.at(position, code.i64(0), 0)
        with code.loop(0, count, unroll=1) as i:
            factors, vectors = self.v.memory.at(v + i * plan.block), self.m.memory.at(m + i * plan.width)
            taken = [vectors.load(start, lanes) for start in self.starts]
            for r, accumulators in enumerate(sums):
                factor = code.splat(factors.load(r), lanes)
                for variable, vector in zip(accumulators, taken):
                    variable.value = code.fma(factor, vector, variable.value)
        for r, accumulators in enumerate(sums):
            for start, variable in zip(self.starts, accumulators):
                address.store(r * plan.width + start, variable.value)

    def writeGradient(self, row: IRValue, start: int, to: Any) -> None:
        """The gradients of lanes x lanes filters, transposed from vectors along outputs to OIHW."""
        code, g, lanes = self.code, self.geometry, self.lanes
        with code.loop(0, lanes, unroll=1) as i:
            square = [[self.sums.load(a * TILE + b, row + i, start, lanes) for b in range(TILE)] for a in range(TILE)]
            for a, values in enumerate(both(code, weightsBack, square)):
                for b, value in enumerate(values):
                    self.filters.store((i * FILTER_TAPS + a * 3 + b) * lanes, value)
        with code.loop(0, FILTER_TAPS * lanes, lanes, unroll=1) as i:
            columns = transposed(code, [self.filters.load((i + k) * lanes, lanes) for k in range(lanes)])
            for k, value in enumerate(columns):
                to.store(i + k * (g.c * FILTER_TAPS), value)
