"""The norm of a sharded array, added as one binary tree, so that no bit depends on how it is sharded."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from puregraph.distributed.collectives.treesum import UNCUT_ELEMENTS, Span, joined, spansIn
from puregraph.distributed.worlds.world import World


def treeNorm(world: World, runs: list[list[tuple[int, int]]], pieces: list[np.ndarray]) -> float:
    """y = sqrt(sum x^2) of a sharded array, in float64. Every element is in one piece of one process.

    The leaves of the tree are the sums of blocks; pieces consist of full blocks. The number of leaves is rounded up to
    a power of two, so that the leaves below a node are added by halves.

    `runs`    the (begin, end) of pieces by process; `pieces` are this process's arrays
    """
    blocks = -(-max(end for ranges in runs for _, end in ranges) // UNCUT_ELEMENTS)
    leaves = 1 << max(blocks - 1, 0).bit_length()
    spans = [[spansIn(leaves, a // UNCUT_ELEMENTS, -(-b // UNCUT_ELEMENTS)) for a, b in ranges] for ranges in runs]
    localSums: list[float] = []
    for (begin, _), piece, within in zip(runs[world.rank], pieces, spans[world.rank]):
        sums, first = blockSums(piece), begin // UNCUT_ELEMENTS
        localSums += [halved(sums[a - first : b - first], b - a) for a, b in within]
    flat = [[span for within in ofRank for span in within] for ofRank in spans]
    ends = np.cumsum([0, *map(len, flat)]).tolist()
    sumsOfAll = np.zeros(ends[-1])  # zeros, because in a CountingWorld the other ranks send nothing
    sumsOfAll[ends[world.rank] : ends[world.rank + 1]] = localSums
    world.allGather(sumsOfAll, ends)
    parts = {**dict.fromkeys(spansIn(leaves, blocks, leaves), 0.0), **dict(zip(sum(flat, []), sumsOfAll))}
    with np.errstate(all="ignore"):
        return float(np.sqrt(joined(parts, 0, leaves)))


def scatteredNorm(world: World, size: int, runs: list[list[Span]], pieces: list[np.ndarray]) -> float:
    """y = sqrt(sum x^2) of `size` elements, divided anywhere, with the bits of `treeNorm`.

    Blocks that are split between ranks are all-reduced, all others stay local.

    `runs`    the (begin, end) of each rank's elements, in order; elements of no rank are 0
    `pieces`  the elements of this rank
    """
    inner = [[wholeBlocks(run, size) for run in ofRank] for ofRank in runs]
    held = sorted(run for ofRank in inner for run in ofRank if run[0] < run[1])
    gaps = [(a, b) for (_, a), (b, _) in pairwise([(0, 0), *held, (size, size)]) if a < b]
    edges = np.zeros(sum(b - a for a, b in gaps))
    ends = np.cumsum([0, *[b - a for a, b in gaps]]).tolist()
    for (begin, end), piece in zip(runs[world.rank], pieces):
        for (a, b), at in zip(gaps, ends):
            first, last = max(a, begin), min(b, end)
            if first < last:
                edges[at + first - a : at + last - a] = piece[first - begin : last - begin]
    if len(edges):
        world.allReduce(edges)  # every element is nonzero on one rank alone
    owned = [[run for run in ofRank if run[0] < run[1]] for ofRank in inner]
    owned[0] = gaps + owned[0]
    localPieces = [
        piece[a - begin : b - begin] for (begin, _), (a, b), piece in zip(runs[world.rank], inner[world.rank], pieces)
    ]
    localPieces = [piece for piece in localPieces if len(piece)]
    if not world.rank:
        localPieces = [edges[at:end] for at, end in pairwise(ends)] + localPieces
    return treeNorm(world, owned, localPieces)


def wholeBlocks(run: Span, size: int) -> Span:
    """Return the range of complete blocks within a run."""
    begin = -(-run[0] // UNCUT_ELEMENTS) * UNCUT_ELEMENTS
    end = run[1] if run[1] == size else run[1] // UNCUT_ELEMENTS * UNCUT_ELEMENTS
    return (begin, max(begin, end))


def blockSums(piece: np.ndarray) -> np.ndarray:
    """Sum the squares of each block; the last block may be shorter."""
    whole = len(piece) // UNCUT_ELEMENTS * UNCUT_ELEMENTS
    with np.errstate(all="ignore"):
        sums = np.square(piece[:whole], dtype=np.float64).reshape(-1, UNCUT_ELEMENTS).sum(1)
        rest = np.square(piece[whole:], dtype=np.float64)
        return np.append(sums, rest.sum()) if len(rest) else sums


def halved(sums: np.ndarray, count: int) -> float:
    """Return the sum of `count` leaves, a power of two; missing leaves count as 0."""
    with np.errstate(all="ignore"):
        while count > 1:
            if len(sums) % 2:
                sums = np.append(sums, 0.0)
            sums, count = sums[::2] + sums[1::2], count // 2
    return float(sums[0]) if len(sums) else 0.0
