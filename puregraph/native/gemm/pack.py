"""Pack: pieces of a matrix copied to where a product reads them best."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from puregraph.native.gemm.microkernel import Microkernel
from puregraph.native.llvm.irbuilder import IRBuilder, IRPointer, IRValue
from puregraph.native.llvm.kernelcall import KernelCall
from puregraph.native.llvm.registertranspose import BLOCK, turned, turnedBlocks

DEPTH = 384  # of k that is copied at a time
GROUP = 2  # strips that are copied at once where columns are contiguous
CHUNK = 512  # of k in one task of `packed`


class MatrixOperand(NamedTuple):
    """A matrix in the code of a kernel: where it starts, its sizes and its strides."""

    start: IRPointer
    rows: Any
    columns: Any
    strides: tuple[Any, Any]

    def at(self, row: Any, column: Any) -> IRPointer:
        return self.start.at(row * self.strides[0]).at(column * self.strides[1])


class Packed(NamedTuple):
    """A matrix b[k, n] in panels of as many columns as a tile has: [panel][k][column], the last one filled up."""

    array: Any
    k: int
    n: int
    vectors: int
    lanes: int


def layoutOf(strides: tuple[int, int], sizes: tuple[int, int]) -> str:
    """Whether numbers side by side in memory are those of a row, of a column, or neither."""
    if strides[1] == 1 or sizes[1] == 1:
        return "rows"
    return "columns" if strides[0] == 1 or sizes[0] == 1 else "any"


# A strip: as many rows of a as a tile has -----------------------------------------------------------------------


def stripStrides(layout: str, tile: Microkernel) -> tuple[int, int]:
    """Row and column strides of a strip; those of rows keep them apart in the cache."""
    return (1, tile.rows) if layout == "columns" else (DEPTH + tile.lanes, 1)


def stripSize(tile: Microkernel) -> int:
    """Numbers of room that a strip takes, with what whole vectors write behind it."""
    return tile.rows * (DEPTH + tile.lanes) + 16 * tile.lanes


def stripsAtOnce(layout: str) -> int:
    """How many strips are copied at a time."""
    return GROUP if layout == "columns" else 1


def copyStrip(
    code: IRBuilder,
    a: MatrixOperand,
    layout: str,
    rows: tuple[Any, Any],
    column: Any,
    count: Any,
    tile: Microkernel,
    to: IRPointer,
) -> None:
    """The rows of a from the first on, `count` columns of them; rows that a does not have hold any numbers."""
    if layout == "columns":
        copyColumns(code, a, rows, column, count, tile, to)
        return
    row = rows[0]
    with code.loop(0, tile.rows, unroll=1) as r:
        source, goal = a.at(code.least(r + row, a.rows - 1), column), to.at(r * (DEPTH + tile.lanes))
        if layout == "any":
            with code.loop(0, count, unroll=1) as i:
                goal.store(i, source.load(i * a.strides[1]))
        else:
            copyRun(code, source, goal, count, tile.lanes)


def nextStrip(
    code: IRBuilder,
    a: MatrixOperand,
    layout: str,
    row: IRValue,
    column: Any,
    tile: Microkernel,
    panel: IRValue,
    panels: IRValue,
    index: IRValue,
) -> list[tuple[IRPointer, Any]]:
    """What the next strip is made of, as places and steps for k: some of its rows for each panel, or all at first."""
    last = a.rows - 1
    if layout == "columns":
        step = code.select((panel == 0) & (index == 0), a.strides[1], 0)
        return [(a.at(code.least(row + (GROUP * tile.rows + line), last), column), step) for line in (0, 16)]
    first = row + tile.rows + panel
    return [(a.at(code.least(r, last), column), code.whole(1)) for r in (first, first + panels)]


def copyRun(code: IRBuilder, source: IRPointer, goal: IRPointer, count: Any, lanes: int) -> None:
    """`count` numbers side by side, and zeros up to the end of the last vector."""
    whole = count - count % lanes
    with code.loop(0, whole, lanes, unroll=1) as i:
        goal.store(i, source.load(i, lanes))
    with code.when(whole < count):
        goal.store(whole, source.load(whole, lanes, code.mask(count - whole, lanes)))


def copyColumns(
    code: IRBuilder, a: MatrixOperand, rows: tuple[Any, Any], column: Any, count: Any, tile: Microkernel, to: IRPointer
) -> None:
    """Up to GROUP strips at once, so that each column is met once: runs of whole vectors, of which the next covers
    what is too much."""
    lanes, source = tile.lanes, a.at(rows[0], column)
    starts = range(0, tile.rows, lanes)
    stop = code.least(rows[1] - rows[0], GROUP * tile.rows)
    inside = a.rows - rows[0] >= stop + (len(starts) * lanes - 1)
    for isInside in (inside, ~inside):
        with code.when(isInside), code.loop(0, count, unroll=1) as i:
            line, goal = source.at(i * a.strides[1]), to.at(i * tile.rows)
            with code.loop(0, stop, tile.rows, unroll=1) as row:
                left = a.rows - rows[0] - row
                masks = [None if isInside is inside else code.mask(left - v, lanes) for v in starts]
                found = [line.at(row).load(v, lanes, mask) for v, mask in zip(starts, masks)]
                place = goal.at(row / tile.rows * stripSize(tile))
                for v, one in zip(starts, found):
                    place.store(v, one)


# A panel: as many columns of b as a tile has ------------------------------------------------------------------------


def copyPanel(
    code: IRBuilder, b: MatrixOperand, layout: str, row: Any, column: Any, count: Any, tile: Microkernel, to: IRPointer
) -> None:
    """`count` rows of b from `row` on, the columns from `column` on; columns that b does not have hold any numbers.

    Panels of transposed matrices write up to a multiple of `tile.lanes` rows.
    """
    if layout == "columns":
        turnColumns(code, b, row, column, count, tile, to)
        return
    if layout == "any":
        with code.loop(0, tile.width, unroll=1) as i:
            source = b.at(row, code.least(i + column, b.columns - 1))
            with code.loop(0, count, unroll=1) as k:
                to.store(k * tile.width + i, source.load(k * b.strides[0]))
        return
    starts, source = range(0, tile.width, tile.lanes), b.at(row, column)
    masks = [code.mask(b.columns - column - v, tile.lanes) for v in starts]
    with code.loop(0, count, unroll=1) as k:
        for v, mask in zip(starts, masks):
            to.at(k * tile.width).store(v, source.at(k * b.strides[0]).load(v, tile.lanes, mask))


def turnColumns(
    code: IRBuilder, b: MatrixOperand, row: Any, column: Any, count: Any, tile: Microkernel, to: IRPointer
) -> None:
    """The panel of a matrix whose columns are contiguous, by squares transposed in registers."""
    lanes = tile.lanes
    whole = count - count % lanes
    with code.loop(0, code.least(b.columns - column, tile.width), lanes, unroll=1) as v:
        sources = [b.at(row, code.least(v + column + i, b.columns - 1)) for i in range(lanes)]
        goal = to.at(v)
        with code.loop(0, whole, lanes, unroll=1) as k:
            for i, one in enumerate(turnedFrom(code, sources, k)):
                goal.store((k + i) * tile.width, one)
        with code.when(whole < count):
            mask = code.mask(count - whole, lanes)
            for i, one in enumerate(turned(code, [source.load(whole, lanes, mask) for source in sources])):
                goal.store((whole + i) * tile.width, one)


def turnedFrom(code: IRBuilder, sources: list[IRPointer], k: Any) -> Iterator[IRValue]:
    """The columns of a square whose rows start at k of the sources: blocks of four numbers are put into their places
    as they are loaded, so that only what is within them is left to turn."""
    lanes = len(sources)
    for start in range(0, lanes, BLOCK):
        rows = []
        for i in range(BLOCK):
            blocks = [source.load(k + start, BLOCK) for source in sources[i::BLOCK]]
            while len(blocks) > 1:
                blocks = [code.shuffle(x, y, range(2 * x.lanes)) for x, y in zip(blocks[::2], blocks[1::2])]
            rows += blocks
        yield from turnedBlocks(code, rows)


def packed(
    b: Any,
    n: int,
    k: int,
    strides: tuple[int, int],
    room: Callable[[int], Any],
    lanes: int,
    vectors: int = 2,
) -> tuple[Packed, list[KernelCall]]:
    """b[k, n] packed once for several products, whose tiles have as many vectors; `room(count)` gives it memory."""
    to = Packed(room(packedSize(n, k, vectors, lanes)), k, n, vectors, lanes)
    return to, pack(b, n, k, strides, to.array, lanes, vectors)


def packedSize(n: int, k: int, vectors: int, lanes: int) -> int:
    """How many numbers b[k, n] is when it is packed."""
    tile = Microkernel(1, vectors, lanes)
    return -(-n // tile.width) * (k + lanes) * tile.width


def pack(b: Any, n: int, k: int, strides: tuple[int, int], to: Any, lanes: int, vectors: int) -> list[KernelCall]:
    """The work that packing takes."""
    tile = Microkernel(1, vectors, lanes)
    layout = layoutOf(strides, (k, n))
    panels, chunks = -(-n // tile.width), max(1, -(-k // CHUNK))

    def write(code: IRBuilder) -> None:
        start, goal = code.pointer("b", "f32"), code.pointer("packed", "f32")
        rows, columns, bStrides = code.integer("k"), code.integer("n"), (code.integer("bRow"), code.integer("bColumn"))
        matrix = known(MatrixOperand(start, rows, columns, bStrides), layout)
        chunks = (rows + (CHUNK - 1)) / CHUNK
        panel, row = code.task / chunks, code.task % chunks * CHUNK
        count = code.least(rows - row, CHUNK)
        place = goal.at((panel * (rows + lanes) + row) * tile.width)
        copyPanel(code, matrix, layout, row, panel * tile.width, count, tile, place)

    slots = {"b": b, "packed": to, "k": k, "n": n, "bRow": strides[0], "bColumn": strides[1]}
    if n == 0 or k == 0:
        return []
    return [KernelCall(f"pack {k}x{n}", f"pack {layout} {vectors}x{lanes}", write, slots, panels * chunks)]


def known(matrix: MatrixOperand, layout: str) -> MatrixOperand:
    """With the stride that the layout tells."""
    row, column = matrix.strides
    return matrix._replace(strides={"rows": (row, 1), "columns": (1, column), "any": (row, column)}[layout])
