"""The norm of an array in pieces, added as one binary tree, so that no bit depends on who has which pieces."""

from __future__ import annotations

import numpy as np

from puregraph.distributed.collectives.treesum import BLOCK, joined, spansIn
from puregraph.distributed.worlds.world import World


def treeNorm(world: World, runs: list[list[tuple[int, int]]], pieces: list[np.ndarray]) -> float:
    """y = sqrt(sum x^2) of a sharded array, in float64. Every element is in one piece of one process.

    The leaves of the tree are the sums of blocks; pieces consist of full blocks. The number of leaves is rounded up to
    a power of two, so that the leaves below a node are added by halves.

    `runs`    the (begin, end) of pieces by process; `pieces` are this process's arrays
    """
    blocks = -(-max(end for ranges in runs for _, end in ranges) // BLOCK)
    leaves = 1 << max(blocks - 1, 0).bit_length()
    spans = [[spansIn(leaves, a // BLOCK, -(-b // BLOCK)) for a, b in ranges] for ranges in runs]
    localSums: list[float] = []
    for (begin, _), piece, within in zip(runs[world.rank], pieces, spans[world.rank]):
        sums, first = blockSums(piece), begin // BLOCK
        localSums += [halved(sums[a - first : b - first], b - a) for a, b in within]
    flat = [[span for within in ofRank for span in within] for ofRank in spans]
    ends = np.cumsum([0, *map(len, flat)]).tolist()
    sumsOfAll = np.zeros(ends[-1])  # zeros: in a CountingWorld the others send nothing
    sumsOfAll[ends[world.rank] : ends[world.rank + 1]] = localSums
    world.allGather(sumsOfAll, ends)
    parts = {**dict.fromkeys(spansIn(leaves, blocks, leaves), 0.0), **dict(zip(sum(flat, []), sumsOfAll))}
    with np.errstate(all="ignore"):
        return float(np.sqrt(joined(parts, 0, leaves)))


def blockSums(piece: np.ndarray) -> np.ndarray:
    """Sum the squares of each block; the last block may be shorter."""
    whole = len(piece) // BLOCK * BLOCK
    with np.errstate(all="ignore"):
        sums = np.square(piece[:whole], dtype=np.float64).reshape(-1, BLOCK).sum(1)
        rest = np.square(piece[whole:], dtype=np.float64)
        return np.append(sums, rest.sum()) if len(rest) else sums


def halved(sums: np.ndarray, count: int) -> float:
    """The sum of `count` leaves, a power of two; those that are not there are nothing."""
    with np.errstate(all="ignore"):
        while count > 1:
            if len(sums) % 2:
                sums = np.append(sums, 0.0)
            sums, count = sums[::2] + sums[1::2], count // 2
    return float(sums[0]) if len(sums) else 0.0
