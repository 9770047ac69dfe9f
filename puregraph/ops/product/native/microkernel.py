"""Microkernel: the register tile of a GEMM and its inner loop over k."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

from puregraph.ops.native.llvm.bfloatpairs import pairDot
from puregraph.ops.native.llvm.instructions import SIZES, IRPointer, IRType, IRValue
from puregraph.ops.native.llvm.irbuilder import IRBuilder

LINE = 64  # bytes of a cache line
AHEAD = 16  # rows of b that are prefetched before they are read
STREAM = 12 << 10  # bytes of a packed b that are prefetched before they are read: of weights that are in no cache
LOOP, ROW = 1.0, 0.04  # the cost of an iteration besides its multiplications: fixed, and per element of a


class Microkernel(NamedTuple):
    """A register tile: `rows` of a times `vectors` of b's columns, each of `lanes` elements of the kind `real`.

    With `halves`, factors are bfloat16, packed in pairs along k, and a step along k multiplies a pair.

    Source    Goto & van de Geijn 2008, Anatomy of high-performance matrix multiplication, section 6
    """

    rows: int
    vectors: int
    lanes: int
    real: str = "f32"
    halves: bool = False

    @property
    def factor(self) -> str:
        """The kind of a packed element."""
        return "i32" if self.halves else self.real

    @property
    def group(self) -> int:
        """The elements along k of a packed element."""
        return 2 if self.halves else 1

    def steps(self, count: Any) -> Any:
        """The steps along `count` elements of k."""
        return (count + 1) / 2 if self.halves else count

    @property
    def width(self) -> int:
        """The number of columns."""
        return self.vectors * self.lanes

    @property
    def size(self) -> int:
        """The number of accumulators."""
        return self.rows * self.width

    def cost(self, vectors: int) -> float:
        """The cost of one k for some of the vectors, in vector multiplications; loads are issued in parallel."""
        return max(self.rows * vectors, self.rows + vectors, 4) + LOOP + ROW * self.rows

    def rowCost(self, n: int) -> float:
        """The cost for n columns; the last ones may need fewer vectors."""
        left = self.remainderVectors(n)
        return n // self.width * self.cost(self.vectors) + (self.cost(left) if left else 0)

    def remainderVectors(self, n: int) -> int:
        """Vectors of the columns after the last whole tile."""
        return -(-(n % self.width) // self.lanes)

    @property
    def line(self) -> int:
        """Elements of a cache line."""
        return LINE // SIZES[self.real]

    @property
    def key(self) -> str:
        return f"{self.rows}x{self.vectors}x{self.lanes} {self.real}{' halves' if self.halves else ''}"


def registers(lanes: int, real: str = "f32") -> int:
    """The number of vector registers: AVX2, whose vectors have 32 bytes, has half as many as AVX-512 and ARM."""
    return 16 if lanes * SIZES[real] == 32 else 32


@cache
def tiles(lanes: int, real: str = "f32", halves: bool = False) -> list[Microkernel]:
    """All tiles whose accumulators fit the registers, together with a row of b and a broadcast element of a."""
    most = registers(lanes, real) - 1
    sizes = ((rows, vectors) for vectors in (1, 2, 3, 4, 6, 8) for rows in range(1, 15))
    return [Microkernel(r, v, lanes, real, halves) for r, v in sizes if (r + 1) * v <= most]


def multiply(
    code: IRBuilder,
    tile: Microkernel,
    a: IRPointer,
    aStrides: tuple[int, int],
    b: IRPointer,
    count: IRValue,
    to: IRPointer,
    isFirst: IRValue,
    ahead: Sequence[tuple[IRPointer, IRValue]] = (),
    bStride: IRValue | None = None,
    copy: IRPointer | None = None,
    vectors: int = 0,
    columns: IRValue | None = None,
    isStreamed: bool = False,
) -> None:
    """to[r, v] = sum_k a[r, k] b[k, v] over `count` steps along k, added to the old to[r, v] unless `isFirst`.

    b is packed, or has a stride between its rows; then rows are prefetched, and may be packed to `copy` on the way.
    `vectors`     the number of vectors to compute, from the first of the tile (0: all)
    `columns`     the number of columns of b, if the last vector may go beyond them
    `ahead`       addresses to prefetch into L2, and their steps along k
    `isStreamed`  b was packed before this product, and may be in no cache: prefetch it
    """
    vectors = vectors or tile.vectors
    sources = [x for x in (bStride, copy, columns) if x is not None]
    args = [a, b, count, to, isFirst, *(x for pair in ahead for x in pair), *sources]

    def write(
        code: IRBuilder, a: IRPointer, b: IRPointer, count: IRValue, to: IRPointer, isFirst: IRValue, *more: Any
    ) -> None:
        targets, optional = more[: 2 * len(ahead)], more[2 * len(ahead) :]
        step = tile.width if bStride is None else optional[0]
        further = STREAM // SIZES[tile.factor] if bStride is None else step * AHEAD
        copyTarget = None if copy is None else optional[1]
        masks: list[IRValue | None] = [None] * vectors
        lanes, zero = tile.lanes, code.constant(0, IRType(tile.real, tile.lanes))
        if columns is not None:
            masks[-1] = code.mask(optional[-1] - (vectors - 1) * lanes, lanes)
        addresses = [[to.at(r * tile.width + v * lanes) for v in range(vectors)] for r in range(tile.rows)]
        totals = [[code.variable(zero) for _ in line] for line in addresses]
        with code.loop(0, count, unroll=1) as k:
            column, row = a.at(k * aStrides[1]), b.at(k * step)
            right = [row.load(v * lanes, lanes, mask) for v, mask in enumerate(masks)]
            for address, stride in zip(targets[::2], targets[1::2]):
                address.at(k * stride).prefetch(near=False)
            for v, element in enumerate(right):
                if bStride is not None or isStreamed:
                    row.at(further).prefetch(v * lanes)
                if copyTarget is not None:
                    copyTarget.at(k * tile.width).store(v * lanes, element)
            for r, line in enumerate(totals):
                left = code.splat(column.load(r * aStrides[0]), lanes)
                for total, value in zip(line, right):
                    sums = total.value
                    total.value = pairDot(code, sums, left, value) if tile.halves else code.fma(left, value, sums)
        with code.when(~isFirst):  # only now, so that a long sum is rounded as seldom as possible
            for line, where in zip(totals, addresses):
                for total, address in zip(line, where):
                    total.value = address.load(0, lanes) + total.value
        for line, where in zip(totals, addresses):
            for total, address in zip(line, where):
                address.store(0, total.value)

    code.function(f"multiply{len(sources)}x{vectors}{'cut' if columns is not None else ''}", args, write)
