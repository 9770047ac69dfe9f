"""Tiling: how much of a contraction a block does, and in how many parts."""

from __future__ import annotations

from math import ceil
from typing import NamedTuple

from puregraph.cuda.conv.operandlayout import OperandReading
from puregraph.cuda.runtime.launch import WARP, pieces

PROCESSORS = 132  # of a large GPU
REGISTERS = 65536  # of a processor
MOST = 224  # registers of a thread, by the estimate here, that the assembler gets along with
LEAST = 8  # stages of depth that are worth a part


class ContractionShape(NamedTuple):
    """How large a contraction is, and how its operands are read."""

    kind: str
    m: int
    n: int
    k: int
    z: int
    a: OperandReading
    b: OperandReading


class BlockTile(NamedTuple):
    """What a block sums: so many rows and columns, so deep at a time, `stages` of that ahead; `threadRows` and
    `threadColumns` of them a thread, or a warp where that multiplies as one. Up to `blocks` fit a processor at a time,
    and `speed` is what they are worth next to others."""

    rows: int
    columns: int
    depth: int
    threadRows: int
    threadColumns: int
    threads: int
    stages: int
    blocks: int
    speed: float


TILES = {
    "float": (
        BlockTile(128, 128, 16, 8, 8, 256, 3, 1, 1.0),
        BlockTile(128, 64, 16, 8, 4, 256, 3, 2, 0.9),
        BlockTile(64, 64, 16, 4, 4, 256, 3, 2, 0.75),
        BlockTile(128, 32, 16, 4, 4, 256, 3, 2, 0.6),
        BlockTile(32, 128, 16, 4, 4, 256, 3, 2, 0.6),
    ),
    "double": (
        BlockTile(64, 64, 16, 4, 4, 256, 3, 2, 1.0),
        BlockTile(128, 32, 16, 4, 4, 256, 3, 2, 0.8),
        BlockTile(32, 128, 16, 4, 4, 256, 3, 2, 0.8),
    ),
    "Half": (
        BlockTile(128, 128, 32, 64, 32, 256, 4, 2, 1.0),
        BlockTile(128, 64, 32, 64, 32, 128, 4, 3, 0.8),
        BlockTile(64, 64, 32, 32, 32, 128, 4, 4, 0.6),
        BlockTile(128, 32, 32, 32, 32, 128, 4, 4, 0.5),
        BlockTile(32, 128, 32, 32, 32, 128, 4, 4, 0.5),
    ),
}
TILES["Bfloat"] = TILES["Half"]


def tileFor(work: ContractionShape) -> BlockTile:
    """The tile that takes the least time, of those whose threads find room in registers."""
    tiles = TILES[work.kind]
    fitting = [tile for tile in tiles if registers(tile, work) <= MOST]
    return min(fitting or tiles[-1:], key=lambda tile: cost(tile, work))


def cost(tile: BlockTile, work: ContractionShape) -> float:
    """How long all takes, in no unit: what the processor with the most blocks has to do."""
    parts = partsOf(tile, work)
    rounds = ceil(blocksOf(tile, work) * parts / PROCESSORS)
    return rounds * tile.rows * tile.columns * (ceil(work.k / parts) + 4 * tile.depth) / tile.speed


def blocksOf(tile: BlockTile, work: ContractionShape) -> int:
    """How many tiles there are."""
    return pieces(work.m, tile.rows) * pieces(work.n, tile.columns) * work.z


def partsOf(tile: BlockTile, work: ContractionShape) -> int:
    """In how many parts the depth is summed: enough to give all processors work, each worth it."""
    return max(1, min(PROCESSORS * tile.blocks // blocksOf(tile, work), work.k // (LEAST * tile.depth)))


def together(tile: BlockTile, work: ContractionShape) -> int:
    """How many blocks of these a processor has registers for."""
    few = registers(tile, work)
    return max(1, min(tile.blocks, REGISTERS // (tile.threads * (few + -few % 8))))


def registers(tile: BlockTile, work: ContractionShape) -> int:
    """What a thread needs, about: for sums, for numbers on their way to them, for the places of lanes, and the rest."""
    rows, columns = tile.threadRows, tile.threadColumns
    lanes = known(tile, work.a, tile.rows) + known(tile, work.b, tile.columns)
    if work.kind in ("Half", "Bfloat"):
        return rows * columns // WARP + (rows + columns) // 4 + lanes + 24
    words, ahead = (2, 2) if work.kind == "double" else (1, 2 if rows > 4 else 4)
    if work.b.alongDepth:  # loads of several depths are on their way at once
        ahead += 4 if work.a.alongDepth else 3 if rows > 4 else 0
    return words * (rows * columns + ahead * rows + columns) + lanes + (40 if words == 1 else 69)


def known(tile: BlockTile, side: OperandReading, lanes: int) -> int:
    """What the places of an operand's lanes take of a thread's registers."""
    rounds = pieces(lanes * tile.depth // side.pack, tile.threads) if side.alongDepth else 1
    return rounds * (4 + 3 * len(side.operand.limits)) // 2
