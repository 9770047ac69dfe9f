"""Product: matrix products of any sizes and strides, as tasks that need nothing of each other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, NamedTuple

from puregraph.native.gemm.blocking import KEPT, STORE, GemmSizes, planFor
from puregraph.native.gemm.gemv import fewFrom, lineFrom, outer, vectorProduct
from puregraph.native.gemm.microkernel import Microkernel, multiply, registers
from puregraph.native.gemm.pack import (
    DEPTH,
    MatrixOperand,
    Packed,
    copyPanel,
    copyStrip,
    known,
    layoutOf,
    nextStrip,
    stripsAtOnce,
    stripSize,
    stripStrides,
)
from puregraph.native.gemm.splitk import partOf, placeOf, total
from puregraph.native.llvm.irbuilder import IRBuilder, IRPointer, IRValue
from puregraph.native.llvm.kernelcall import EpilogueSpec, KernelCall
from puregraph.native.threads.numthreads import threads as allThreads

FEW = 8  # rows of a for which b is not worth it to be packed, or a third as many as there are registers


class BatchAxis(NamedTuple):
    """A batch axis: how many products, and how far the matrices of one lie from those of the next."""

    size: int
    a: int
    b: int


def product(
    a: Any,
    b: Any,
    finish: EpilogueSpec,
    m: int,
    n: int,
    k: int,
    aStrides: tuple[int, int],
    bStrides: tuple[int, int] = (0, 0),
    batch: Sequence[BatchAxis] = (),
    lanes: int = 16,
    threads: int | None = None,
    room: Callable[[int], Any] | None = None,
) -> list[KernelCall]:
    """sums[m, n] = sum_k a[m, k] b[k, n], given to `finish` row by row; b may be `Packed`.

    `room(count)` gives memory for so many numbers between two works; without it, all is one work. Which numbers are
    added in which order follows from the sizes, whatever the number of threads.
    """
    sizes = [axis.size for axis in batch]
    count = prod(sizes)
    if m * n * count == 0:
        return []
    threads = allThreads() if threads is None else threads
    if not batch and not isinstance(b, Packed):
        line = lineFrom(a, b, m, n, k, aStrides, bStrides)
        if line is not None:
            return vectorProduct(line, finish, lanes, threads)
        if 1 < m <= max(FEW, registers(lanes) // 3) and aStrides[1] == bStrides[0] == 1 < k:
            return fewFrom(a, b, finish, m, n, k, (aStrides[0], bStrides[1]), lanes, threads)
        if k == 1 and bStrides[1] == 1:
            return outer(a, b, finish, m, n, aStrides[0], lanes, threads)
    aLayout = layoutOf(aStrides, (m, k))
    bLayout = "packed" if isinstance(b, Packed) else layoutOf(bStrides, (k, n))
    overSamples = aLayout == "columns" and bLayout == "rows"
    part = k if room is None or isinstance(b, Packed) else partOf(m, n, k, count, lanes, overSamples)
    parts = -(-k // part) if part < k else 1
    vectors = b.vectors if isinstance(b, Packed) else 0
    plan = planFor(GemmSizes(m, n, part, count * parts, lanes, aLayout, bLayout, vectors), threads)
    tile = plan.tile
    place = room(count * parts * m * n) if room is not None and parts > 1 else None
    to = finish if place is None else placeOf(place, m, n, parts, sizes)
    left = tile.vectorsLeft(n)
    kernel = GemmSpec(tile, aLayout, bLayout, len(batch), m <= tile.rows, part > DEPTH, parts > 1, left, to)
    slots = {
        "a": a,
        "b": b.array if isinstance(b, Packed) else b,
        "m": m,
        "n": n,
        "k": k,
        "part": part,
        "aRow": aStrides[0],
        "aColumn": aStrides[1],
        "bRow": bStrides[0],
        "bColumn": bStrides[1],
        "strips": plan.strips,
        "panels": plan.panels,
        "depth": plan.depth,
        "down": plan.down,
        "across": plan.across,
    }
    for i, axis in enumerate(batch):
        slots |= {f"batch{i}": axis.size, f"aBatch{i}": axis.a, f"bBatch{i}": axis.b}
    tasks = plan.down * plan.across * count * parts
    works = [KernelCall(f"product {m}x{k}x{n}", kernel.key, kernel.write, slots | to.slots, tasks)]
    return works if place is None else [*works, total(place, finish, m, n, parts, sizes, lanes)]


def worthPacking(m: int, n: int, k: int, lanes: int) -> bool:
    """Whether b[k, n] is better packed ahead: not where sums are of vectors, or of parts of k."""
    return m >= FEW and n > 1 and k > 1 and partOf(m, n, k, 1, lanes) == k


def vectorsFor(m: int, n: int, k: int, aStrides: tuple[int, int], lanes: int) -> int:
    """How many vectors of b[k, n] are best packed together for a product that is often made."""
    sizes = GemmSizes(m, n, k, 1, lanes, layoutOf(aStrides, (m, k)), "packed")
    return planFor(sizes, allThreads()).tile.vectors


class GemmSpec(NamedTuple):
    """What the code of a product depends on.

    `isLow`: one strip is all. `isDeep`: sums wait between blocks of k. `isSplit`: each task has a part of k only.
    `left`: vectors that the last columns need, 0 where they fill a tile.
    """

    tile: Microkernel
    aLayout: str
    bLayout: str
    axes: int
    isLow: bool
    isDeep: bool
    isSplit: bool
    left: int
    finish: EpilogueSpec

    @property
    def key(self) -> str:
        options = f"{self.aLayout} {self.bLayout} {self.axes} {self.isLow:d}{self.isDeep:d}{self.isSplit:d}{self.left}"
        return f"product {self.tile.key} {options} {self.finish.key}"

    def write(self, code: IRBuilder) -> None:
        """The tasks of a batch are its blocks, row after row of them."""
        tile = self.tile
        a, b = code.pointer("a", "f32"), code.pointer("b", "f32")
        m, n, k = (code.integer(name) for name in "mnk")
        aStrides, bStrides = ((code.integer(s + "Row"), code.integer(s + "Column")) for s in "ab")
        strips, panels, depth, down, across = (
            code.integer(name) for name in ("strips", "panels", "depth", "down", "across")
        )
        axes = [[code.integer(f"{name}{i}") for name in ("batch", "aBatch", "bBatch")] for i in range(self.axes)]
        self.finish.open(code)
        block = code.task % (down * across)
        indices = []
        left = code.task / (down * across)
        for size, aStep, bStep in reversed(axes):
            index, left = left % size, left / size
            a, b = a.at(index * aStep), b.at(index * bStep)
            indices.insert(0, index)
        if self.isSplit:
            part = code.integer("part")
            start = left * part
            a, b, k = a.at(start * aStrides[1]), b.at(start * bStrides[0]), code.least(part, k - start)
            indices.append(left)
        if indices:
            self.finish.enter(code, indices)
        rowStart, columnStart = block / across * strips * tile.rows, block % across * panels * tile.width
        self.block(
            code,
            known(MatrixOperand(a, m, k, aStrides), self.aLayout),
            known(MatrixOperand(b, k, n, bStrides), self.bLayout)
            if self.bLayout != "packed"
            else MatrixOperand(b, k, n, bStrides),
            (rowStart, code.least(rowStart + strips * tile.rows, m)),
            (columnStart, code.least(columnStart + panels * tile.width, n)),
            depth,
            panels,
        )

    def block(
        self,
        code: IRBuilder,
        a: MatrixOperand,
        b: MatrixOperand,
        rows: tuple[IRValue, IRValue],
        columns: tuple[IRValue, IRValue],
        depth: IRValue,
        panels: IRValue,
    ) -> None:
        """One task: blocks of k; strips of a, copied; panels of b, copied when the first strip meets them.

        A single strip meets each panel once: rows of b are read where they are, others copied to the same place.
        """
        tile = self.tile
        atOnce = stripsAtOnce(self.aLayout)
        strips = code.room("f32", atOnce * stripSize(tile))
        size = DEPTH * tile.width
        isThere = self.bLayout == "packed" or self.bLayout == "rows" and self.isLow
        store = b.start if isThere else code.room("f32", size if self.isLow else max(STORE, size))
        sums = code.room("f32", max(KEPT, tile.size) if self.isDeep else tile.size)
        with code.loop(0, code.select(b.rows > 0, b.rows, 1), depth, unroll=1) as k:
            count = code.least(depth, b.rows - k)
            isLast = k + depth >= b.rows
            with code.loop(rows[0], rows[1], tile.rows, unroll=1) as row:
                index = (row - rows[0]) / tile.rows % atOnce
                with code.when(index == 0):
                    copyStrip(code, a, self.aLayout, (row, rows[1]), k, count, tile, strips)
                strip = strips.at(index * stripSize(tile))
                with code.loop(columns[0], columns[1], tile.width, unroll=1) as column:
                    panel = (column - columns[0]) / tile.width
                    if self.bLayout == "packed":
                        right = store.at((column / tile.width * (b.rows + tile.lanes) + k) * tile.width)
                    else:
                        right = store if self.isLow else store.at(panel * depth * tile.width)
                    place = sums.at(((row - rows[0]) / tile.rows * panels + panel) * tile.size) if self.isDeep else sums
                    soon = [] if self.isLow else nextStrip(code, a, self.aLayout, row, k, tile, panel, panels, index)
                    self.tileOf(code, strip, b, right, (k, column, count), row == rows[0], place, soon)
                    with code.when(isLast):
                        self.end(code, place, row, code.least(rows[1] - row, tile.rows), column, b.columns)

    def tileOf(
        self,
        code: IRBuilder,
        strip: IRPointer,
        b: MatrixOperand,
        right: IRPointer,
        at: tuple[Any, Any, Any],
        isFirst: IRValue,
        place: IRPointer,
        soon: Sequence[tuple[IRPointer, Any]],
    ) -> None:
        """The sums of one tile over one block of k, taken up from and left at a place.

        Rows of b are read where they are, and copied on the way for the strips that follow.
        """
        tile, (k, column, count) = self.tile, at
        strides, left = stripStrides(self.aLayout, tile), b.columns - column
        isNew = k == 0

        def sums(vectors: int, columns: IRValue | None = None) -> None:
            def read(source: IRPointer, **options: Any) -> None:
                multiply(code, tile, strip, strides, source, count, place, isNew, soon, vectors=vectors, **options)

            if self.bLayout != "rows":
                read(right)
            elif self.isLow:
                read(b.at(k, column), bStride=b.strides[0], columns=columns)
            else:
                with code.when(isFirst):
                    read(b.at(k, column), bStride=b.strides[0], columns=columns, copy=right)
                with code.when(~isFirst):
                    read(right)

        if self.bLayout in ("columns", "any"):
            with code.when(isFirst):
                copyPanel(code, b, self.bLayout, k, column, count, tile, right)
        if not self.left:
            sums(tile.vectors)
            return
        with code.when(left >= tile.width):
            sums(tile.vectors)
        with code.when(left < tile.width):
            sums(self.left, left)

    def end(
        self, code: IRBuilder, place: IRPointer, row: IRValue, count: IRValue, column: IRValue, columns: IRValue
    ) -> None:
        """Hand over the rows of a tile."""
        tile, lanes = self.tile, self.tile.lanes
        isWhole = columns - column >= tile.width
        with code.when(isWhole), code.loop(0, count, unroll=1) as r:
            for v in range(0, tile.width, lanes):
                self.finish.put(code, row + r, column + v, place.load(r * tile.width + v, lanes))
        with code.when(~isWhole), code.loop(0, count, unroll=1) as r:
            with code.loop(0, columns - column, lanes, unroll=1) as v:
                mask = code.mask(columns - column - v, lanes)
                self.finish.put(code, row + r, column + v, place.load(r * tile.width + v, lanes), mask)
