"""TensorGroup: the ranks that tensors are divided among, and their collectives."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from puregraph.core.tracer import tracerOf
from puregraph.distributed.collectives.grains import Grains
from puregraph.distributed.collectives.treesum import TreeSum
from puregraph.distributed.worlds.world import World


class TensorGroup:
    """A fixed number of parts, divided evenly and in order among the ranks of a world.

    `own`  the numbers of this rank's parts

    Parts are computed one at a time, and added as a binary tree over the parts, so that no bit depends on the number of
    ranks. All ranks call the same collectives in the same order.
    """

    def __init__(self, world: World, parts: int):
        self.world, self.parts = world, parts
        self.division = Grains(parts, world)
        self.own = self.division.own
        self.trees: dict[tuple[int, Any], TreeSum] = {}

    def total(self, arrays: list[Any]) -> Any:
        """All-reduce arrays of one shape over the tensor-parallel group."""
        refuseTracers(arrays)
        first = arrays[0]
        key = first.size, first.dtype
        if key not in self.trees:
            self.trees[key] = TreeSum(self.world, self.division, *key)
        tree, begin = self.trees[key], self.own.start

        def leaf(part: int, into: np.ndarray) -> None:
            into[...] = arrays[part - begin].reshape(-1)

        return tree.reduce(tree.own(leaf)).reshape(first.shape).copy()

    def join(self, arrays: list[Any], cuts: list[int]) -> Any:
        """All-gather the parts along the last axis; `cuts` has the beginnings of all parts, `arrays` this rank's
        parts."""
        refuseTracers(arrays)
        joined = np.concatenate(arrays, axis=-1) if len(arrays) > 1 else arrays[0]
        if self.world.size == 1:
            return np.ascontiguousarray(joined)
        lead, width = joined.shape[:-1], joined.shape[-1]
        rows = joined.size // width if width else 0
        ends = [cuts[bound] for bound in self.division.bounds]
        offsets = [rows * end for end in ends]
        flat = np.empty(offsets[-1], joined.dtype)
        rank = self.world.rank
        flat[offsets[rank] : offsets[rank + 1]] = joined.reshape(-1)
        self.world.allGather(flat, offsets)
        pieces = [flat[a:b].reshape(rows, -1) for a, b in pairwise(offsets)]
        return np.concatenate(pieces, axis=1).reshape(*lead, ends[-1])


def refuseTracers(arrays: list[Any]) -> None:
    """Keep a rule with collectives out of traces, so that a compiled step calls it as it is.

    Raises    TypeError for tracers
    """
    if tracerOf(arrays) is not None:
        raise TypeError("arrays that go to other processes are no part of what is compiled")
