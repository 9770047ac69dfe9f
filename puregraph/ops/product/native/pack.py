"""Packing: strips of a and panels of b copied into the order in which the microkernel reads them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from puregraph.ops.native.llvm.instructions import IRPointer, IRValue
from puregraph.ops.native.llvm.irbuilder import IRBuilder
from puregraph.ops.native.llvm.registertranspose import LANE_ELEMENTS, transposed, transposedBlocks
from puregraph.ops.product.native.microkernel import Microkernel

DEPTH = 384  # steps along k that are packed at a time
GROUP = 2  # strips that are packed at once if columns are contiguous
CHUNK = 512  # length of k in a task that packs a matrix


class MatrixOperand(NamedTuple):
    """A matrix in the code of a kernel: where it starts, its sizes and its strides."""

    start: IRPointer
    rows: Any
    columns: Any
    strides: tuple[Any, Any]

    def at(self, row: IRValue | int, column: Any) -> IRPointer:
        return self.start.at(row * self.strides[0]).at(column * self.strides[1])


class PackedMatrix(NamedTuple):
    """A packed matrix b[k, n]: panels as wide as a tile, [panel][step along k][column], the last one padded."""

    array: Any
    k: int
    n: int
    vectors: int
    lanes: int


def layoutOf(strides: tuple[int, int], sizes: tuple[int, int]) -> str:
    """The contiguous axis: "rows" where a row is contiguous, "columns" where a column is, else "any"."""
    if strides[1] == 1 or sizes[1] == 1:
        return "rows"
    return "columns" if strides[0] == 1 or sizes[0] == 1 else "any"


# A strip: a panel of a with the rows of a tile ----------------------------------------------------------------------


def stripStrides(layout: str, tile: Microkernel) -> tuple[int, int]:
    """Row and column strides of a strip; row strides avoid conflicts of cache sets."""
    return (1, tile.rows) if layout == "columns" else (DEPTH + tile.lanes, 1)


def stripSize(tile: Microkernel) -> int:
    """Elements of scratch memory for a strip, including those that whole vectors write beyond it."""
    return tile.rows * (DEPTH + tile.lanes) + 16 * tile.lanes


def stripsAtOnce(layout: str) -> int:
    """The number of strips packed at a time."""
    return GROUP if layout == "columns" else 1


def copyStrip(
    code: IRBuilder,
    a: MatrixOperand,
    layout: str,
    rows: tuple[Any, Any],
    column: IRValue | int,
    count: IRValue | int,
    tile: Microkernel,
    to: IRPointer,
) -> None:
    """Pack `count` columns of the rows from the first on; rows beyond the last of a are undefined."""
    if layout == "columns":
        copyColumns(code, a, rows, column, count, tile, to)
        return
    row = rows[0]
    with code.loop(0, tile.rows, unroll=1) as r:
        source, goal = a.at(code.min(r + row, a.rows - 1), column), to.at(r * (DEPTH + tile.lanes))
        if layout == "any":
            with code.loop(0, count, unroll=1) as i:
                goal.store(i, source.load(i * a.strides[1]))
        else:
            copyContiguous(code, source, goal, count, tile.lanes)


def prefetchTargets(
    code: IRBuilder,
    a: MatrixOperand,
    layout: str,
    row: IRValue,
    column: IRValue | int,
    tile: Microkernel,
    panel: IRValue,
    panels: IRValue,
    index: IRValue,
) -> list[tuple[IRPointer, Any]]:
    """Addresses of the next strip to prefetch, and their strides along k: some rows with each panel, or all at once."""
    last = a.rows - 1
    if layout == "columns":
        step = code.select((panel == 0) & (index == 0), a.strides[1] * tile.group, 0)
        lines = [(line, k) for k in range(tile.group) for line in (0, tile.line)]
        return [(a.at(code.min(row + (GROUP * tile.rows + line), last), column + k), step) for line, k in lines]
    first = row + tile.rows + panel
    return [(a.at(code.min(r, last), column), code.i64(tile.group)) for r in (first, first + panels)]


def copyContiguous(code: IRBuilder, source: IRPointer, goal: IRPointer, count: Any, lanes: int) -> None:
    """Copy `count` contiguous elements, with zeros up to the end of the last vector."""
    vectorEnd = count - count % lanes
    with code.loop(0, vectorEnd, lanes, unroll=1) as i:
        goal.store(i, source.load(i, lanes))
    with code.when(vectorEnd < count):
        goal.store(vectorEnd, source.load(vectorEnd, lanes, code.mask(count - vectorEnd, lanes)))


def copyColumns(
    code: IRBuilder,
    a: MatrixOperand,
    rows: tuple[Any, Any],
    column: IRValue | int,
    count: IRValue | int,
    tile: Microkernel,
    to: IRPointer,
) -> None:
    """Pack up to GROUP strips at once, reading each column once in whole vectors; elements beyond a strip are
    overwritten by the next strip."""
    lanes, source = tile.lanes, a.at(rows[0], column)
    starts = range(0, tile.rows, lanes)
    stop = code.min(rows[1] - rows[0], GROUP * tile.rows)
    inside = a.rows - rows[0] >= stop + (len(starts) * lanes - 1)
    for isInside in (inside, ~inside):
        with code.when(isInside), code.loop(0, count, unroll=1) as i:
            line, goal = source.at(i * a.strides[1]), to.at(i * tile.rows)
            with code.loop(0, stop, tile.rows, unroll=1) as row:
                left = a.rows - rows[0] - row
                masks = [None if isInside is inside else code.mask(left - v, lanes) for v in starts]
                vectors = [line.at(row).load(v, lanes, mask) for v, mask in zip(starts, masks)]
                address = goal.at(row / tile.rows * stripSize(tile))
                for v, vector in zip(starts, vectors):
                    address.store(v, vector)


# A panel of b with the columns of a tile ----------------------------------------------------------------------------


def copyPanel(
    code: IRBuilder,
    b: MatrixOperand,
    layout: str,
    row: IRValue | int,
    column: IRValue | int,
    count: IRValue | int,
    tile: Microkernel,
    to: IRPointer,
) -> None:
    """Pack `count` rows of b from `row` on, the columns from `column` on; columns beyond the last are undefined.

    Panels of transposed matrices write up to a multiple of `tile.lanes` rows.
    """
    if layout == "columns":
        transposeColumns(code, b, row, column, count, tile, to)
        return
    if layout == "any":
        with code.loop(0, tile.width, unroll=1) as i:
            source = b.at(row, code.min(i + column, b.columns - 1))
            with code.loop(0, count, unroll=1) as k:
                to.store(k * tile.width + i, source.load(k * b.strides[0]))
        return
    starts, source = range(0, tile.width, tile.lanes), b.at(row, column)
    masks = [code.mask(b.columns - column - v, tile.lanes) for v in starts]
    with code.loop(0, count, unroll=1) as k:
        for v, mask in zip(starts, masks):
            to.at(k * tile.width).store(v, source.at(k * b.strides[0]).load(v, tile.lanes, mask))


def transposeColumns(
    code: IRBuilder,
    b: MatrixOperand,
    row: IRValue | int,
    column: IRValue | int,
    count: Any,
    tile: Microkernel,
    to: IRPointer,
) -> None:
    """Pack a panel of a matrix whose columns are contiguous, by square tiles transposed in registers."""
    lanes = tile.lanes
    vectorEnd = count - count % lanes
    with code.loop(0, code.min(b.columns - column, tile.width), lanes, unroll=1) as v:
        sources = [b.at(row, code.min(v + column + i, b.columns - 1)) for i in range(lanes)]
        goal = to.at(v)
        with code.loop(0, vectorEnd, lanes, unroll=1) as k:
            for i, vector in enumerate(transposedFrom(code, sources, k)):
                goal.store((k + i) * tile.width, vector)
        with code.when(vectorEnd < count):
            mask = code.mask(count - vectorEnd, lanes)
            for i, vector in enumerate(transposed(code, [source.load(vectorEnd, lanes, mask) for source in sources])):
                goal.store((vectorEnd + i) * tile.width, vector)


def transposedFrom(code: IRBuilder, sources: list[IRPointer], k: Any) -> Iterator[IRValue]:
    """The columns of a square tile whose rows start at k of the sources: blocks of four elements are exchanged by their
    loads, so that only these blocks are left to transpose."""
    lanes = len(sources)
    for start in range(0, lanes, LANE_ELEMENTS):
        rows = []
        for i in range(LANE_ELEMENTS):
            blocks = [source.load(k + start, LANE_ELEMENTS) for source in sources[i::LANE_ELEMENTS]]
            while len(blocks) > 1:
                blocks = [code.shuffle(x, y, range(2 * x.lanes)) for x, y in zip(blocks[::2], blocks[1::2])]
            rows += blocks
        yield from transposedBlocks(code, rows)


def withKnownStride(matrix: MatrixOperand, layout: str) -> MatrixOperand:
    """The matrix with the unit stride of its layout as a constant."""
    row, column = matrix.strides
    return matrix._replace(strides={"rows": (row, 1), "columns": (1, column), "any": (row, column)}[layout])
