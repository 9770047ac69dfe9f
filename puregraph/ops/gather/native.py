"""Gather and scatter-add: the native implementations of `gather.reference`.

Indices are 64-bit integers. An index that is out of range, below -1 or above the last row, counts as -1 and sets the
flag `fault`; the run is then refused.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from puregraph.core.opensize import largest, sized, smallest
from puregraph.ops.native.llvm import jit
from puregraph.ops.native.llvm.instructions import SIZES, IRPointer, IRType, IRValue
from puregraph.ops.native.llvm.irbuilder import IRBuilder
from puregraph.ops.native.llvm.kernelcall import KernelCall

if TYPE_CHECKING:
    from puregraph.core.protocols import AnyArray, Strided
    from puregraph.ops.ir.value import Value

GATHER_TASK_ELEMENTS = 1 << 14  # elements that a task reads or writes
TASK_GATHERS = 1 << 11  # elements that a task gathers
TABLE_PARTS = 16  # parts of the rows of a table, if it has more rows than are added
TASK_COLUMNS = 64  # columns of a table that a task adds to, if columns are split


def taskRows(count: int, width: int, most: int = GATHER_TASK_ELEMENTS) -> int:
    """The number of rows in a task, for rows of `width` elements."""
    return largest(1, smallest(count, most // largest(width, 1)))


def eachRow(code: IRBuilder, body: Callable[[IRValue], None]) -> None:
    """The loop over the rows of a task: `step` of them, of `count` in all."""
    count, step = code.integer("count"), code.integer("step")
    start = code.task * step
    with code.loop(start, code.min(start + step, count), unroll=1) as i:
        body(i)


def overVectors(code: IRBuilder, width: IRValue, lanes: int, body: Callable[[IRValue, IRValue | None], None]) -> None:
    """The loop over the vectors of a row, then its remainder, with a mask."""
    vectorEnd = width - width % lanes
    with code.loop(0, vectorEnd, lanes) as c:
        body(c, None)
    with code.when(vectorEnd < width):
        body(vectorEnd, code.mask(width - vectorEnd, lanes))


def inRange(code: IRBuilder, index: IRValue, limit: IRValue, fault: IRPointer) -> IRValue:
    """True if an index names a row; indices out of range, other than -1, set the fault flag."""
    wrong = (index < -1) | (index >= limit)
    with code.when(wrong):
        fault.store(0, code.i64(1))
    return (index >= 0) & (index < limit)


def gather(
    table: Value,
    tableRow: int,
    rows: int,
    index: Value,
    count: int,
    y: Value,
    width: int,
    fault: AnyArray,
    indexStep: int = 1,
    kind: str = "f32",
) -> list[KernelCall]:
    """y[i] = table[index[i]] for i < count, and zero where the index is -1; `tableRow` is the stride of the table, the
    kind gives the size of an element."""
    step = taskRows(count, width, TASK_GATHERS)
    slots = {"table": table, "tableRow": tableRow, "rows": rows, "index": index, "y": y, "width": width, "fault": fault}
    slots |= {"count": count, "step": step, "indexStep": indexStep}
    write = partial(writeGather, kind=kind)
    return [KernelCall(sized("gather {}x{}", count, width), f"{kind} {jit.lanes(4)}", write, slots, -(-count // step))]


def writeGather(code: IRBuilder, kind: str) -> None:
    """y[i] = table[index[i]]; zeros, and the flag, for an index that is out of range."""
    lanes = jit.lanes(4)
    table, index, y, fault = (code.pointer(n, k) for n, k in zip(("table", "index", "y", "fault"), (kind, "i64") * 2))
    stride, rows, width, indexStep = (code.integer(name) for name in ("tableRow", "rows", "width", "indexStep"))
    zero = code.constant(0.0, IRType(kind, lanes))

    def row(i: IRValue) -> None:
        at = index.load(i * indexStep)
        known = inRange(code, at, rows, fault)
        source, target = table.at(at * stride), y.at(i * width)
        with code.when(known):
            overVectors(code, width, lanes, lambda c, mask: target.store(c, source.load(c, lanes, mask), mask))
        with code.when(~known):
            overVectors(code, width, lanes, lambda c, mask: target.store(c, zero, mask))

    eachRow(code, row)


def scatterAdd(
    grad: Strided,
    index: Strided,
    count: int,
    table: Strided,
    rows: int,
    width: int,
    fault: Any,
    gradRow: int | None = None,
    indexStep: int = 1,
    real: str = "f32",
) -> list[KernelCall]:
    """table = 0, then table[index[i]] += grad[i] for all i < count in order; an index of -1 adds nothing.

    A task owns some rows of the table, or some columns, and loops over all indices: additions have one order.
    """
    high = TABLE_PARTS if rows > count else 1
    wide = 1 if high > 1 else -(-width // TASK_COLUMNS)
    if high * wide < TABLE_PARTS // 4:
        high = TABLE_PARTS // 4
    part, columns = -(-rows // high), -(-width // wide)
    slots = {"grad": grad, "gradRow": width if gradRow is None else gradRow, "index": index, "count": count}
    slots |= {"table": table, "rows": rows, "width": width, "fault": fault}
    slots |= {"part": part, "columns": columns, "wide": wide, "indexStep": indexStep}
    tasks = -(-rows // part) * wide if rows and width else 0
    key, write = f"{real} {jit.lanes(SIZES[real])}", partial(writeScatter, real=real)
    return [KernelCall(sized("scatterAdd {}x{}", count, width), key, write, slots, tasks)]


def writeScatter(code: IRBuilder, real: str) -> None:
    """table[index[i]] += grad[i]: each task owns some rows and columns of the table, and loops over all indices."""
    lanes = jit.lanes(SIZES[real])
    grad, index, table, fault = (
        code.pointer(n, k) for n, k in zip(("grad", "index", "table", "fault"), (real, "i64") * 2)
    )
    count, rows, width, stride = (code.integer(name) for name in ("count", "rows", "width", "gradRow"))
    part, columns, wide, indexStep = (code.integer(name) for name in ("part", "columns", "wide", "indexStep"))
    low = code.task // wide * part
    high = code.min(low + part, rows)
    first = code.task % wide * columns
    live = code.min(columns, width - first)
    zero = code.constant(0.0, IRType(real, lanes))
    with code.loop(low, high, unroll=1) as r:
        target = table.at(r * width + first)
        overVectors(code, live, lanes, lambda c, mask: target.store(c, zero, mask))
    with code.loop(0, count, unroll=1) as i:
        at = index.load(i * indexStep)
        inRange(code, at, rows, fault)
        with code.when((at >= low) & (at < high)):
            source, sums = grad.at(i * stride + first), table.at(at * width + first)

            def add(c: IRValue, mask: IRValue | None) -> None:
                sums.store(c, sums.load(c, lanes, mask) + source.load(c, lanes, mask), mask)

            overVectors(code, live, lanes, add)


def addAt(
    values: Strided, index: Strided, y: Strided, rows: int, count: int, size: int, real: str = "f32"
) -> list[KernelCall]:
    """y[i] = 0, then y[i, index[i, a]] += values[i, a] for all a < count in order; indices are of 32 bits, and those
    below 0 or from `size` on add nothing."""
    step = taskRows(rows, size)
    slots = {"values": values, "index": index, "y": y, "each": count, "size": size, "count": rows, "step": step}
    key, write = f"{real} {jit.lanes(SIZES[real])}", partial(writeAddAt, real=real)
    return [KernelCall(sized("addAt {}x{}", rows, count), key, write, slots, -(-rows // step))]


def writeAddAt(code: IRBuilder, real: str) -> None:
    """Row by row: zeros, then one element after another."""
    lanes = jit.lanes(SIZES[real])
    values, index, y = (code.pointer(n, k) for n, k in zip(("values", "index", "y"), (real, "i32", real)))
    amount, size = code.integer("each"), code.integer("size")
    zero = code.constant(0.0, IRType(real, lanes))

    def row(i: IRValue) -> None:
        target = y.at(i * size)
        overVectors(code, size, lanes, lambda c, mask: target.store(c, zero, mask))
        with code.loop(0, amount, unroll=1) as a:
            at = code.convert(index.load(i * amount + a), "i64")
            with code.when((at >= 0) & (at < size)):
                target.store(at, target.load(at) + values.load(i * amount + a))

    eachRow(code, row)


def takeClass(
    x: Strided, labels: Strided, y: Strided, samples: int, classes: int, inner: int, fault: Any
) -> list[KernelCall]:
    """y[n, s] = x[n, labels[n, s], s], and zero where the label is -1; `inner` is the size of s."""
    step = taskRows(samples, inner)
    slots = {"x": x, "labels": labels, "y": y, "classes": classes, "inner": inner, "fault": fault}
    slots |= {"count": samples, "step": step}
    return [KernelCall(sized("takeClass {}x{}", samples, classes), "", writeTake, slots, -(-samples // step))]


def writeTake(code: IRBuilder) -> None:
    """y[n, s] = x[n, labels[n, s], s], 0 where there is no such class."""
    x, labels, y, fault = (code.pointer(n, k) for n, k in zip(("x", "labels", "y", "fault"), ("f32", "i64") * 2))
    classes, inner = code.integer("classes"), code.integer("inner")

    def sample(n: IRValue) -> None:
        with code.loop(0, inner, unroll=1) as s:
            at = labels.load(n * inner + s)
            known = inRange(code, at, classes, fault)
            value = x.load((n * classes + code.select(known, at, 0)) * inner + s, 1)
            y.store(n * inner + s, code.select(known, value, 0.0))

    eachRow(code, sample)


def putClass(
    values: Strided, labels: Strided, dx: Strided, samples: int, classes: int, inner: int, fault: Any
) -> list[KernelCall]:
    """dx[n, labels[n, s], s] = values[n, s], zero elsewhere; a label of -1 puts nothing."""
    step = taskRows(samples, classes * inner)
    slots = {"values": values, "labels": labels, "dx": dx, "classes": classes, "inner": inner, "fault": fault}
    slots |= {"count": samples, "step": step}
    return [
        KernelCall(sized("putClass {}x{}", samples, classes), str(jit.lanes(4)), writePut, slots, -(-samples // step))
    ]


def writePut(code: IRBuilder) -> None:
    """dx[n, labels[n, s], s] = values[n, s], and 0 everywhere else."""
    lanes = jit.lanes(4)
    values, labels, dx, fault = (
        code.pointer(n, k) for n, k in zip(("values", "labels", "dx", "fault"), ("f32", "i64") * 2)
    )
    classes, inner = code.integer("classes"), code.integer("inner")
    zero = code.constant(0.0, IRType("f32", lanes))

    def sample(n: IRValue) -> None:
        target = dx.at(n * classes * inner)
        overVectors(code, classes * inner, lanes, lambda c, mask: target.store(c, zero, mask))
        with code.loop(0, inner, unroll=1) as s:
            at = labels.load(n * inner + s)
            with code.when(inRange(code, at, classes, fault)):
                target.store(at * inner + s, values.load(n * inner + s))

    eachRow(code, sample)
