"""The norm of an array in pieces, added as one binary tree, so that no bit depends on who has which piece."""

from __future__ import annotations

import numpy as np

from puregraph.many.treesum import BLOCK, joined, spansIn
from puregraph.many.world import World


def treeNorm(world: World, cuts: list[int], piece: np.ndarray) -> float:
    """y = sqrt(sum x^2) of an array of which each process r gives the piece from cuts[r] on; in float64.

    The leaves of the tree are the sums of blocks, of which no piece has a part. Their number is made a power of two, so
    that the leaves below a node are added by halves.
    """
    leaves = 1 << max(-(-cuts[-1] // BLOCK) - 1, 0).bit_length()
    bounds = [-(-cut // BLOCK) for cut in cuts[:-1]] + [leaves]
    spans = [spansIn(leaves, begin, end) for begin, end in zip(bounds, bounds[1:])]
    sums = blockSums(piece)
    first = bounds[world.rank]
    own = [halved(sums[begin - first : end - first], end - begin) for begin, end in spans[world.rank]]
    ends = np.cumsum([0, *map(len, spans)]).tolist()
    found = np.zeros(ends[-1])  # in a world that only counts, the others give nothing
    found[ends[world.rank] : ends[world.rank + 1]] = own
    world.allGather(found, ends)
    parts = dict(zip([span for row in spans for span in row], found))
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
