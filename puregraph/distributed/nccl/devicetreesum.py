"""DeviceTreeSum: the sum of all grains on GPUs, in the tree order of TreeSum."""

from __future__ import annotations

from typing import Any

import numpy as np

from puregraph.compile.gpu.runtime.devicearena import block
from puregraph.distributed.collectives.grains import Grains
from puregraph.distributed.collectives.treesum import Span, cutsOf, spansIn


class DeviceTreeSum:
    """Sum rows of `bounds[-1]` elements, one for each grain, in buckets, with the same bits as a BucketedSum.

    Memory is allocated once, because a captured graph keeps its addresses. Grains are put on a stack: a grain's row is
    at `positions[grain]`. After the grain, the pairs of rows in `merges[grain]` are added, each into its first row. In
    the end the stack has this process's parts of the tree, and after all exchanges its first row is the total.

    `world`  a NcclWorld, or a world of one process
    """

    def __init__(self, world: Any, grains: Grains, dtype: np.dtype, bounds: list[int]):
        self.world, self.grains, self.bounds = world, grains, bounds
        self.spans = [spansIn(grains.count, begin, end) for begin, end in zip(grains.bounds, grains.bounds[1:])]
        self.positions: dict[int, int] = {}
        self.merges: dict[int, list[tuple[int, int]]] = {}
        self.height = self.depth = 0
        for begin, end in self.spans[world.rank]:
            self.stack(begin, end)
        self.rows = [made(bounds[-1], dtype) for _ in range(self.depth)]
        self.total = self.rows[0]
        pieces = [cutsOf(b - a, world.size) for a, b in zip(bounds, bounds[1:])]
        longest = max(cuts[world.rank + 1] - cuts[world.rank] for cuts in pieces)
        others = [span for r, spans in enumerate(self.spans) if r != world.rank for span in spans]
        self.received = {span: made(longest, dtype) for span in others}

    def stack(self, begin: int, end: int) -> None:
        """Plan the rows of the grains of a part of the tree, and the additions after each grain."""
        if end - begin == 1:
            self.positions[begin], self.merges[begin] = self.height, []
            self.height += 1
            self.depth = max(self.depth, self.height)
            return
        middle = (begin + end) // 2
        self.stack(begin, middle)
        self.stack(middle, end)
        self.height -= 1
        self.merges[end - 1].append((self.height - 1, self.height))

    def merge(self, grain: int, begin: int, end: int) -> None:
        """Add the elements `begin` to `end` of a grain's row to the subtrees that it completes."""
        for left, right in self.merges[grain]:
            added(self.rows[left][begin:end], self.rows[right][begin:end])

    def exchange(self, number: int) -> None:
        """Compute a bucket of the total from the parts of all processes, on the current stream."""
        world, (a, b) = self.world, self.bounds[number : number + 2]
        if world.size == 1 or a == b:
            return
        cuts = cutsOf(b - a, world.size)
        pieces = list(zip(cuts, cuts[1:]))
        begin, end = pieces[world.rank]
        localRows = [row[a:b] for row in self.rows[: len(self.spans[world.rank])]]
        received = {span: array[: end - begin] for span, array in self.received.items()}
        others = [r for r in range(world.size) if r != world.rank]
        sends = [
            (row[first:last], r) for r in others for row in localRows for first, last in [pieces[r]] if first < last
        ]
        receives = [(received[span], r) for r in others for span in self.spans[r] if begin < end]
        world.startExchange(sends, receives).wait()
        if begin < end:
            parts = {**received, **dict(zip(self.spans[world.rank], [row[begin:end] for row in localRows]))}
            total, into = joinedInPlace(parts, 0, self.grains.count), localRows[0][begin:end]
            if total.data.ptr != into.data.ptr:
                into[...] = total
        world.startAllGather(localRows[0], cuts).wait()


def joinedInPlace(parts: dict[Span, Any], begin: int, end: int) -> Any:
    """The sum of grains in the shape of the tree, in the memory of its leftmost part."""
    if (begin, end) in parts:
        return parts[begin, end]
    middle = (begin + end) // 2
    return added(joinedInPlace(parts, begin, middle), joinedInPlace(parts, middle, end))


def added(left: Any, right: Any) -> Any:
    """left + right, in the memory of `left`."""
    np.add(left, right, out=left)
    return left


def made(size: int, dtype: np.dtype) -> Any:
    """Allocate zeros outside of CuPy's pool; the padding between buckets is never written."""
    zeros = block(size * dtype.itemsize)[: size * dtype.itemsize].view(dtype)
    zeros[...] = 0
    return zeros
