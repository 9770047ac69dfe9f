"""Tile: the piece of a matrix product that stays in registers while the sum runs over k."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

from puregraph.native.llvm.irbuilder import IRBuilder, IRPointer, IRType, IRValue

AHEAD = 16  # rows of b that are asked for before they are read
LOOP, ROW = 1.0, 0.04  # time that a step of the loop takes beside its multiplications: in all, for each number of a


class Microkernel(NamedTuple):
    """`rows` of a times `vectors` of b's columns, each of `lanes` numbers.

    Source    Goto & van de Geijn 2008, Anatomy of high-performance matrix multiplication, section 6
    """

    rows: int
    vectors: int
    lanes: int

    @property
    def width(self) -> int:
        """Columns."""
        return self.vectors * self.lanes

    @property
    def size(self) -> int:
        return self.rows * self.width

    def cost(self, vectors: int) -> float:
        """Time of one step of k of so many of the vectors, in vector multiplications, beside which go as many loads."""
        return max(self.rows * vectors, self.rows + vectors, 4) + LOOP + ROW * self.rows

    def across(self, n: int) -> float:
        """The same for n columns, of which the last ones may need fewer vectors."""
        left = self.vectorsLeft(n)
        return n // self.width * self.cost(self.vectors) + (self.cost(left) if left else 0)

    def vectorsLeft(self, n: int) -> int:
        """Vectors that the columns behind the last whole tile need."""
        return -(-(n % self.width) // self.lanes)

    @property
    def key(self) -> str:
        return f"{self.rows}x{self.vectors}x{self.lanes}"


def registers(lanes: int) -> int:
    """How many vector registers there are: AVX2 alone has only half as many as AVX-512 and ARM."""
    return 16 if lanes == 8 else 32


@cache
def tiles(lanes: int) -> list[Microkernel]:
    """All tiles whose sums fit the registers, next to a row of b and one number of a."""
    most = registers(lanes) - 1
    sizes = ((rows, vectors) for vectors in (1, 2, 3, 4, 6, 8) for rows in range(1, 15))
    return [Microkernel(r, v, lanes) for r, v in sizes if (r + 1) * v <= most]


def multiply(
    code: IRBuilder,
    tile: Microkernel,
    a: IRPointer,
    aStrides: tuple[int, int],
    b: IRPointer,
    count: IRValue,
    to: IRPointer,
    isNew: IRValue,
    ahead: Sequence[tuple[IRPointer, IRValue]] = (),
    bStride: IRValue | None = None,
    copy: IRPointer | None = None,
    vectors: int = 0,
    columns: IRValue | None = None,
) -> None:
    """to[r, v] = sum_k a[r, k] b[k, v] over `count` k, or unless `isNew` to[r, v] + the same.

    Rows of b follow each other, or have a stride; then they are asked for in advance, and may be copied on the way.
    `vectors`: only so many of the tile's. `columns`: how many b has, where the last vector may go beyond them. `ahead`:
    where numbers lie that are needed soon after, and how far that of each k lies from the last.
    """
    vectors = vectors or tile.vectors
    sources = [x for x in (bStride, copy, columns) if x is not None]
    given = [a, b, count, to, isNew, *(x for pair in ahead for x in pair), *sources]

    def write(
        code: IRBuilder, a: IRPointer, b: IRPointer, count: IRValue, to: IRPointer, isNew: IRValue, *more: Any
    ) -> None:
        soon, rest = more[: 2 * len(ahead)], more[2 * len(ahead) :]
        step = tile.width if bStride is None else rest[0]
        copied = None if copy is None else rest[1]
        masks: list[IRValue | None] = [None] * vectors
        lanes, zero = tile.lanes, code.constant(0, IRType("f32", tile.lanes))
        if columns is not None:
            masks[-1] = code.mask(rest[-1] - (vectors - 1) * lanes, lanes)
        places = [[to.at(r * tile.width + v * lanes) for v in range(vectors)] for r in range(tile.rows)]
        sums = [[code.variable(zero) for _ in line] for line in places]
        with code.loop(0, count, unroll=1) as k:
            column, row = a.at(k * aStrides[1]), b.at(k * step)
            right = [row.load(v * lanes, lanes, mask) for v, mask in enumerate(masks)]
            for place, far in zip(soon[::2], soon[1::2]):
                place.at(k * far).prefetch(near=False)
            for v, one in enumerate(right):
                if bStride is not None:
                    row.at(AHEAD * step).prefetch(v * lanes)
                if copied is not None:
                    copied.at(k * tile.width).store(v * lanes, one)
            for r, line in enumerate(sums):
                left = code.splat(column.load(r * aStrides[0]), lanes)
                for one, value in zip(line, right):
                    one.value = code.fma(left, value, one.value)
        with code.when(~isNew):  # only now, so that what is added to a long sum is rounded as seldom as can be
            for line, where in zip(sums, places):
                for one, place in zip(line, where):
                    one.value = place.load(0, lanes) + one.value
        for line, where in zip(sums, places):
            for one, place in zip(line, where):
                place.store(0, one.value)

    code.part(f"multiply{len(sources)}x{vectors}{'cut' if columns is not None else ''}", given, write)
