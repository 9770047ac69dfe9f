"""The norm of a row that is sharded at any element, even inside blocks, with the same bits as `treeNorm`."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from puregraph.distributed.collectives.treenorm import treeNorm
from puregraph.distributed.collectives.treesum import BLOCK, Span
from puregraph.distributed.worlds.world import World


def scatteredNorm(world: World, size: int, runs: list[list[Span]], pieces: list[np.ndarray]) -> float:
    """y = sqrt(sum x^2) of `size` elements. Blocks that are split between ranks are all-reduced, all others stay local.

    `runs`    the (begin, end) of each rank's elements, in order; elements of no rank are 0
    `pieces`  the elements of this rank
    """
    inner = [[aligned(run, size) for run in ofRank] for ofRank in runs]
    held = sorted(run for ofRank in inner for run in ofRank if run[0] < run[1])
    gaps = [(a, b) for (_, a), (b, _) in pairwise([(0, 0), *held, (size, size)]) if a < b]
    edges = np.zeros(sum(b - a for a, b in gaps))
    ends = np.cumsum([0, *[b - a for a, b in gaps]]).tolist()
    for (begin, end), piece in zip(runs[world.rank], pieces):
        for (a, b), at in zip(gaps, ends):
            first, last = max(a, begin), min(b, end)
            if first < last:
                edges[at + first - a : at + last - a] = piece[first - begin : last - begin]
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


def aligned(run: Span, size: int) -> Span:
    """The whole blocks within a run."""
    begin = -(-run[0] // BLOCK) * BLOCK
    end = run[1] if run[1] == size else run[1] // BLOCK * BLOCK
    return (begin, max(begin, end))
