"""Vector: products with a vector, and of two vectors, as fast as memory gives the matrix."""

from __future__ import annotations

from typing import Any, NamedTuple

from puregraph.native.gemm.microkernel import registers
from puregraph.native.llvm.irbuilder import IRBuilder, IRPointer, IRType, IRValue, IRVariable
from puregraph.native.llvm.kernelcall import EpilogueSpec, KernelCall

CHUNK = 2048  # results of a task
ROWS = 8  # of the matrix at a time, where they are turned
LONG = 512  # rows that are summed one after the other


class GemvSpec(NamedTuple):
    """y[i] = sum_k x[k] w[k, i]. Rows of numbers of one k lie side by side, or with `isTurned` those of one i.

    The results are a row (`isRow`) or a column of the whole.
    """

    x: Any
    xStride: int
    w: Any
    wStride: int
    size: int
    k: int
    isTurned: bool
    isRow: bool


def lineFrom(
    a: Any, b: Any, m: int, n: int, k: int, aStrides: tuple[int, int], bStrides: tuple[int, int]
) -> GemvSpec | None:
    """A product of one row or one column, if its matrix has contiguous rows or columns."""
    if m == 1:
        x, xStride, w, strides, size = a, aStrides[1], b, bStrides, n
    elif n == 1:
        x, xStride, w, strides, size = b, bStrides[0], a, aStrides[::-1], m
    else:
        return None
    if strides[1] == 1:
        return GemvSpec(x, xStride, w, strides[0], size, k, False, m == 1)
    if strides[0] == 1 and xStride == 1:
        return GemvSpec(x, xStride, w, strides[1], size, k, True, m == 1)
    return None


