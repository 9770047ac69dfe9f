"""Blocking: the tile of a contraction that a block computes, and split-k: the number of parts of the depth."""

from __future__ import annotations

from math import ceil
from typing import NamedTuple

from puregraph.ops.cuda.runtime.launch import WARP, blocksFor
from puregraph.ops.product.cuda.operandlayout import OperandReading

PROCESSORS = 132  # streaming multiprocessors of a large GPU
REGISTERS = 65536  # registers of a multiprocessor
MAX_REGISTERS = 224  # registers of a thread, by the estimate below, up to which the assembler does not spill
LEAST = 8  # fewest stages of depth for which a part pays off


class ContractionShape(NamedTuple):
    """The sizes of a contraction, and the layouts of its operands."""

    kind: str
    m: int
    n: int
    k: int
    z: int
    a: OperandReading
    b: OperandReading


class BlockTile(NamedTuple):
    """The tile of a block: `rows` by `columns` of the result, `depth` at a time, `stages` of it in flight; a thread (a
    warp, for 16 bits) has a register tile of `threadRows` by `threadColumns`. Up to `blocks` fit a multiprocessor, and
    `speed` is relative to the other tiles."""

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
    """The fastest tile by `cost`, of all whose register tile fits in registers."""
    tiles = TILES[work.kind]
    fitting = [tile for tile in tiles if registers(tile, work) <= MAX_REGISTERS]
    return min(fitting or tiles[-1:], key=lambda tile: cost(tile, work))


def cost(tile: BlockTile, work: ContractionShape) -> float:
    """The estimated time, without a unit: the work of the multiprocessor with the most blocks."""
    parts = partsOf(tile, work)
    rounds = ceil(blocksOf(tile, work) * parts / PROCESSORS)
    return rounds * tile.rows * tile.columns * (ceil(work.k / parts) + 4 * tile.depth) / tile.speed


def blocksOf(tile: BlockTile, work: ContractionShape) -> int:
    """The number of tiles."""
    return blocksFor(work.m, tile.rows) * blocksFor(work.n, tile.columns) * work.z


def partsOf(tile: BlockTile, work: ContractionShape) -> int:
    """Split-k: the number of parts of the depth, enough to occupy all multiprocessors, each part worth it."""
    return max(1, min(PROCESSORS * tile.blocks // blocksOf(tile, work), work.k // (LEAST * tile.depth)))


def occupancy(tile: BlockTile, work: ContractionShape) -> int:
    """The number of blocks that fit the registers of a multiprocessor."""
    few = registers(tile, work)
    return max(1, min(tile.blocks, REGISTERS // (tile.threads * (few + -few % 8))))


def registers(tile: BlockTile, work: ContractionShape) -> int:
    """Registers of a thread, estimated: accumulators, elements in flight, addresses of lanes, and the rest."""
    rows, columns = tile.threadRows, tile.threadColumns
    lanes = addressRegisters(tile, work.a, tile.rows) + addressRegisters(tile, work.b, tile.columns)
    if work.kind in ("Half", "Bfloat"):
        return rows * columns // WARP + (rows + columns) // 4 + lanes + 24
    words, ahead = (2, 2) if work.kind == "double" else (1, 2 if rows > 4 else 4)
    if work.b.alongDepth:  # loads of several depths are in flight at once
        ahead += 4 if work.a.alongDepth else 3 if rows > 4 else 0
    return words * (rows * columns + ahead * rows + columns) + lanes + (40 if words == 1 else 69)


def addressRegisters(tile: BlockTile, side: OperandReading, lanes: int) -> int:
    """Registers that hold the addresses of an operand's lanes."""
    rounds = blocksFor(lanes * tile.depth // side.pack, tile.threads) if side.alongDepth else 1
    return rounds * (4 + 3 * len(side.operand.limits)) // 2
