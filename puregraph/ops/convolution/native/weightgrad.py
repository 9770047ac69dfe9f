"""The weight gradient of a direct convolution, channels last.

dW[o, c, t] = sum over pixels of grad[pixel, o] x[pixel stride + t, c]. A register tile of input channels times vectors
of output channels accumulates over the pixels of a strip; between strips, which are small enough to stay in L1 for all
taps, the sums are stored in scratch memory. Where there are too few tiles for the tasks, the samples are split into
parts whose partial sums are added in the end, always the same parts in the same order.

Few input channels fill no tile: then a strip is copied with its padding, and a tile has the inputs of a row of taps.
"""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, Any

from puregraph.core.opensize import decided
from puregraph.ops.convolution.native.geometry import Geometry, forwardLine
from puregraph.ops.convolution.native.weightgradspec import WeightGradSpec
from puregraph.ops.convolution.native.weightgradtiles import OneTapTiles, TapRowTiles
from puregraph.ops.native.llvm import jit
from puregraph.ops.native.llvm.instructions import SIZES
from puregraph.ops.native.llvm.irbuilder import IRBuilder
from puregraph.ops.native.llvm.kernelcall import KernelCall, madeFor, variedFor

if TYPE_CHECKING:
    from puregraph.core.protocols import Strided
    from puregraph.ops.ir.value import Value


def specOf(g: Geometry) -> WeightGradSpec:
    """The sums of the weight gradient of a convolution."""
    lines = tuple(forwardLine(axis) for axis in g.axes)
    return WeightGradSpec(g.n, g.c // g.groups, g.o // g.groups, g.groups, lines, g.real)  # type: ignore[arg-type]


@decided
def partsOf(g: Geometry) -> int:
    """The parts that the sums are split into."""
    return specOf(g).plan().parts


@decided
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
    gradPixel, xPixel = gradPixel or g.o, xPixel or g.c

    def calls(g: Geometry) -> list[KernelCall]:
        parts = partsOf(g)
        if parts == 1:
            return [weightSums(grad, x, dW, g, False, gradPixel, xPixel)]
        ending = addParts(f"sum dW {g.text}", workspace, dW, g.o * (g.c // g.groups) * g.taps, parts, g.real)
        return [weightSums(grad, x, workspace, g, True, gradPixel, xPixel), ending]

    return variedFor(calls, g)


def weightSums(grad: Value, x: Value, to: Value, g: Geometry, isSplit: bool, gradPixel: int, xPixel: int) -> KernelCall:
    """The sums of a weight gradient; split, partial sums of some samples each."""

    def make(of: WeightGradSpec) -> KernelCall:
        plan = of.plan()
        tiles = 1 if of.isFew else ceil(of.inChannels / plan.rows)
        panels = ceil(of.outChannels / plan.width)
        tasks = of.groups * ceil(panels / plan.panels) * ceil(tiles / plan.tiles) * plan.parts
        key = f"convdw {of._replace(n=0)} {plan._replace(parts=0)} {isSplit} {gradPixel} {xPixel}"

        def write(code: IRBuilder) -> None:
            (TapRowTiles if of.isFew else OneTapTiles)(code, of, plan, gradPixel, xPixel).write()

        slots: dict[str, Any] = {"g": grad, "x": x, "to": to}
        slots |= {"planes": of.planes, "strips": plan.strips(of), "parts": plan.parts}
        return KernelCall(f"conv dW {g.text}", key, write, slots, tasks)

    return madeFor(make, specOf(g))


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
