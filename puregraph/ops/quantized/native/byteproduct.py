"""Byte product: sums[m, n] = sum_k a[m, k] b[k, n] of bytes, exact modulo 2^32, given to a Requantization.

A task copies a block of rows to scratch memory, as `byterows` describes, and multiplies them with panels that
`packbytes` has packed: a panel stays in L2 while all rows of the block meet it.

Source    Goto & van de Geijn 2008, Anatomy of high-performance matrix multiplication, section 6
"""

from __future__ import annotations

from typing import Any, NamedTuple

from puregraph.ops.native.llvm.bytedot import BYTES, byteDot
from puregraph.ops.native.llvm.instructions import IRPointer, IRType, IRValue
from puregraph.ops.native.llvm.irbuilder import IRBuilder
from puregraph.ops.native.llvm.kernelcall import KernelCall
from puregraph.ops.quantized.native.byterows import MatrixRows, WindowRows
from puregraph.ops.quantized.native.packbytes import ONES
from puregraph.ops.quantized.native.requantization import Requantization, RequantizationWriter

ROWS, VECTORS = (1, 2, 3, 4, 6, 8, 12), (1, 2, 3, 4)
COPIED_ROWS_BYTES = 1 << 17  # bytes of copied rows that stay in L2 beside a panel
CACHE_LINE_BYTES = 64  # bytes of a cache line
TASKS_PER_THREAD = 4  # tasks per thread, so that none waits long