def vectorProduct(line: GemvSpec, finish: EpilogueSpec, lanes: int, threads: int) -> list[KernelCall]:
    """The results of a task are of whole vectors, and of as many as give each thread the same."""
    unit = ROWS if line.isTurned else 2 * lanes
    parts = max(threads, -(-line.size // CHUNK))
    chunk = min(-(-line.size // parts // unit) * unit, CHUNK)
    write = writeTurned if line.isTurned else writeRows
    key = f"vector {'turned' if line.isTurned else 'rows'} {'row' if line.isRow else 'column'} {lanes} {finish.key}"
    slots = {
        "x": line.x,
        "w": line.w,
        "xStride": line.xStride,
        "wStride": line.wStride,
        "size": line.size,
        "k": line.k,
        "chunk": chunk,
    }
    name = f"product {1 if line.isRow else line.size}x{line.k}x{line.size if line.isRow else 1}"
    return [
        KernelCall(
            name,
            key,
            lambda code: write(code, finish, lanes, line.isRow),
            slots | finish.slots,
            -(-line.size // chunk),
        )
    ]


class GemvTask(NamedTuple):
    """What a task works on: x, w from its first result on, and room for `count` results."""

    x: IRPointer
    w: IRPointer
    xStride: IRValue
    wStride: IRValue
    k: IRValue
    start: IRValue
    count: IRValue
    y: IRPointer


def enter(code: IRBuilder, finish: EpilogueSpec, lanes: int) -> GemvTask:
    """The arguments of a task, read as its code begins."""
    x, w = code.pointer("x", "f32"), code.pointer("w", "f32")
    xStride, wStride, size, k, chunk = (code.integer(name) for name in ("xStride", "wStride", "size", "k", "chunk"))
    finish.open(code)
    start = code.task * chunk
    y = code.room("f32", CHUNK + lanes)
    return GemvTask(x, w, xStride, wStride, k, start, code.least(chunk, size - start), y)


def writeRows(code: IRBuilder, finish: EpilogueSpec, lanes: int, isRow: bool) -> None:
    """y = sum_k x[k] w[k], as many columns at a time as there are registers for, which all rows of w run by."""
    task = enter(code, finish, lanes)
    with code.loop(0, task.count, lanes, unroll=1) as i:
        task.y.store(i, code.constant(0, IRType("f32", lanes)))
    with code.loop(0, task.k, LONG, unroll=1) as k:
        rows = (k, code.least(k + LONG, task.k))
        left = code.variable(code.whole(0))
        for vectors in halvings(registers(lanes) // 2):
            width = vectors * lanes
            with code.loop(left.value, task.count - (width - 1), width, unroll=1) as i:
                addRows(code, task, rows, i, vectors, lanes)
                left.value = i + width
        with code.when(left.value < task.count):
            addRows(code, task, rows, left.value, 1, lanes, code.mask(task.count - left.value, lanes))
    hand(code, finish, task, lanes, isRow)


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
    """y[i:] += sum_k x[k] w[k] over some rows, for so many vectors; where these are few, for some rows side by side."""
    beside = registers(lanes) // 2 // vectors
    zero = code.constant(0, IRType("f32", lanes))
    sums = [[code.variable(zero) for _ in range(vectors)] for _ in range(beside)]

    def add(k: IRValue, each: list[IRVariable]) -> None:
        factor = code.splat(task.x.load(k * task.xStride), lanes)
        line = task.w.at(k * task.wStride).at(task.start + i)
        for v, one in enumerate(each):
            one.value = code.fma(factor, line.load(v * lanes, lanes, mask), one.value)

    whole = rows[1] - (rows[1] - rows[0]) % beside
    with code.loop(rows[0], whole, beside, unroll=1) as k:
        for r, each in enumerate(sums):
            add(k + r, each)
    with code.loop(whole, rows[1], unroll=1) as k:
        add(k, sums[0])
    while len(sums) > 1:
        for each, other in zip(sums[::2], sums[1::2]):
            for one, more in zip(each, other):
                one.value = one.value + more.value
        sums = sums[::2]
    for v, one in enumerate(sums[0]):
        place = task.y.at(i + v * lanes)
        place.store(0, place.load(0, lanes) + one.value)


def writeTurned(code: IRBuilder, finish: EpilogueSpec, lanes: int, isRow: bool) -> None:
    """Scalar products of x with several rows of memory at a time."""
    task = enter(code, finish, lanes)
    rows = min(ROWS, lanes)
    whole = task.k - task.k % lanes
    with code.loop(0, task.count, rows, unroll=1) as i:
        lines = [task.w.at((task.start + code.least(i + r, task.count - 1)) * task.wStride) for r in range(rows)]
        sums = [code.variable(code.constant(0, IRType("f32", lanes))) for _ in range(rows)]
        with code.loop(0, whole, lanes, unroll=2) as k:
            x = task.x.load(k, lanes)
            for one, line in zip(sums, lines):
                one.value = code.fma(x, line.load(k, lanes), one.value)
        with code.when(whole < task.k):
            mask = code.mask(task.k - whole, lanes)
            x = task.x.load(whole, lanes, mask)
            for one, line in zip(sums, lines):
                one.value = code.fma(x, line.load(whole, lanes, mask), one.value)
        task.y.store(i, totals(code, [one.value for one in sums]))
    hand(code, finish, task, lanes, isRow)


def fewFrom(
    a: Any,
    b: Any,
    finish: EpilogueSpec,
    m: int,
    n: int,
    k: int,
    strides: tuple[int, int],
    lanes: int,
    threads: int,
) -> list[KernelCall]:
    """sums[m, n] of a few rows of a and of columns of b, both contiguous, `strides` apart: scalar products.

    b is read where it is; to pack it would take longer than so few products.
    """
    most = max(1, min(lanes, (registers(lanes) - 1 - m) // m))
    beside = 1 << most.bit_length() - 1  # columns whose sums fit the registers, and a vector
    parts = max(threads, -(-n // CHUNK))
    chunk = min(-(-n // parts // beside) * beside, CHUNK)

    def write(code: IRBuilder) -> None:
        writeFew(code, finish, m, beside, lanes)

    slots = {"a": a, "b": b, "n": n, "k": k, "aRow": strides[0], "bColumn": strides[1], "chunk": chunk}
    key = f"few {m} {beside} {lanes} {finish.key}"
    return [KernelCall(f"product {m}x{k}x{n}", key, write, slots | finish.slots, -(-n // chunk))]


def writeFew(code: IRBuilder, finish: EpilogueSpec, m: int, beside: int, lanes: int) -> None:
    """Tiles of all rows and some columns, whose sums are vectors until the end.

    Where the sums leave time for it, the columns of the next tile are asked for: a few short ones at a time are no
    stream that a CPU would follow by itself.
    """
    a, b = code.pointer("a", "f32"), code.pointer("b", "f32")
    n, k, aRow, bColumn, chunk = (code.integer(name) for name in ("n", "k", "aRow", "bColumn", "chunk"))
    finish.open(code)
    start = code.task * chunk
    count, whole = code.least(chunk, n - start), k - k % lanes
    y = [code.room("f32", CHUNK + lanes) for _ in range(m)]
    rows = [a.at(r * aRow) for r in range(m)]
    with code.loop(0, count, beside, unroll=1) as i:
        columns = [b.at((start + code.least(i + c, count - 1)) * bColumn) for c in range(beside)]
        sums = [[code.variable(code.constant(0, IRType("f32", lanes))) for _ in columns] for _ in rows]

        def add(at: IRValue, mask: IRValue | None = None) -> None:
            left = [row.load(at, lanes, mask) for row in rows]
            for c, column in enumerate(columns):
                right = column.load(at, lanes, mask)
                if beside < m and mask is None:
                    column.at(beside * bColumn).prefetch(at)
                for r, one in enumerate(left):
                    sums[r][c].value = code.fma(one, right, sums[r][c].value)

        with code.loop(0, whole, lanes, unroll=1) as at:
            add(at)
        with code.when(whole < k):
            add(whole, code.mask(k - whole, lanes))
        for to, each in zip(y, sums):
            to.store(i, totals(code, [one.value for one in each]))
    for r, found in enumerate(y):
        row = code.constant(r, IRType("i64"))
        full = count - count % lanes
        with code.loop(0, full, lanes, unroll=1) as i:
            finish.put(code, row, start + i, found.load(i, lanes))
        with code.when(full < count):
            mask = code.mask(count - full, lanes)
            finish.put(code, row, start + full, found.load(full, lanes, mask), mask)


def totals(code: IRBuilder, rows: list[IRValue]) -> IRValue:
    """The sum of all lanes of each vector, in the lane of its number: halves of two vectors are added at a time."""
    lanes, bit, rows = rows[0].lanes, 1, list(rows)
    while bit < lanes:
        pairs = [(rows[i], rows[i + 1]) for i in range(0, len(rows), 2)] if len(rows) > 1 else [(rows[0], rows[0])]
        low = [lanes + j - bit if j & bit else j for j in range(lanes)]
        high = [lanes + j if j & bit else j + bit for j in range(lanes)]
        rows = [code.shuffle(x, y, low) + code.shuffle(x, y, high) for x, y in pairs]
        bit *= 2
    return rows[0]


def hand(code: IRBuilder, finish: EpilogueSpec, task: GemvTask, lanes: int, isRow: bool) -> None:
    """Give the results of a task to its finish."""
    first = code.constant(0, IRType("i64"))
    if not isRow:
        with code.loop(0, task.count, unroll=1) as i:
            finish.put(code, task.start + i, first, task.y.load(i))
        return
    whole = task.count - task.count % lanes
    with code.loop(0, whole, lanes, unroll=1) as i:
        finish.put(code, first, task.start + i, task.y.load(i, lanes))
    with code.when(whole < task.count):
        mask = code.mask(task.count - whole, lanes)
        finish.put(code, first, task.start + whole, task.y.load(whole, lanes), mask)


def outer(
    a: Any, b: Any, finish: EpilogueSpec, m: int, n: int, aStride: int, lanes: int, threads: int
) -> list[KernelCall]:
    """sums[m, n] = a[m] b[n] of a contiguous b, some rows to a task."""
    chunk = max(1, min(-(-m // threads), -(-(1 << 16) // n)))

    def write(code: IRBuilder) -> None:
        left, right = code.pointer("a", "f32"), code.pointer("b", "f32")
        rows, columns, step, some = (code.integer(name) for name in ("m", "n", "aStride", "chunk"))
        finish.open(code)
        start = code.task * some
        whole = columns - columns % lanes
        with code.loop(start, code.least(start + some, rows), unroll=1) as row:
            factor = code.splat(left.load(row * step), lanes)
            with code.loop(0, whole, lanes, unroll=2) as i:
                finish.put(code, row, i, factor * right.load(i, lanes))
            with code.when(whole < columns):
                mask = code.mask(columns - whole, lanes)
                finish.put(code, row, whole, factor * right.load(whole, lanes, mask), mask)

    slots = {"a": a, "b": b, "m": m, "n": n, "aStride": aStride, "chunk": chunk}
    return [
        KernelCall(f"product {m}x1x{n}", f"outer {lanes} {finish.key}", write, slots | finish.slots, -(-m // chunk))
    ]
