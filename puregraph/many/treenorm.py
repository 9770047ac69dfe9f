"""The norm of an array in pieces, added as one binary tree, so that no bit depends on who has which pieces."""

from __future__ import annotations

import numpy as np

from puregraph.many.treesum import BLOCK, joined, spansIn
from puregraph.many.world import World


def treeNorm(world: World, runs: list[list[tuple[int, int]]], pieces: list[np.ndarray]) -> float:
    """y = sqrt(sum x^2) of an array of which each process has pieces, all together each element once; in float64.

    The leaves of the tree are the sums of blocks, of which no piece has a part. Their number is made a power of two, so
    that the leaves below a node are added by halves.

    `runs`    by process from where to where its pieces are; `pieces` are those of this one
    """
    blocks = -(-max(end for each in runs for _, end in each) // BLOCK)
    leaves = 1 << max(blocks - 1, 0).bit_length()
    spans = [[spansIn(leaves, a // BLOCK, -(-b // BLOCK)) for a, b in each] for each in runs]
    own: list[float] = []
    for (begin, _), piece, within in zip(runs[world.rank], pieces, spans[world.rank]):
        sums, first = blockSums(piece), begin // BLOCK
        own += [halved(sums[a - first : b - first], b - a) for a, b in within]
    flat = [[span for within in each for span in within] for each in spans]
    ends = np.cumsum([0, *map(len, flat)]).tolist()
    found = np.zeros(ends[-1])  # in a world that only counts, the others give nothing
    found[ends[world.rank] : ends[world.rank + 1]] = own
    world.allGather(found, ends)
    parts = {**dict.fromkeys(spansIn(leaves, blocks, leaves), 0.0), **dict(zip(sum(flat, []), found))}
    with np.errstate(all="ignore"):
        return float(np.sqrt(joined(parts, 0, leaves)))


def blockSums(piece: np.ndarray) -> np.ndarray:
    """The sum of the squares of each block, the last of which may be shorter."""
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