class ByteTile(NamedTuple):
    """A register tile: rows of a times vectors of columns."""

    rows: int
    vectors: int
    lanes: int

    @property
    def width(self) -> int:
        """The number of columns."""
        return self.vectors * self.lanes

    def cost(self, m: int, n: int) -> float:
        """Vector multiplications of a product, with what else each step takes."""
        step = max(self.rows * self.vectors, self.rows + self.vectors, 4) + 1
        return -(-m // self.rows) * -(-n // self.width) * step


def byteTile(m: int, n: int, lanes: int) -> ByteTile:
    """The cheapest tile for a product."""
    most = 31 if lanes == 16 else 13  # registers: vectors of AVX2 and SSE have 16
    tiles = [ByteTile(r, v, lanes) for r in ROWS for v in VECTORS if (r + 1) * v <= most]
    return min(tiles, key=lambda tile: (tile.cost(m, n), -tile.rows))


def pitchOf(k: int) -> int:
    """Bytes between copied rows: a vector longer than a row, of few different sizes, and no power of two."""
    pitch = 2 * CACHE_LINE_BYTES
    while pitch < k + CACHE_LINE_BYTES:
        pitch += pitch // 2 if pitch & (pitch - 1) == 0 else pitch // 3
    return -(-pitch // CACHE_LINE_BYTES) * CACHE_LINE_BYTES + CACHE_LINE_BYTES


def byteProduct(
    name: str,
    rows: MatrixRows | WindowRows,
    packed: Any,
    to: Requantization,
    sizes: tuple[int, int, int, int],
    tile: ByteTile,
    threads: int,
) -> list[KernelCall]:
    """The kernel call of a product of `sizes`: groups, m, n, k."""
    groups, m, n, k = sizes
    if groups * m * n == 0:
        return []
    pitch = pitchOf(k)
    strips, panels = -(-m // tile.rows), -(-n // tile.width)
    wanted = -(-TASKS_PER_THREAD * threads // groups)
    high = max(1, min(COPIED_ROWS_BYTES // (tile.rows * pitch), -(-strips // wanted)))
    down = -(-strips // high)
    wide = -(-panels // max(1, min(panels, wanted // down)))
    across = -(-panels // wide)
    spec = ByteProductSpec(tile, pitch, rows, to)
    slots = {"packed": packed, "m": m, "n": n, "k": k, "high": high, "wide": wide, "down": down, "across": across}
    slots |= rows.slots | to.slots
    return [KernelCall(name, spec.key, spec.write, slots, groups * down * across)]


class ByteProductSpec(NamedTuple):
    """The parameters of a product's code."""

    tile: ByteTile
    pitch: int
    source: MatrixRows | WindowRows
    to: Requantization

    @property
    def key(self) -> str:
        return f"bytes {tuple(self.tile)} {self.pitch} {self.source.key} {self.to.key}"

    def write(self, code: IRBuilder) -> None:
        """Write a task: a block of rows times some panels, of one group."""
        code.flags = ""  # scaled sums are rounded as numpy rounds them
        tile, pitch = self.tile, self.pitch
        packed = code.pointer("packed", "i32")
        m, n, k, high, wide, down, across = (
            code.integer(name) for name in ("m", "n", "k", "high", "wide", "down", "across")
        )
        copy, ending = self.source.open(code), self.to.open(code)
        block, group = code.task % (down * across), code.task // (down * across)
        ending.enter(group)
        steps, panels = (k + (BYTES - 1)) // BYTES, (n + (tile.width - 1)) // tile.width
        first = block // across * high * tile.rows
        count = code.min(m - first, high * tile.rows)
        rows = code.scratch("u8", max(COPIED_ROWS_BYTES, tile.rows * pitch) + pitch)
        sums = code.scratch("i32", tile.rows * tile.width)
        fill, lanes = ending.fill(), tile.lanes * BYTES
        with code.loop(0, count, unroll=1) as r:
            copy(group, first + r, k, fill, rows.at(r * pitch), lanes)
        start = block % across * wide
        with code.loop(start, code.min(start + wide, panels), unroll=1) as panel:
            right = packed.at((group * panels + panel) * (steps + 1) * tile.width)
            with code.loop(0, count, tile.rows, unroll=1) as r:
                left = rows.at(r * pitch)
                multiplyTile(code, tile, pitch // BYTES, left.cast("i32"), right, steps, sums)
                live = code.min(count - r, tile.rows)
                self.put(code, ending, (first, r), live, panel * tile.width, n, k, left, right, steps, sums)

    def put(
        self,
        code: IRBuilder,
        ending: RequantizationWriter,
        row: tuple[IRValue, IRValue],
        live: IRValue,
        column: IRValue,
        n: IRValue,
        k: IRValue,
        left: IRPointer,
        right: IRPointer,
        steps: IRValue,
        sums: IRPointer,
    ) -> None:
        """Give the sums of a tile to the Requantization, row by row."""
        tile, first = self.tile, row[0] + row[1]
        shared = ending.aZero(first, self.source.isSigned)
        vectors = []
        for v in range(tile.vectors):
            start = column + v * tile.lanes
            ofColumns = right.load(steps * tile.width + v * tile.lanes, tile.lanes)
            vectors.append(ending.columns(start, ofColumns, shared, code.mask(n - start, tile.lanes)))
        with code.loop(0, live, unroll=1) as r:
            aZero = ending.aZero(first + r, self.source.isSigned) if ending.hasRowZeros else shared
            rowSum = None
            if self.to.bZero is not None:
                total = sumOfRow(code, left.at(r * self.pitch), k, tile.lanes)
                rowSum = total - code.convert(k, "i32") * aZero
            for v, at in enumerate(vectors):
                vector = sums.load(r * tile.width + v * tile.lanes, tile.lanes)
                ending.put(first + r, at, vector, aZero, rowSum)


def multiplyTile(
    code: IRBuilder, tile: ByteTile, pitch: int, a: IRPointer, b: IRPointer, steps: IRValue, to: IRPointer
) -> None:
    """to[r, v] = sum_k a[r, k] b[k, v], in steps of four bytes."""

    def write(code: IRBuilder, a: IRPointer, b: IRPointer, steps: IRValue, to: IRPointer) -> None:
        zero = code.constant(0, IRType("i32", tile.lanes))
        totals = [[code.variable(zero) for _ in range(tile.vectors)] for _ in range(tile.rows)]
        with code.loop(0, steps, unroll=1) as step:
            line = b.at(step * tile.width)
            right = [line.load(v * tile.lanes, tile.lanes) for v in range(tile.vectors)]
            for r, row in enumerate(totals):
                left = code.splat(a.at(step).load(r * pitch), tile.lanes)
                for total, value in zip(row, right):
                    total.value = byteDot(code, total.value, left, value)
        for r, row in enumerate(totals):
            for v, total in enumerate(row):
                to.store(r * tile.width + v * tile.lanes, total.value)

    code.function("multiplyTile", [a, b, steps, to], write)


def sumOfRow(code: IRBuilder, row: IRPointer, k: IRValue, lanes: int) -> IRValue:
    """The sum of the k bytes of a copied row."""
    total = code.variable(code.constant(0, IRType("i32", lanes)))
    ones = code.constant(ONES, IRType("i32", lanes))
    vectorized = k // (lanes * BYTES) * (lanes * BYTES)
    with code.loop(0, vectorized, lanes * BYTES, unroll=1) as at:
        total.value = byteDot(code, total.value, row.at(at).cast("i32").load(0, lanes), ones)
    rest = code.variable(code.sumLanes(total.value))
    with code.loop(vectorized, k, unroll=1) as at:
        rest.value = rest.value + code.convert(row.load(at), "i32")
    return rest.value
