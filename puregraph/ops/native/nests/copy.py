"""Strided copies: elements copied from one layout to another, transposed where needed; fills.

    stridedCopy("f32", x, (n, c, h, w), (c h w, h w, w, 1), y, (h w c, 1, w c, c))

Axes that are contiguous in both are merged. If the contiguous axes are the same, rows are copied; if not, square tiles
are transposed in registers. A stride of 0 broadcasts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from puregraph.core.opensize import largest, sized, smallest
from puregraph.ops.native.llvm import jit
from puregraph.ops.native.llvm.instructions import SIZES, IRPointer, IRType, IRValue
from puregraph.ops.native.llvm.irbuilder import IRBuilder
from puregraph.ops.native.llvm.kernelcall import KernelCall
from puregraph.ops.native.llvm.registertranspose import transposed

if TYPE_CHECKING:
    from puregraph.core.protocols import Strided
    from puregraph.ops.ir.value import Value

COPY_TASK_ELEMENTS = 1 << 14  # fewest elements that a task copies
TILES_AHEAD = 4  # tiles that are prefetched before they are read


class CopyAxis(NamedTuple):
    """An axis: its size, and its strides in the source and the target."""

    size: int
    source: int
    target: int


def lanesOf(kind: str) -> int:
    """The number of lanes of vectors of this kind: the side of transposed tiles."""
    return max(4, min(16, jit.lanes(SIZES[kind])))


def merged(shape: Sequence[int], source: Sequence[int], target: Sequence[int]) -> list[CopyAxis]:
    """The axes, merged where possible, in decreasing order of target strides."""
    axes = sorted((CopyAxis(*row) for row in zip(shape, source, target) if row[0] != 1), key=lambda a: -a.target)
    joined: list[CopyAxis] = []
    for axis in axes:
        if joined and joined[-1].source == axis.size * axis.source and joined[-1].target == axis.size * axis.target:
            joined[-1] = CopyAxis(joined[-1].size * axis.size, axis.source, axis.target)
        else:
            joined.append(axis)
    return joined


def stridedCopy(
    kind: str,
    x: Value,
    shape: Sequence[int],
    source: Sequence[int],
    y: Any,
    target: Sequence[int],
    name: str = "copy",
) -> list[KernelCall]:
    """y at `target` strides = x at `source` strides; the kind gives the size of an element."""
    axes = merged(shape, source, target)
    if 0 in shape:
        return []
    title = sized(f"{name} {'x'.join(['{}'] * len(shape))}", *shape)
    if not axes or axes[-1].target != 1:
        axes.append(CopyAxis(1, 1, 1))
    side = next((i for i, axis in enumerate(axes[:-1]) if axis.source == 1), None)
    row = axes[-1]
    if row.source == 1 or row.source == 0 or side is None:
        return rowCopy(title, kind, x, y, axes)
    return transposeCopy(title, kind, x, y, [a for i, a in enumerate(axes[:-1]) if i != side], axes[side], row)


def slotsOf(x: Any, y: Any, outer: Sequence[CopyAxis]) -> dict[str, Any]:
    """The arguments of a kernel: where x and y are, and the size and strides of each outer axis."""
    slots = {"x": x, "y": y}
    for i, axis in enumerate(outer):
        slots |= {f"size{i}": axis.size, f"source{i}": axis.source, f"target{i}": axis.target}
    return slots


def rowCopy(title: str, kind: str, x: Value, y: Strided, axes: list[CopyAxis]) -> list[KernelCall]:
    """Row by row: a task has some rows of the last axis but one."""
    *outer, line, row = axes if len(axes) > 1 else [CopyAxis(1, 0, 0), *axes]
    width = smallest(row.size, COPY_TASK_ELEMENTS)
    step = largest(1, smallest(line.size, COPY_TASK_ELEMENTS // width))
    across, down = -(-row.size // width), -(-line.size // step)
    count = 1
    for axis in outer:
        count *= axis.size
    slots = slotsOf(x, y, outer) | {"lineSize": line.size, "lineSource": line.source, "lineTarget": line.target}
    slots |= {"size": row.size, "source": row.source, "width": width, "step": step, "across": across, "down": down}
    mode = {0: "same", 1: "row"}.get(row.source, "apart")
    write = partial(writeRows, kind=kind, outer=len(outer), mode=mode)
    return [KernelCall(title, f"{kind} {len(outer)} {mode} {jit.lanes(4)}", write, slots, count * across * down)]


def offsets(code: IRBuilder, index: IRValue, outer: int) -> tuple[IRValue, IRValue]:
    """The offsets in source and target of a flat index of all outer axes."""
    far, to = code.i64(0), code.i64(0)
    axes = [[code.integer(f"{what}{i}") for what in ("size", "source", "target")] for i in range(outer)]
    for size, source, target in reversed(axes):
        far, to = far + index % size * source, to + index % size * target
        index = index // size
    return far, to


def writeRows(code: IRBuilder, kind: str, outer: int, mode: str) -> None:
    """Rows of y from contiguous, broadcast or strided elements of x."""
    lanes = lanesOf(kind)
    x, y = code.pointer("x", kind), code.pointer("y", kind)
    lines, lineSource, lineTarget = (code.integer("line" + what) for what in ("Size", "Source", "Target"))
    size, source, width = code.integer("size"), code.integer("source"), code.integer("width")
    step, across, down = code.integer("step"), code.integer("across"), code.integer("down")
    far, to = offsets(code, code.task // (across * down), outer)
    first, start = code.task // across % down * step, code.task % across * width
    count = code.min(width, size - start)
    vectorEnd = count - count % lanes
    with code.loop(first, code.min(first + step, lines), unroll=1) as j:
        input = x.at(far + j * lineSource + start * source)
        output = y.at(to + j * lineTarget + start)
        if mode == "row":
            with code.loop(0, vectorEnd, lanes) as c:
                output.store(c, input.load(c, lanes))
            with code.loop(vectorEnd, count, unroll=1) as c:
                output.store(c, input.load(c))
        elif mode == "same":
            value = input.load()
            with code.loop(0, vectorEnd, lanes) as c:
                output.store(c, code.splat(value, lanes))
            with code.loop(vectorEnd, count, unroll=1) as c:
                output.store(c, value)
        else:
            with code.loop(0, count, unroll=4) as c:
                output.store(c, input.load(c * source))


def transposeCopy(
    title: str, kind: str, x: Value, y: Any, outer: list[CopyAxis], side: CopyAxis, row: CopyAxis
) -> list[KernelCall]:
    """Square tiles of `side`, contiguous in x, by `row`, contiguous in y; a task has some of the side."""
    lanes = lanesOf(kind)
    step = largest(1, COPY_TASK_ELEMENTS // (lanes * row.size)) * lanes
    down = -(-side.size // step)
    count = 1
    for axis in outer:
        count *= axis.size
    slots = slotsOf(x, y, outer) | {"sideSize": side.size, "sideTarget": side.target, "step": step, "down": down}
    slots |= {"size": row.size, "source": row.source}
    write = partial(writeTranspose, kind=kind, outer=len(outer))
    return [KernelCall(title, f"{kind} {len(outer)} squares {jit.lanes(4)}", write, slots, count * down)]


def writeTranspose(code: IRBuilder, kind: str, outer: int) -> None:
    """y = x' in square tiles of as many rows as a vector has lanes, transposed in registers."""
    lanes = lanesOf(kind)
    x, y = code.pointer("x", kind), code.pointer("y", kind)
    sides, sideTarget = code.integer("sideSize"), code.integer("sideTarget")
    size, source, step, down = (code.integer(name) for name in ("size", "source", "step", "down"))
    far, to = offsets(code, code.task // down, outer)
    first = code.task % down * step
    end = code.min(first + step, sides)
    with code.loop(first, end, lanes, unroll=1) as i, code.loop(0, size, lanes, unroll=1) as j:
        input, output = x.at(far + i + j * source), y.at(to + i * sideTarget + j)
        isWhole = (i + lanes <= end) & (j + lanes <= size)
        with code.when(isWhole):
            for r in range(lanes):
                input.prefetch(source * r + TILES_AHEAD * lanes)
            columns = transposed(code, [input.load(source * r, lanes) for r in range(lanes)])
            for r, column in enumerate(columns):
                output.store(sideTarget * r, column)
        with code.when(~isWhole):
            partialTile(code, input, output, source, sideTarget, code.min(lanes, end - i), code.min(lanes, size - j))


def partialTile(
    code: IRBuilder,
    input: IRPointer,
    output: IRPointer,
    source: IRValue,
    target: IRValue,
    height: IRValue,
    width: IRValue,
) -> None:
    """A tile at the border, element by element."""
    with code.loop(0, height, unroll=1) as i, code.loop(0, width, unroll=1) as j:
        output.store(i * target + j, input.load(i + j * source))


def fill(kind: str, y: Value, count: int, value: float) -> list[KernelCall]:
    """y[i] = value for i < count."""
    slots = {"y": y, "count": count}
    return [
        KernelCall(
            sized("fill {}", count),
            f"{kind} {value!r} {jit.lanes(4)}",
            partial(writeFill, kind, value),
            slots,
            -(-count // COPY_TASK_ELEMENTS),
        )
    ]


def writeFill(kind: str, value: float, code: IRBuilder) -> None:
    """A chunk of y with one value everywhere."""
    lanes = lanesOf(kind)
    y, count = code.pointer("y", kind), code.integer("count")
    start = code.task * COPY_TASK_ELEMENTS
    end = code.min(start + COPY_TASK_ELEMENTS, count)
    vectorEnd = start + (end - start) // lanes * lanes
    vector: Callable[[int], IRValue] = lambda n: code.constant(value, IRType(kind, n))  # noqa: E731
    with code.loop(start, vectorEnd, lanes) as i:
        y.store(i, vector(lanes))
    with code.loop(vectorEnd, end, unroll=1) as i:
        y.store(i, vector(1))
