"""Register transpose: a square tile transposed in vector registers, by shuffles."""

from __future__ import annotations

from collections.abc import Sequence

from puregraph.ops.native.llvm.instructions import IRValue
from puregraph.ops.native.llvm.irbuilder import IRBuilder

LANE_ELEMENTS = 4  # elements of a 128-bit lane, within which shuffles are cheap


def transposed(code: IRBuilder, rows: Sequence[IRValue]) -> list[IRValue]:
    """The transpose of a square of vectors (4, 8, 16, ... lanes): 4 x 4 blocks are transposed, then exchanged."""
    lanes = len(rows)
    columns: list[IRValue] = [rows[0]] * lanes
    for start in range(0, lanes, LANE_ELEMENTS):
        for k, block in enumerate(transposedBlocks(code, rows[start : start + LANE_ELEMENTS])):
            columns[k * (lanes // LANE_ELEMENTS) + start // LANE_ELEMENTS] = block
    count = lanes // LANE_ELEMENTS
    transposedColumns: list[IRValue] = [rows[0]] * lanes
    for k in range(LANE_ELEMENTS):
        for b, column in enumerate(exchanged(code, columns[k * count : (k + 1) * count])):
            transposedColumns[LANE_ELEMENTS * b + k] = column
    return transposedColumns


def transposedBlocks(code: IRBuilder, rows: Sequence[IRValue]) -> list[IRValue]:
    """Four rows transposed to four columns, within each block of four lanes."""
    lanes = rows[0].lanes
    a, b, c, d = rows

    def joined(x: IRValue, y: IRValue, picks: tuple[int, int, int, int]) -> IRValue:
        order = [(p % 4) + start + lanes * (p // 4) for start in range(0, lanes, LANE_ELEMENTS) for p in picks]
        return code.shuffle(x, y, order)

    low, high, more, rest = (
        joined(*pair, picks) for pair in ((a, b), (c, d)) for picks in ((0, 4, 1, 5), (2, 6, 3, 7))
    )
    return [
        joined(low, more, (0, 1, 4, 5)),
        joined(low, more, (2, 3, 6, 7)),
        joined(high, rest, (0, 1, 4, 5)),
        joined(high, rest, (2, 3, 6, 7)),
    ]


def exchanged(code: IRBuilder, rows: Sequence[IRValue]) -> list[IRValue]:
    """Block b of row g becomes block g of row b."""
    rows, count = list(rows), len(rows)
    lanes = rows[0].lanes
    width = 1
    while width < count:
        for i in range(count):
            if not i & width:
                x, y = rows[i], rows[i + width]
                low = [g if not g & width else g - width + count for g in range(count)]
                high = [g + width if not g & width else g + count for g in range(count)]
                rows[i], rows[i + width] = (
                    code.shuffle(
                        x,
                        y,
                        [
                            LANE_ELEMENTS * (g % count) + p + lanes * (g // count)
                            for g in order
                            for p in range(LANE_ELEMENTS)
                        ],
                    )
                    for order in (low, high)
                )
        width *= 2
    return rows
