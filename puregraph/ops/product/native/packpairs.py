"""Packing pairs: strips of a and panels of b rounded to bfloat16, in pairs along k, as the microkernel multiplies them.

The layouts are those of `pack`, with a pair in place of an element. The last of an odd number of rows along k is paired
with zeros.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from puregraph.ops.native.llvm.bfloatpairs import contiguousPairs, interleavedPairs
from puregraph.ops.native.llvm.instructions import IRPointer, IRType, IRValue
from puregraph.ops.native.llvm.irbuilder import IRBuilder
from puregraph.ops.native.llvm.registertranspose import transposed
from puregraph.ops.product.native.microkernel import Microkernel
from puregraph.ops.product.native.pack import DEPTH, GROUP, MatrixOperand, stripSize


def copyStripPairs(
    code: IRBuilder,
    a: MatrixOperand,
    layout: str,
    rows: tuple[Any, Any],
    column: IRValue | int,
    count: IRValue,
    tile: Microkernel,
    to: IRPointer,
) -> None:
    """Pack `count` columns of the rows from the first on; rows beyond the last of a are undefined."""
    lanes = tile.lanes
    if layout == "columns":
        stop = code.min(rows[1] - rows[0], GROUP * tile.rows)
        for i, x, y in neighbours(code, a.at(rows[0], column), a.strides[1], count):
            with code.loop(0, stop, tile.rows, unroll=1) as row:
                goal = to.at(row / tile.rows * stripSize(tile) + i * tile.rows)
                for v in range(0, tile.rows, lanes):
                    mask = code.mask(a.rows - rows[0] - row - v, lanes)
                    goal.store(v, interleavedPairs(code, *(loaded(code, p, row + v, 1, lanes, mask) for p in (x, y))))
        return
    with code.loop(0, tile.rows, unroll=1) as r:
        source, goal = a.at(code.min(r + rows[0], a.rows - 1), column), to.at(r * (DEPTH + lanes))
        for k, (pairs,) in pairsAlong(code, [source], a.strides[1], count, lanes):
            goal.store(k, pairs)


def copyPanelPairs(
    code: IRBuilder,
    b: MatrixOperand,
    layout: str,
    row: IRValue | int,
    column: IRValue | int,
    count: IRValue,
    tile: Microkernel,
    to: IRPointer,
) -> None:
    """Pack `count` rows of b from `row` on, the columns from `column` on; columns beyond the last are undefined.

    Panels of transposed matrices write up to a multiple of `tile.lanes` rows of pairs.
    """
    lanes = tile.lanes
    if layout == "columns":
        with code.loop(0, code.min(b.columns - column, tile.width), lanes, unroll=1) as v:
            sources = [b.at(row, code.min(v + column + i, b.columns - 1)) for i in range(lanes)]
            for k, vectors in pairsAlong(code, sources, 1, count, lanes):
                for i, pairs in enumerate(transposed(code, vectors)):
                    to.store((k + i) * tile.width + v, pairs)
        return
    masks = [(start, code.mask(b.columns - column - start, lanes)) for start in range(0, tile.width, lanes)]
    step = b.strides[1]
    for line, x, y in neighbours(code, b.at(row, column), b.strides[0], count):
        for start, mask in masks:
            pairs = interleavedPairs(code, *(loaded(code, p, step * start, step, lanes, mask) for p in (x, y)))
            to.store(line * tile.width + start, pairs)


def neighbours(
    code: IRBuilder, start: IRPointer, step: Any, count: IRValue
) -> Iterator[tuple[IRValue, IRPointer, IRPointer | None]]:
    """A loop over pairs of lines `step` apart: its index and both lines; the last of an odd number stands alone."""
    with code.loop(0, count / 2, unroll=1) as i:
        yield i, start.at(i * 2 * step), start.at((i * 2 + 1) * step)
    with code.when(count % 2 == 1):
        yield count / 2, start.at((count - 1) * step), None


def pairsAlong(
    code: IRBuilder, sources: list[IRPointer], step: Any, count: IRValue, lanes: int
) -> Iterator[tuple[IRValue, list[IRValue]]]:
    """A loop over vectors of pairs along k: its index in pairs, and a vector for each source; zeros follow the last."""

    def vectors(k: IRValue, left: IRValue | None) -> list[IRValue]:
        masks = [None if left is None else code.mask(left - v, lanes) for v in (0, lanes)]
        return [
            contiguousPairs(
                code, *(loaded(code, source, (k + v) * step, step, lanes, mask) for v, mask in zip((0, lanes), masks))
            )
            for source in sources
        ]

    end = count - count % (2 * lanes)
    with code.loop(0, end, 2 * lanes, unroll=1) as k:
        yield k / 2, vectors(k, None)
    with code.when(end < count):
        yield end / 2, vectors(end, count - end)


def loaded(
    code: IRBuilder, source: IRPointer | None, index: Any, step: Any, lanes: int, mask: IRValue | None
) -> IRValue:
    """A vector of elements `step` apart, from an index on; zeros where there is no source, or a lane is masked."""
    if source is None:
        return code.constant(0, IRType("f32", lanes))
    if isinstance(step, int) and step == 1:
        return source.load(index, lanes, mask)
    return source.at(index).gather(code.iota(lanes) * step, mask)
