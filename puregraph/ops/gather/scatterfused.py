"""Scatter-add with a fused epilogue: the sums of each row go to the epilogue, and are never stored as a table.

A task has some rows. It adds their gradients to sums in scratch memory, one for each row that occurs, and then loops
over all of its rows: rows that do not occur are zero.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from puregraph.core.opensize import sized
from puregraph.ops.gather.native import inRange
from puregraph.ops.native.llvm import jit
from puregraph.ops.native.llvm.instructions import SIZES, IRType, IRValue
from puregraph.ops.native.llvm.irbuilder import IRBuilder
from puregraph.ops.native.llvm.kernelcall import EpilogueSpec, KernelCall, madeFor

if TYPE_CHECKING:
    from puregraph.core.protocols import Strided

TASK_COLUMNS = 512  # columns of a task
SCRATCH_ELEMENTS = 1 << 15  # elements of scratch memory of a task, about
MIN_TASKS = 8


def scatterAddFused(
    grad: Strided,
    gradRow: int,
    index: Strided,
    indexStep: int,
    count: int,
    epilogue: EpilogueSpec,
    rows: int,
    width: int,
    fault: Any,
    real: str = "f32",
) -> list[KernelCall]:
    """epilogue(row, the sum of grad[i] for all i < count with index[i] = row, in order) for every row of a table."""
    lanes, name = jit.lanes(SIZES[real]), sized("scatterAdd {}x{}", count, width)
    slots = {"grad": grad, "gradRow": gradRow, "index": index, "indexStep": indexStep, "count": count}
    slots |= {"rows": rows, "width": width, "fault": fault, **epilogue.slots}

    def make(count: int, rows: int, width: int) -> KernelCall:
        wide = -(-width // TASK_COLUMNS)
        columns = -(-width // (wide * lanes)) * lanes
        most = SCRATCH_ELEMENTS // columns
        part = max(1, min(-(-rows // MIN_TASKS), SCRATCH_ELEMENTS if count < most else most))
        distinct = min(part, 1 << max(count - 1, 0).bit_length())  # few numbers of indices need a kernel of their own
        sizes = part, distinct + 1, columns, wide, width if wide == 1 else None
        write = partial(writeScatterFused, *sizes, epilogue=epilogue, real=real)
        return KernelCall(name, f"{real} {lanes} {epilogue.key}", write, slots, -(-rows // part) * wide)

    return [madeFor(make, count, rows, width)]


def writeScatterFused(
    part: int,
    most: int,
    columns: int,
    wide: int,
    fixedWidth: int | None,
    code: IRBuilder,
    epilogue: EpilogueSpec,
    real: str,
) -> None:
    """Sums of a task's rows, in the order of the indices; then each of its rows. `own` is the width if it is known."""
    lanes = jit.lanes(SIZES[real])
    grad, index, fault = (code.pointer(n, k) for n, k in (("grad", real), ("index", "i64"), ("fault", "i64")))
    gradRow, indexStep, count, rows, width = (
        code.integer(name) for name in ("gradRow", "indexStep", "count", "rows", "width")
    )
    epilogue.open(code)
    slot, sums = code.scratch("i32", part + lanes), code.scratch(real, most * columns)
    low, first = code.task // wide * part, code.task % wide * columns
    high = code.min(low + part, rows)
    zero, none = code.constant(0.0, IRType(real, lanes)), code.constant(0, IRType("i32", lanes))

    def mask(c: int) -> IRValue | None:
        if fixedWidth is None:
            return code.mask(width - first - c, lanes)
        return None if c + lanes <= fixedWidth else code.mask(fixedWidth - c, lanes)

    with code.loop(0, high - low, lanes, unroll=1) as r:
        slot.store(r, none)
    for c in range(0, columns, lanes):
        sums.store(c, zero)
    distinct = code.variable(code.i64(0))
    with code.loop(0, count, unroll=1) as i:
        at = index.load(i * indexStep)
        inRange(code, at, rows, fault)
        with code.when((at >= low) & (at < high)):
            source, known = grad.at(i * gradRow + first), code.convert(slot.load(at - low), "i64")
            with code.when(known == 0):
                distinct.value = distinct.value + 1
                slot.store(at - low, code.convert(distinct.value, "i32"))
                for c in range(0, columns, lanes):
                    sums.store(distinct.value * columns + c, zero + source.load(c, lanes, mask(c)))
            with code.when(known != 0):
                total = sums.at(known * columns)
                for c in range(0, columns, lanes):
                    total.store(c, total.load(c, lanes) + source.load(c, lanes, mask(c)))
    with code.loop(0, high - low, unroll=2 if columns <= 2 * lanes else 1) as r:
        total = sums.at(code.convert(slot.load(r), "i64") * columns)
        for c in range(0, columns, lanes):
            epilogue.put(code, low + r, first + c if wide > 1 else c, total.load(c, lanes), mask(c))
