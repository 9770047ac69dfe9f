"""Loop nests as native code: the vectorised axis is the one along which memory is contiguous.

The reductions decide which of the other axes are split into tasks:

*rows*     the contiguous axis is reduced, or none is: a task has some rows, each in phases, one after each reduction
*columns*  other axes are reduced: a task has a block of columns; sums stay in registers over all rows

Results never depend on the number of threads. A nest may reduce the columns of each row and, at its end, the rows too
(the gradient of a normalisation and of its scale): each task stores partial sums over its own rows.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from math import isqrt, prod
from typing import Any

import numpy as np

from puregraph.core.opensize import decided, isOpen, largest, smallest
from puregraph.ops.formula.loopnest import (
    LoopNest,
    Reduce,
    ReducedNest,
    besides,
    chunked,
    collapsed,
    ordered,
    parted,
    reduceSets,
    saved,
    title,
)
from puregraph.ops.native.llvm.irbuilder import IRBuilder
from puregraph.ops.native.llvm.kernelcall import KernelCall
from puregraph.ops.native.nests.columnkernel import writeColumns
from puregraph.ops.native.nests.nestscope import NestCode, lanesOf, scaled
from puregraph.ops.native.nests.rowkernel import UNROLL, RowKernel

MAX_UNSPLIT_ROWS = 32  # columns of up to this many rows are summed at once, not in parts,
LITTLE, TALL = 1 << 16, 1 << 11  # as are those of up to LITTLE elements in up to TALL rows
PART_ROWS, MIN_PARTS = 512, 8  # maximum rows of a part, and the minimum number of parts
NEST_TASK_ELEMENTS = 16384  # elements of a task without reductions
MIN_CHAIN_ROWS = 16  # fewest rows that are summed sequentially; with as many chains, rounding errors stay small
MIN_ROW_TASK_ELEMENTS = 8192  # fewest elements of the rows of a task
BLOCK_VECTORS = 4  # vectors of columns in a block
SCRATCH_ROW_ELEMENTS = 1 << 14  # elements of a row up to which values are stored in scratch memory between phases


def nestCalls(nest: LoopNest, scratch: Callable[[int], Any]) -> list[KernelCall]:
    """The kernel calls that compute a nest; `scratch(count)` gives memory of its kind for partial results.

    Raises    ValueError for reductions that do not fit in one nest
    """
    nest = collapsed(ordered(nest))
    inner = len(nest.space) - 1
    sets = reduceSets(nest)
    if len(sets) > 2:
        raise ValueError(f"reductions over {len(sets)} sets of axes do not fit in one nest")
    if not sets:
        isLong = isOpen(nest.space[0]) or nest.space[0] > NEST_TASK_ELEMENTS
        cut = chunked(nest, 0, NEST_TASK_ELEMENTS) if inner == 0 and isLong else nest
        return [rowCall(cut, frozenset([len(cut.space) - 1]))]
    axes = next((reduced for reduced in sets if inner in reduced), sets[0])
    long = prod(nest.space[a] for a in axes)
    if len(sets) == 2:
        first, second = besides(nest, axes, rowBlock(nest, axes), scratch)
        return [rowCall(first, axes), *nestCalls(second, scratch)]
    if inner in axes and (long <= 4 * NEST_TASK_ELEMENTS or prod(nest.space) >= 64 * long):
        return [rowCall(nest, axes)]
    if inner not in axes and isColumn(long, prod(nest.space)):
        return [columnCall(nest, axes)]
    rows = NEST_TASK_ELEMENTS if inner in axes else min(PART_ROWS, -(-long // MIN_PARTS))
    first, second = parted(nest, axes, rows, scratch)
    return [
        rowCall(first, reduceSets(first)[0]) if inner in axes else columnCall(first, reduceSets(first)[0]),
        *nestCalls(second, scratch),
    ]


def isColumn(rows: int, elements: int) -> bool:
    """True if a task sums whole columns: it then reads data written by other cores, which pays off only for small
    sizes."""
    return rows <= MAX_UNSPLIT_ROWS or (rows <= TALL and elements <= LITTLE)


def rowsPerTask(rows: int, cols: int) -> int:
    """The number of rows in a task."""
    return largest(1, smallest(rows, -(-MIN_ROW_TASK_ELEMENTS // largest(cols, 1))))


def rowBlock(nest: LoopNest, axes: frozenset[int]) -> int:
    """The number of rows in a task, for a nest that reduces these axes."""
    length = prod(nest.space[a] for a in axes)
    return rowsPerTask(prod(nest.space) // max(length, 1), length)


def keyOf(shape: ReducedNest) -> str:
    """The key of a nest's code, as text: everything but sizes, strides, factors and addresses."""
    operands = [
        (k, o.kind, tuple(1 if s == 1 and a == shape.inner else bool(s) * 2 for a, s in enumerate(o.strides)))
        for k, o in shape.operands.items()
    ]
    factors = scaled(shape)
    lines = [
        (n, x if isinstance(x, Reduce) else str(factors[n][0] if n in factors else x)) for n, x in shape.nest.lines
    ]
    text = [(n, (x.how, x.of, sorted(x.axes)) if isinstance(x, Reduce) else x) for n, x in lines]
    ragged = shape.nest.ragged and shape.nest.ragged[0]
    return repr(
        (shape.nest.kind, len(shape.nest.space), sorted(shape.axes), operands, text, ragged, bool(shape.nest.beside))
    )


