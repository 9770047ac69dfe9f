"""GEMV: products with a vector, with few rows, and of two vectors, at the speed of memory."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, NamedTuple

from puregraph.core.opensize import largest, sized, smallest
from puregraph.ops.native.llvm.instructions import IRPointer, IRType, IRValue, IRVariable
from puregraph.ops.native.llvm.irbuilder import IRBuilder
from puregraph.ops.native.llvm.kernelcall import EpilogueSpec, KernelCall
from puregraph.ops.product.native.microkernel import registers

if TYPE_CHECKING:
    from puregraph.ops.ir.value import Value

CHUNK = 2048  # results of a task
ROWS = 8  # rows of a transposed matrix that are multiplied at a time
LONG = 512  # rows that are summed sequentially


class GemvSpec(NamedTuple):
    """y[i] = sum_k x[k] w[k, i], where w is contiguous along i, or along k if `isTransposed`.

    The results are a row (`isRow`) or a column of the product.
    """

    x: Any
    xStride: int
    w: Any
    wStride: int
    size: int
    k: int
    isTransposed: bool
    isRow: bool
    real: str


def gemvFrom(
    a: Value, b: Value, m: int, n: int, k: int, aStrides: tuple[int, int], bStrides: tuple[int, int], real: str
) -> GemvSpec | None:
    """The GEMV of a product of one row or one column, if its matrix has contiguous rows or columns."""
    if m == 1:
        x, xStride, w, strides, size = a, aStrides[1], b, bStrides, n
    elif n == 1:
        x, xStride, w, strides, size = b, bStrides[0], a, aStrides[::-1], m
    else:
        return None
    if strides[1] == 1:
        return GemvSpec(x, xStride, w, strides[0], size, k, False, m == 1, real)
    if strides[0] == 1 and xStride == 1:
        return GemvSpec(x, xStride, w, strides[1], size, k, True, m == 1, real)
    return None


def gemv(spec: GemvSpec, epilogue: EpilogueSpec, lanes: int, threads: int) -> list[KernelCall]:
    """A task has a chunk of the results, in whole groups of columns, so that sums do not depend on the threads."""
    unit = ROWS if spec.isTransposed else widestGroup(lanes, spec.real) * lanes
    parts = largest(threads, -(-spec.size // CHUNK))
    chunk = smallest(-(-spec.size // parts // unit) * unit, CHUNK)
    write = writeDotGemv if spec.isTransposed else writeRowGemv
    key = f"gemv {spec.isTransposed:d}{spec.isRow:d} {lanes} {spec.real} {epilogue.key}"
    slots = {
        "x": spec.x,
        "w": spec.w,
        "xStride": spec.xStride,
        "wStride": spec.wStride,
        "size": spec.size,
        "k": spec.k,
        "chunk": chunk,
    }
    name = sized("product {}x{}x{}", 1 if spec.isRow else spec.size, spec.k, spec.size if spec.isRow else 1)
    return [
        KernelCall(
            name,
            key,
            lambda code: write(code, epilogue, lanes, spec.isRow, spec.real),
            slots | epilogue.slots,
            -(-spec.size // chunk),
        )
    ]


class GemvTask(NamedTuple):
    """The operands of a task: x, w from its first result on, and scratch memory for `count` results."""

    x: IRPointer
    w: IRPointer
    xStride: IRValue
    wStride: IRValue
    k: IRValue
    start: IRValue
    count: IRValue  # type: ignore[assignment]
    y: IRPointer


def readArguments(code: IRBuilder, epilogue: EpilogueSpec, lanes: int, real: str) -> GemvTask:
    """The arguments of a task, read as its code begins."""
    x, w = code.pointer("x", real), code.pointer("w", real)
    xStride, wStride, size, k, chunk = (code.integer(name) for name in ("xStride", "wStride", "size", "k", "chunk"))
    epilogue.open(code)
    start = code.task * chunk
    y = code.scratch(real, CHUNK + lanes)
    return GemvTask(x, w, xStride, wStride, k, start, code.min(chunk, size - start), y)


def writeRowGemv(code: IRBuilder, epilogue: EpilogueSpec, lanes: int, isRow: bool, real: str) -> None:
    """y = sum_k x[k] w[k] over rows of w; accumulators of some columns stay in registers."""
    task = readArguments(code, epilogue, lanes, real)
    with code.loop(0, task.count, lanes, unroll=1) as i:
        task.y.store(i, code.constant(0, IRType(real, lanes)))
    with code.loop(0, task.k, LONG, unroll=1) as k:
        rows = (k, code.min(k + LONG, task.k))
        left = code.variable(code.i64(0))
        for vectors in halvings(widestGroup(lanes, real)):
            width = vectors * lanes
            with code.loop(left.value, task.count - (width - 1), width, unroll=1) as i:
                addRows(code, task, rows, i, vectors, lanes)
                left.value = i + width
        with code.when(left.value < task.count):
            addRows(code, task, rows, left.value, 1, lanes, code.mask(task.count - left.value, lanes))
    putResults(code, epilogue, task, lanes, isRow)


def widestGroup(lanes: int, real: str) -> int:
    """The number of column vectors summed at once, each in two chains; fewer vectors use more chains."""
    return registers(lanes, real) // 4


def halvings(count: int) -> list[int]:
    """count, count / 2, ... 1"""
    return [count >> i for i in range(count.bit_length())]


def addRows(
    code: IRBuilder,
    task: GemvTask,
    rows: tuple[IRValue, IRValue],
    i: IRValue,
    vectors: int,
    lanes: int,
    mask: IRValue | None = None,
) -> None:
    """y[i:] += sum_k x[k] w[k] over some rows, for `vectors` vectors; for few vectors, in several chains."""
    rowsAtOnce = registers(lanes, task.y.kind) // 2 // vectors
    zero = code.constant(0, IRType(task.y.kind, lanes))
    sums = [[code.variable(zero) for _ in range(vectors)] for _ in range(rowsAtOnce)]

    def add(k: IRValue, chain: list[IRVariable]) -> None:
        factor = code.splat(task.x.load(k * task.xStride), lanes)
        row = task.w.at(k * task.wStride).at(task.start + i)
        for v, accumulator in enumerate(chain):
            accumulator.value = code.fma(factor, row.load(v * lanes, lanes, mask), accumulator.value)

    vectorEnd = rows[1] - (rows[1] - rows[0]) % rowsAtOnce
    with code.loop(rows[0], vectorEnd, rowsAtOnce, unroll=1) as k:
        for r, chain in enumerate(sums):
            add(k + r, chain)
    with code.loop(vectorEnd, rows[1], unroll=1) as k:
        add(k, sums[0])
    while len(sums) > 1:
        for chain, other in zip(sums[::2], sums[1::2]):
            for accumulator, more in zip(chain, other):
                accumulator.value = accumulator.value + more.value
        sums = sums[::2]
    for v, accumulator in enumerate(sums[0]):
        address = task.y.at(i + v * lanes)
        address.store(0, address.load(0, lanes) + accumulator.value)


def writeDotGemv(code: IRBuilder, epilogue: EpilogueSpec, lanes: int, isRow: bool, real: str) -> None:
    """Dot products of x with several contiguous rows at a time."""
    task = readArguments(code, epilogue, lanes, real)
    rows = min(ROWS, lanes)
    vectorEnd = task.k - task.k % lanes
    with code.loop(0, task.count, rows, unroll=1) as i:
        lines = [task.w.at((task.start + code.min(i + r, task.count - 1)) * task.wStride) for r in range(rows)]
        sums = [code.variable(code.constant(0, IRType(real, lanes))) for _ in range(rows)]
        with code.loop(0, vectorEnd, lanes, unroll=2) as k:
            x = task.x.load(k, lanes)
            for accumulator, row in zip(sums, lines):
                accumulator.value = code.fma(x, row.load(k, lanes), accumulator.value)
        with code.when(vectorEnd < task.k):
            mask = code.mask(task.k - vectorEnd, lanes)
            x = task.x.load(vectorEnd, lanes, mask)
            for accumulator, row in zip(sums, lines):
                accumulator.value = code.fma(x, row.load(vectorEnd, lanes, mask), accumulator.value)
        task.y.store(i, horizontalSums(code, [accumulator.value for accumulator in sums]))
    putResults(code, epilogue, task, lanes, isRow)


def skinnyProduct(
    a: Value,
    b: Value,
    epilogue: EpilogueSpec,
    m: int,
    n: int,
    k: int,
    strides: tuple[int, int],
    lanes: int,
    threads: int,
    real: str,
) -> list[KernelCall]:
    """sums[m, n] of few rows of a and columns of b, both contiguous, `strides` apart: dot products.

    b is read in place; packing it would take longer than so few products.
    """
    m = operator.index(m)  # the code has a register for each row
    most = max(1, min(lanes, (registers(lanes, real) - 1 - m) // m))
    columnsAtOnce = 1 << most.bit_length() - 1  # columns whose accumulators fit the registers, and a vector
    parts = largest(threads, -(-n // CHUNK))
    chunk = smallest(-(-n // parts // columnsAtOnce) * columnsAtOnce, CHUNK)

    def write(code: IRBuilder) -> None:
        writeSkinny(code, epilogue, m, columnsAtOnce, lanes, real)

    slots = {"a": a, "b": b, "n": n, "k": k, "aRow": strides[0], "bColumn": strides[1], "chunk": chunk}
    key = f"few {m} {columnsAtOnce} {lanes} {real} {epilogue.key}"
    return [KernelCall(sized("product {}x{}x{}", m, k, n), key, write, slots | epilogue.slots, -(-n // chunk))]


def writeSkinny(code: IRBuilder, epilogue: EpilogueSpec, m: int, columnsAtOnce: int, lanes: int, real: str) -> None:
    """Tiles of all rows and some columns, with vector accumulators and a horizontal reduction at the end.

    Where there is time for it, the columns of the next tile are prefetched: hardware does not prefetch several short
    streams.
    """
    a, b = code.pointer("a", real), code.pointer("b", real)
    n, k, aRow, bColumn, chunk = (code.integer(name) for name in ("n", "k", "aRow", "bColumn", "chunk"))
    epilogue.open(code)
    start = code.task * chunk
    count, vectorEnd = code.min(chunk, n - start), k - k % lanes
    y = [code.scratch(real, CHUNK + lanes) for _ in range(m)]
    rows = [a.at(r * aRow) for r in range(m)]
    with code.loop(0, count, columnsAtOnce, unroll=1) as i:
        columns = [b.at((start + code.min(i + c, count - 1)) * bColumn) for c in range(columnsAtOnce)]
        sums = [[code.variable(code.constant(0, IRType(real, lanes))) for _ in columns] for _ in rows]

        def add(at: IRValue, mask: IRValue | None = None) -> None:
            left = [row.load(at, lanes, mask) for row in rows]
            for c, column in enumerate(columns):
                right = column.load(at, lanes, mask)
                if columnsAtOnce < m and mask is None:
                    column.at(columnsAtOnce * bColumn).prefetch(at)
                for r, value in enumerate(left):
                    sums[r][c].value = code.fma(value, right, sums[r][c].value)

        with code.loop(0, vectorEnd, lanes, unroll=1) as at:
            add(at)
        with code.when(vectorEnd < k):
            add(vectorEnd, code.mask(k - vectorEnd, lanes))
        for to, rowSums in zip(y, sums):
            to.store(i, horizontalSums(code, [value.value for value in rowSums]))
    for r, line in enumerate(y):
        row = code.constant(r, IRType("i64"))
        full = count - count % lanes
        with code.loop(0, full, lanes, unroll=1) as i:
            epilogue.put(code, row, start + i, line.load(i, lanes))
        with code.when(full < count):
            mask = code.mask(count - full, lanes)
            epilogue.put(code, row, start + full, line.load(full, lanes, mask), mask)


def horizontalSums(code: IRBuilder, rows: list[IRValue]) -> IRValue:
    """Horizontal sums: lane i has the sum of all lanes of vector i; halves of two vectors are added at a time."""
    lanes, bit, rows = rows[0].lanes, 1, list(rows)
    while bit < lanes:
        pairs = [(rows[i], rows[i + 1]) for i in range(0, len(rows), 2)] if len(rows) > 1 else [(rows[0], rows[0])]
        low = [lanes + j - bit if j & bit else j for j in range(lanes)]
        high = [lanes + j if j & bit else j + bit for j in range(lanes)]
        rows = [code.shuffle(x, y, low) + code.shuffle(x, y, high) for x, y in pairs]
        bit *= 2
    return rows[0]


def putResults(code: IRBuilder, epilogue: EpilogueSpec, task: GemvTask, lanes: int, isRow: bool) -> None:
    """Give the results of a task to the epilogue."""
    first = code.constant(0, IRType("i64"))
    if not isRow:
        with code.loop(0, task.count, unroll=1) as i:
            epilogue.put(code, task.start + i, first, task.y.load(i))
        return
    vectorEnd = task.count - task.count % lanes
    with code.loop(0, vectorEnd, lanes, unroll=1) as i:
        epilogue.put(code, first, task.start + i, task.y.load(i, lanes))
    with code.when(vectorEnd < task.count):
        mask = code.mask(task.count - vectorEnd, lanes)
        epilogue.put(code, first, task.start + vectorEnd, task.y.load(vectorEnd, lanes), mask)


def outerProduct(
    a: Value, b: Value, epilogue: EpilogueSpec, m: int, n: int, aStride: int, lanes: int, threads: int, real: str
) -> list[KernelCall]:
    """Outer product: sums[m, n] = a[m] b[n] of a contiguous b, some rows to a task."""
    chunk = largest(1, smallest(-(-m // threads), -(-(1 << 16) // n)))

    def write(code: IRBuilder) -> None:
        left, right = code.pointer("a", real), code.pointer("b", real)
        rows, columns, step, some = (code.integer(name) for name in ("m", "n", "aStride", "chunk"))
        epilogue.open(code)
        start = code.task * some
        vectorEnd = columns - columns % lanes
        with code.loop(start, code.min(start + some, rows), unroll=1) as row:
            factor = code.splat(left.load(row * step), lanes)
            with code.loop(0, vectorEnd, lanes, unroll=2) as i:
                epilogue.put(code, row, i, factor * right.load(i, lanes))
            with code.when(vectorEnd < columns):
                mask = code.mask(columns - vectorEnd, lanes)
                epilogue.put(code, row, vectorEnd, factor * right.load(vectorEnd, lanes, mask), mask)

    slots = {"a": a, "b": b, "m": m, "n": n, "aStride": aStride, "chunk": chunk}
    return [
        KernelCall(
            sized("product {}x1x{}", m, n),
            f"outer {lanes} {real} {epilogue.key}",
            write,
            slots | epilogue.slots,
            -(-m // chunk),
        )
    ]
