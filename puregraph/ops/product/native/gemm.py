"""GEMM: matrix products of any sizes and strides, as independent tasks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

from puregraph.core.opensize import numbered, sized
from puregraph.ops.native.llvm.instructions import IRPointer, IRValue
from puregraph.ops.native.llvm.irbuilder import IRBuilder
from puregraph.ops.native.llvm.kernelcall import COMPILED, EpilogueSpec, KernelCall, madeFor, variedFor
from puregraph.ops.native.llvm.registertranspose import transposed
from puregraph.ops.native.threads.numthreads import threads as allThreads
from puregraph.ops.product.native.blocking import ACCUMULATORS, PACKED_B, GemmSizes, blockingFor, capacity
from puregraph.ops.product.native.gemv import gemv, gemvFrom, outerProduct, skinnyProduct
from puregraph.ops.product.native.microkernel import Microkernel, multiply, registers
from puregraph.ops.product.native.pack import (
    DEPTH,
    MatrixOperand,
    PackedMatrix,
    copyPanel,
    copyStrip,
    layoutOf,
    prefetchTargets,
    stripsAtOnce,
    stripSize,
    stripStrides,
    withKnownStride,
)
from puregraph.ops.product.native.packpairs import copyPanelPairs, copyStripPairs
from puregraph.ops.product.native.splitk import partialsSize, partialSums, reduceParts, splitSize

if TYPE_CHECKING:
    from puregraph.ops.ir.value import Value

FEW_ROWS = 8  # rows of a (or a third of the registers) up to which packing b does not pay off
SHORT_K = 8  # the shortest k for which rounding to bfloat16 pays off


class BatchAxis(NamedTuple):
    """A batch axis: its size, and its strides in a and b."""

    size: int
    a: int
    b: int


class Grouping(NamedTuple):
    """The groups of a product with one batch axis: `first` has the number of the first block of each, int64.

    `how` "blocks": the axis has blocks of a, and b of a block is that of its group. "depth": the axis has the groups,
    and k of a group has `step` elements for each of its blocks.
    """

    how: str
    first: Any
    groups: int
    step: int = 0


def gemm(
    a: Any,
    b: Any,
    epilogue: EpilogueSpec,
    m: int,
    n: int,
    k: int,
    aStrides: tuple[int, int],
    bStrides: tuple[int, int] = (0, 0),
    batch: Sequence[BatchAxis] = (),
    lanes: int = 16,
    threads: int | None = None,
    workspace: Callable[[int], Any] | None = None,
    real: str = "f32",
    isSymmetric: bool = False,
    halves: bool = False,
    grouping: Grouping | None = None,
) -> list[KernelCall]:
    """sums[m, n] = sum_k a[m, k] b[k, n], given to the epilogue row by row; b may be a `PackedMatrix`.

    `workspace(count)` gives memory for partial sums of split-k; without it, k is not split. The order of additions
    follows from the sizes, whatever the number of threads. If `isSymmetric`, b is a^T: only tiles that reach the
    upper triangle are computed, and those below the diagonal are their transposes, with the same bits. With `halves`,
    factors are rounded to bfloat16 if that is faster, as of a b that is packed so.
    """
    count = prod(axis.size for axis in batch)
    if m * n * count == 0:
        return []
    threads = allThreads() if threads is None else threads
    isPacked = isinstance(b, PackedMatrix)
    halves = halves and (isPacked or worthRounding(m, n, k))
    aLayout, bLayout = layoutOf(aStrides, (m, k)), "packed" if isPacked else layoutOf(bStrides, (k, n))
    overSamples = aLayout == "columns" and bLayout == "rows"
    part = k if workspace is None or isPacked else splitSize(m, n, k, count, lanes, overSamples)
    vectors = b.vectors if isPacked else 0

    def tiled(to: EpilogueSpec, batch: Sequence[BatchAxis], m: int, n: int, k: int, part: int, strides: Any) -> Any:
        parts = 1 if part is k else -(-k // part)
        products = prod(axis.size for axis in batch) * parts
        sizes = GemmSizes(m, n, part, products, lanes, aLayout, bLayout, vectors, real, isSymmetric, halves)
        return tiledProduct(a, b, to, sizes, k, strides, batch, threads, grouping, parts)

    def calls(batch: Sequence[BatchAxis], m: int, n: int, k: int, part: int, strides: Any) -> list[KernelCall]:
        if not batch and not isPacked:
            narrow = narrowProduct(a, b, epilogue, m, n, k, strides, lanes, threads, real)
            if narrow is not None:
                return narrow
        if part >= k:
            return [tiled(epilogue, batch, m, n, k, k, strides)]
        parts, sizes = -(-k // part), [axis.size for axis in batch]
        to = partialSums(partials, m, n, parts, sizes, real)
        ending = reduceParts(partials, epilogue, m, n, parts, sizes, lanes, real)
        return [tiled(to, batch, m, n, k, part, strides), ending]

    count = partialsSize(count, m, n, k, part)
    partials: Any = workspace(count) if workspace is not None and count != 0 else None
    return variedFor(calls, tuple(batch), m, n, k, part, (aStrides, bStrides))


def tiledProduct(
    a: Any,
    b: Any,
    epilogue: EpilogueSpec,
    sizes: GemmSizes,
    k: int,
    strides: tuple[tuple[int, int], tuple[int, int]],
    batch: Sequence[BatchAxis],
    threads: int,
    grouping: Grouping | None,
    parts: int,
) -> KernelCall:
    """A product in blocks, of which `sizes.k` of `k` elements belong to each of its `parts`."""
    m, n, suffix, isPacked = sizes.m, sizes.n, epilogue.key, isinstance(b, PackedMatrix)
    slots = {"a": a, "b": b.array if isPacked else b, "m": m, "n": n, "k": k, "part": sizes.k}
    (aRow, aColumn), (bRow, bColumn) = strides
    slots |= {"aRow": aRow, "aColumn": aColumn, "bRow": bRow, "bColumn": bColumn}
    for i, axis in enumerate(batch):
        slots |= {f"batch{i}": axis.size, f"aBatch{i}": axis.a, f"bBatch{i}": axis.b}
    if grouping is not None:
        slots |= {"first": grouping.first, "groups": grouping.groups, "groupStep": grouping.step}
    slots |= epilogue.slots
    name, isSplit = sized("product {}x{}x{}" + (" in bfloat16" if sizes.halves else ""), m, k, n), parts > 1

    def make(sizes: GemmSizes) -> KernelCall:
        def specOf(tile: Microkernel) -> GemmSpec:
            return GemmSpec(
                tile,
                sizes.aLayout,
                sizes.bLayout,
                axes=len(batch),
                isSingleStrip=sizes.m <= tile.rows,
                isBlocked=sizes.blocks > 1,
                isSplit=isSplit,
                remainder=tile.remainderVectors(sizes.n),
                epilogue=epilogue,
                isSymmetric=sizes.isSymmetric,
                grouping=grouping.how if grouping else "",
            )

        blocking = blockingFor(sizes, threads, lambda tile: specOf(tile).keyWith(suffix) in COMPILED)
        kernel = specOf(blocking.tile)
        shape = {name: getattr(blocking, name) for name in ("strips", "panels", "depth", "down", "across")}
        tasks = blocking.down * blocking.across * sizes.batch
        return KernelCall(name, kernel.key, kernel.write, slots | shape, tasks, sizes.halves)

    return madeFor(make, sizes)


def narrowProduct(
    a: Value,
    b: Any,
    epilogue: EpilogueSpec,
    m: int,
    n: int,
    k: int,
    strides: tuple[tuple[int, int], tuple[int, int]],
    lanes: int,
    threads: int,
    real: str,
) -> list[KernelCall] | None:
    """A product that needs no packing: a GEMV, one with few rows, or an outer product; None for any other."""
    aStrides, bStrides = strides
    spec = gemvFrom(a, b, m, n, k, aStrides, bStrides, real)
    if spec is not None:
        return gemv(spec, epilogue, lanes, threads)
    if 1 < m <= max(FEW_ROWS, registers(lanes, real) // 3) and aStrides[1] == bStrides[0] == 1 < k:
        return skinnyProduct(a, b, epilogue, m, n, k, (aStrides[0], bStrides[1]), lanes, threads, real)
    if k == 1 and bStrides[1] == 1:
        return outerProduct(a, b, epilogue, m, n, aStrides[0], lanes, threads, real)
    return None


def worthPacking(m: int, n: int, k: int, lanes: int) -> bool:
    """True if b[k, n] is better packed ahead: not for a GEMV, and not with split-k."""
    return m >= FEW_ROWS and n > 1 and k > 1 and splitSize(m, n, k, 1, lanes) == k


def worthRounding(m: int, n: int, k: int) -> bool:
    """True if a product is faster in bfloat16, rounding of its factors included."""
    return m > FEW_ROWS and n > 1 and k >= SHORT_K


def vectorsFor(
    m: int, n: int, k: int, aStrides: tuple[int, int], lanes: int, real: str = "f32", halves: bool = False
) -> int:
    """The width in vectors of the panels of b[k, n], packed ahead for a product that is often computed.

    Sums have the same bits with any width, so that of the traced sizes serves all others.
    """
    m, n, k, aStrides = numbered((m, n, k, aStrides))
    sizes = GemmSizes(m, n, k, 1, lanes, layoutOf(aStrides, (m, k)), "packed", 0, real, halves=halves)
    return blockingFor(sizes, allThreads()).tile.vectors


class GemmSpec(NamedTuple):
    """The parameters of a product's code.

    `isSingleStrip`: m has one strip. `isBlocked`: accumulators are kept between blocks of k. `isSplit`: split-k.
    `remainder`: vectors of the last columns, 0 if they fill a tile. `isSymmetric`: b is the transpose of a. `grouping`:
    that of a `Grouping`.
    """

    tile: Microkernel
    aLayout: str
    bLayout: str
    axes: int
    isSingleStrip: bool
    isBlocked: bool
    isSplit: bool
    remainder: int
    epilogue: EpilogueSpec
    isSymmetric: bool = False
    grouping: str = ""

    @property
    def key(self) -> str:
        return self.keyWith(self.epilogue.key)

    def keyWith(self, epilogue: str) -> str:
        """The key, if that of the epilogue is known."""
        flags = f"{self.isSingleStrip:d}{self.isBlocked:d}{self.isSplit:d}{self.isSymmetric:d}"
        options = f"{flags}{self.remainder}{self.grouping}"
        return f"product {self.tile.key} {self.aLayout} {self.bLayout} {self.axes} {options} {epilogue}"

    @property
    def readsRows(self) -> bool:
        """True if the first strip reads rows of b in place."""
        return self.bLayout == "rows" and not self.tile.halves

    def write(self, code: IRBuilder) -> None:
        """Write a task: one block of the result, of one product of the batch and one part of k."""
        tile = self.tile
        a, b = code.pointer("a", tile.real), code.pointer("b", tile.real)
        m, n, k = (code.integer(name) for name in "mnk")
        aStrides, bStrides = ((code.integer(s + "Row"), code.integer(s + "Column")) for s in "ab")
        strips, panels, depth, down, across = (
            code.integer(name) for name in ("strips", "panels", "depth", "down", "across")
        )
        grouping = GroupLookup(code, self.grouping) if self.grouping else None
        axes = [[code.integer(f"{name}{i}") for name in ("batch", "aBatch", "bBatch")] for i in range(self.axes)]
        self.epilogue.open(code)
        block = code.task % (down * across)
        indices: list[IRValue] = []
        remainder = code.task / (down * across)
        for size, aStep, bStep in reversed(axes):
            index, remainder = remainder % size, remainder / size
            group = grouping.of(index) if grouping and grouping.how == "blocks" else index
            a, b = a.at(index * aStep), b.at(group * bStep)
            indices.insert(0, index)
        if self.isSplit:
            splitDepth = code.integer("part")
            start = remainder * splitDepth
            a, b, k = a.at(start * aStrides[1]), b.at(start * bStrides[0]), code.min(splitDepth, k - start)
            indices.append(remainder)
        if grouping and grouping.how == "depth":
            start, end = grouping.range(indices[0], k)
            a, b, k = a.at(start * aStrides[1]), b.at(start * bStrides[0]), end - start
        if indices:
            self.epilogue.enter(code, indices)
        rowStart, columnStart = block / across * strips * tile.rows, block % across * panels * tile.width
        self.block(
            code,
            withKnownStride(MatrixOperand(a, m, k, aStrides), self.aLayout),
            withKnownStride(MatrixOperand(b, k, n, bStrides), self.bLayout)
            if self.bLayout != "packed"
            else MatrixOperand(b, k, n, bStrides),
            (rowStart, code.min(rowStart + strips * tile.rows, m)),
            (columnStart, code.min(columnStart + panels * tile.width, n)),
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
        """The loop nest over blocks of k, packed strips of a, and panels of b, which are packed with the first strip.

        A single strip reads each panel once: rows of b in place, others packed to the same memory.
        """
        tile = self.tile
        atOnce = stripsAtOnce(self.aLayout)
        strips = code.scratch(tile.factor, atOnce * stripSize(tile))
        size = DEPTH * tile.width
        isInPlace = self.bLayout == "packed" or self.readsRows and self.isSingleStrip
        store = (
            b.start.cast(tile.factor)
            if isInPlace
            else code.scratch(tile.factor, size if self.isSingleStrip else max(capacity(PACKED_B, tile.real), size))
        )
        sums = code.scratch(
            tile.real, max(capacity(ACCUMULATORS, tile.real), tile.size) if self.isBlocked else tile.size
        )
        mirrored = code.scratch(tile.real, tile.width * self.mirroredRows) if self.isSymmetric else sums
        elements = depth * tile.group
        with code.loop(0, code.select(b.rows > 0, b.rows, 1), elements, unroll=1) as k:
            count = code.min(elements, b.rows - k)
            isLastBlock = k + elements >= b.rows
            lastRow = code.min(rows[1], columns[1]) if self.isSymmetric else rows[1]
            with code.loop(rows[0], lastRow, tile.rows, unroll=1) as row:
                index = (row - rows[0]) / tile.rows % atOnce
                with code.when(index == 0):
                    copy = copyStripPairs if tile.halves else copyStrip
                    copy(code, a, self.aLayout, (row, rows[1]), k, count, tile, strips)
                strip = strips.at(index * stripSize(tile))
                start = columns[0]
                if self.isSymmetric:
                    start = code.select(self.firstColumn(row) > start, self.firstColumn(row), start)
                with code.loop(start, columns[1], tile.width, unroll=1) as column:
                    panel = (column - columns[0]) / tile.width
                    if self.bLayout == "packed":
                        apart = tile.steps(b.rows) + tile.lanes
                        right = store.at((column / tile.width * apart + tile.steps(k)) * tile.width)
                    else:
                        right = store if self.isSingleStrip else store.at(panel * depth * tile.width)
                    accumulators = (
                        sums.at(((row - rows[0]) / tile.rows * panels + panel) * tile.size) if self.isBlocked else sums
                    )
                    ahead = (
                        []
                        if self.isSingleStrip
                        else prefetchTargets(code, a, self.aLayout, row, k, tile, panel, panels, index)
                    )
                    self.computeTile(code, strip, b, right, (k, column, count), row == rows[0], accumulators, ahead)
                    with code.when(isLastBlock):
                        height = code.min(rows[1] - row, tile.rows)
                        self.putTile(code, accumulators, row, height, column, b.columns)
                        if self.isSymmetric:
                            self.putTransposed(code, mirrored, accumulators, row, height, column, b.columns)

    def computeTile(
        self,
        code: IRBuilder,
        strip: IRPointer,
        b: MatrixOperand,
        right: IRPointer,
        at: tuple[Any, Any, Any],
        isFirst: IRValue,
        accumulators: IRPointer,
        ahead: Sequence[tuple[IRPointer, Any]],
    ) -> None:
        """The microkernel: one tile over one block of k, added to its accumulators.

        The first strip reads rows of b in place, and packs them on the way for the strips that follow.
        """
        tile, (k, column, count) = self.tile, at
        strides, remainder = stripStrides(self.aLayout, tile), b.columns - column
        isFirstBlock, steps = k == 0, tile.steps(count)

        def sums(vectors: int, columns: IRValue | None = None) -> None:
            def read(source: IRPointer, **options: Any) -> None:
                multiply(
                    code,
                    tile,
                    strip,
                    strides,
                    source,
                    steps,
                    accumulators,
                    isFirstBlock,
                    ahead,
                    vectors=vectors,
                    **options,
                )

            if not self.readsRows:
                read(right, isStreamed=self.bLayout == "packed")
            elif self.isSingleStrip:
                read(b.at(k, column), bStride=b.strides[0], columns=columns)
            else:
                with code.when(isFirst):
                    read(b.at(k, column), bStride=b.strides[0], columns=columns, copy=right)
                with code.when(~isFirst):
                    read(right)

        if self.bLayout != "packed" and not self.readsRows:
            copyOf = copyPanelPairs if tile.halves else copyPanel
            with code.when(isFirst):
                copyOf(code, b, self.bLayout, k, column, count, tile, right)
        if not self.remainder:
            sums(tile.vectors)
            return
        with code.when(remainder >= tile.width):
            sums(tile.vectors)
        with code.when(remainder < tile.width):
            sums(self.remainder, remainder)

    def putTile(
        self, code: IRBuilder, accumulators: IRPointer, row: IRValue, count: IRValue, column: IRValue, columns: IRValue
    ) -> None:
        """Give the rows of a tile to the epilogue."""
        tile, lanes = self.tile, self.tile.lanes
        isWhole = columns - column >= tile.width
        with code.when(isWhole), code.loop(0, count, unroll=1) as r:
            for v in range(0, tile.width, lanes):
                self.epilogue.put(code, row + r, column + v, accumulators.load(r * tile.width + v, lanes))
        with code.when(~isWhole), code.loop(0, count, unroll=1) as r:
            with code.loop(0, columns - column, lanes, unroll=1) as at:
                mask = code.mask(columns - column - at, lanes)
                self.epilogue.put(code, row + r, column + at, accumulators.load(r * tile.width + at, lanes), mask)

    def firstColumn(self, row: IRValue) -> IRValue:
        """The first column that is computed in a row of a symmetric product: of the tile that meets the diagonal."""
        tile = self.tile
        return row / tile.rows * tile.rows / tile.width * tile.width

    @property
    def mirroredRows(self) -> int:
        """The rows of a tile in whole vectors."""
        return -(-self.tile.rows // self.tile.lanes) * self.tile.lanes

    def putTransposed(
        self,
        code: IRBuilder,
        mirrored: IRPointer,
        accumulators: IRPointer,
        row: IRValue,
        count: IRValue,
        column: IRValue,
        columns: IRValue,
    ) -> None:
        """Give the transpose of a tile above the diagonal to the epilogue: as far as none of its tiles is computed."""
        tile, lanes, length = self.tile, self.tile.lanes, self.mirroredRows
        end = code.min(columns - column, tile.width)
        with code.when(self.firstColumn(column + end - 1) > row):
            with code.loop(0, end, lanes, unroll=1) as v:
                for top in range(0, length, lanes):
                    rows = [min(top + i, tile.rows - 1) * tile.width for i in range(lanes)]
                    vectors = [accumulators.load(start + v, lanes) for start in rows]
                    for i, vector in enumerate(transposed(code, vectors)):
                        mirrored.store((v + i) * length + top, vector)
            with code.loop(0, end, unroll=1) as r:
                stop = code.min(row + count, self.firstColumn(column + r))
                with code.loop(row, stop, lanes, unroll=1) as v:
                    vector = mirrored.load(r * length + (v - row), lanes)
                    self.epilogue.put(code, column + r, v, vector, code.mask(stop - v, lanes))


class GroupLookup:
    """The groups of a product in its code: of which group a block is, and the range of a group along k."""

    def __init__(self, code: IRBuilder, how: str):
        self.code, self.how, self.first = code, how, code.pointer("first", "i64")
        self.count, self.step = code.integer("groups"), code.integer("groupStep")

    def of(self, block: IRValue) -> IRValue:
        """The number of the last group that does not begin after a block."""
        code, number = self.code, self.code.variable(self.code.i64(0))
        with code.loop(1, self.count, unroll=1) as i:
            number.value = code.select(self.first.load(i) <= block, i, number.value)
        return number.value

    def range(self, group: IRValue, k: IRValue) -> tuple[IRValue, IRValue]:
        """The start and the end of a group, within k; the last one ends at k."""
        code, isLast = self.code, group + 1 >= self.count

        def within(block: IRValue) -> IRValue:
            return code.min(code.select(block > 0, block, 0) * self.step, k)

        start = within(self.first.load(group))
        end = code.select(isLast, k, within(self.first.load(code.select(isLast, group, group + 1))))
        return start, code.select(end > start, end, start)
