"""CellSplit: distributes the samples and units of a recurrent cell among the blocks of a GPU.

Small weights: a block computes all units of its samples, and reads the weights again at every time step. Large weights:
every block keeps the weights of its units in shared memory, and all blocks synchronize between time steps (a persistent
kernel). Even larger weights: each time step is a launch.

Source    Diamos and others 2016, Persistent RNNs: Stashing Recurrent Weights On-Chip
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from puregraph.core import device
from puregraph.ops.cuda.runtime.launch import PROCESSORS, blocksFor
from puregraph.ops.cuda.runtime.perdevice import PerDevice, ordinal

if TYPE_CHECKING:
    from puregraph.core.protocols import AnyArray

FAST_WEIGHT_BYTES = 1 << 16  # bytes of weights that one multiprocessor reads repeatedly as fast as it computes
SHARED_MEMORY_BYTES = 227 << 10  # bytes of shared memory that a block of a large GPU may have
# as in recurrent.h: samples and units of a tile; and the most warps of a block
TILE_SAMPLES, TILE_UNITS, MAX_BLOCK_WARPS = 8, 4, 16


class CellSplit(NamedTuple):
    """The launch geometry of a cell.

    `tiles`    units per block, in multiples of 4
    `groups`   samples per block, in multiples of 8
    `whole`    whether one launch runs all time steps
    `grid`     number of blocks
    `threads`  threads per block
    `shared`   bytes of shared memory per block
    `held`     bytes of weights in shared memory
    """

    tiles: int
    groups: int
    whole: bool
    grid: int
    threads: int
    shared: int
    held: int = 0


@PerDevice
def residency() -> tuple[int, int]:
    """(multiprocessors, shared memory per block) of the GPU in use; values of a large GPU if there is none."""
    if ordinal() < 0:
        return PROCESSORS, SHARED_MEMORY_BYTES
    attributes = device.arrays().cuda.Device().attributes
    return attributes["MultiProcessorCount"] * attributes["CooperativeLaunch"], attributes[
        "MaxSharedMemoryPerBlockOptin"
    ]


def cellSplit(gates: int, steps: tuple[int, int], U: AnyArray, wide: AnyArray) -> CellSplit:
    """The blocks for n samples of t time steps, with weights U (units, gates * units), that compute in dtype `wide`."""

    def split(tiles: int, groups: int, isOneLaunch: bool, held: int = 0) -> CellSplit:
        items = tiles * groups * gates
        grid = blocksFor(quads, tiles) * blocksFor(octets, groups)
        return CellSplit(
            tiles, groups, isOneLaunch, grid, 32 * min(items, MAX_BLOCK_WARPS), items * 32 * wide.itemsize + held, held
        )

    units = U.shape[0]
    octets, quads = blocksFor(steps[0], TILE_SAMPLES), blocksFor(units, TILE_UNITS)
    if U.size * U.dtype.itemsize <= FAST_WEIGHT_BYTES:
        return split(quads, 1, True)
    processors, most = residency()
    if steps[1] > 1 and processors:
        tiles = blocksFor(quads, processors)
        groups = blocksFor(octets, processors // blocksFor(quads, tiles))
        resident = split(tiles, groups, True, TILE_UNITS * tiles * gates * units * U.dtype.itemsize)
        if resident.shared <= most:
            return resident
    return split(max(2, 4 // gates), 1, False)