def slotsOf(shape: ReducedNest) -> dict[str, Any]:
    """The arguments of the kernel."""
    slots: dict[str, Any] = {}
    for k, o in shape.operands.items():
        slots[k] = o.what
        slots |= {f"{k}_{a}": s for a, s in enumerate(o.strides) if s and not (s == 1 and a == shape.inner)}
    slots |= {f"n_{a}": n for a, n in enumerate(shape.nest.space)}
    slots |= {f"factor_{n}": bitsOf(factor) for n, (_, factor) in scaled(shape).items()}
    if shape.nest.ragged:
        slots["whole"] = shape.nest.ragged[1]
    return slots


@decided
def bitsOf(value: float) -> int:
    """The bits of a float64 as an integer, for a slot."""
    return int(np.float64(value).view(np.int64))


def rowCall(nest: LoopNest, axes: frozenset[int]) -> KernelCall:
    """Reductions along the contiguous axis: tasks are blocks of rows."""
    shape = ReducedNest(nest, axes)
    rows = prod(nest.space[a] for a in shape.outer)
    length = prod(nest.space[a] for a in shape.loops)
    block = nest.beside or rowsPerTask(rows, length)
    near = 0
    if saved(shape) and len(shape.loops) == 1 and length <= SCRATCH_ROW_ELEMENTS:
        near = 1 << max(length - 1, 15).bit_length()
    steps = [nest.space[a] for a in shape.loops]
    steps[-1] = -(-steps[-1] // (lanesOf(nest) * UNROLL))
    spot, chain = chainOf(*steps) if shape.reductions else (None, 0)
    cut = None if spot is None else shape.loops[spot]

    def write(code: IRBuilder) -> None:
        RowKernel(NestCode(code, shape), near, cut).write()

    slots = {**slotsOf(shape), "rows": rows, "block": block, **({} if cut is None else {"chain": chain})}
    return KernelCall(title(shape.nest), f"rows {near} {cut} {keyOf(shape)}", write, slots, -(-rows // block))


@decided
def chainOf(*steps: int) -> tuple[int | None, int]:
    """(the reduced axis of a row to cut into chains, their length); the axis is None if a row is one short chain.

    `steps` are the sums along each reduced axis. The length of a chain equals the number of chains, so that both sums
    have about the same rounding error.
    """
    length, inside = prod(steps), 1
    root = isqrt(length)
    if length > 2 * MIN_CHAIN_ROWS:
        for axis, n in reversed([*enumerate(steps)]):
            if inside * n >= root:
                return axis, max(1, root // inside)
            inside *= n
    return None, 0


def columnCall(nest: LoopNest, axes: frozenset[int]) -> KernelCall:
    """Reductions over rows: tasks are blocks of columns along the last axis."""
    shape = ReducedNest(nest, axes)
    lanes = lanesOf(nest)
    columns = nest.space[-1]
    wide = operator.index(blockVectors(columns, lanes))  # the code has a register for each vector
    exact = columns % (wide * lanes) == 0
    blocks = -(-columns // (wide * lanes))
    others = prod(nest.space[a] for a in shape.outer[:-1])

    def write(code: IRBuilder) -> None:
        writeColumns(NestCode(code, shape), wide, exact)

    slots = {**slotsOf(shape), "blocks": blocks, "chain": chainRows(nest.space[shape.loops[-1]])}
    return KernelCall(title(shape.nest), f"columns {wide} {exact} {keyOf(shape)}", write, slots, blocks * others)


@decided
def blockVectors(columns: int, lanes: int) -> int:
    """The vectors of columns in a block."""
    return min(BLOCK_VECTORS, 1 << max(-(-columns // lanes) - 1, 0).bit_length())


@decided
def chainRows(rows: int) -> int:
    """The number of rows of a column that are summed sequentially."""
    return max(MIN_CHAIN_ROWS, isqrt(rows))
