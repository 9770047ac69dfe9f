"""Gradient buckets: parameter gradients in one flat vector, exchanged bucket by bucket while backward continues."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from puregraph.graph import Graph

if TYPE_CHECKING:
    from puregraph.core.device import Array
    from puregraph.core.param import Param

MIN_BUCKET_BYTES, MAX_BUCKET_BYTES = 1 << 16, 1 << 24  # bounds of a bucket in bytes, unless one gradient is larger
TYPICAL_BUCKETS = 8  # number of buckets of a medium-sized network


class GradientBuckets:
    """Parameter gradients in one flat vector, in the order in which backward computes them, split into buckets.

    A program with buckets calls `start(number, gradients)` for each bucket when its last gradient is ready, with a dict
    of gradients by parameter index. All programs start the buckets in number order.

    `params`   in vector order; `spans`: the elements of each; no parameter is in two buckets
    `cuts`     the starts of the buckets, multiples of `block` elements, and the end of the last one
    `groups`   the indices of the parameters that each bucket completes
    `start`    None: buckets are not exchanged
    `device`   on a GPU, runs the sections in which buckets start, and makes the current stream `join` them
    `isPassing`  True if a program only hands its gradients over and does not keep them
    `predict`  returns, for the bytes of a bucket, the collectives that exchange it and the seconds they take
    """

    def __init__(self, params: list[Param], itemsize: int, block: int):
        self.params, self.itemsize, self.isPassing = params, itemsize, False
        self.start: Callable[[int, dict[int, Any]], None] | None = None
        self.device: Any = None
        self.predict: Callable[[int], tuple[str, float]] | None = None
        left = sum(param.size for param in params)
        enough = max(
            min(max(left * itemsize // TYPICAL_BUCKETS, MIN_BUCKET_BYTES), MAX_BUCKET_BYTES) // itemsize, block
        )
        self.spans, self.cuts, self.groups = list[tuple[int, int]](), [0], list[list[int]]()
        group: list[int] = []
        end = 0
        for index, param in enumerate(params):
            self.spans.append((end, end + param.size))
            end, left = end + param.size, left - param.size
            group.append(index)
            if end - self.cuts[-1] >= enough and left >= block:
                end = -(-end // block) * block
                self.cuts.append(end)
                self.groups.append(group)
                group = []
        self.cuts.append(end)
        self.groups.append(group)

    def isLike(self, other: GradientBuckets) -> bool:
        """True if `other` has the same parameters in the same buckets."""
        same = self.cuts == other.cuts and self.isPassing == other.isPassing
        return same and list(map(id, self.params)) == list(map(id, other.params))

    def nbytes(self, number: int) -> int:
        """The bytes of a bucket."""
        return (self.cuts[number + 1] - self.cuts[number]) * self.itemsize


class BucketStart:
    """The Python call in a step that starts a bucket with the gradients of the parameters at these indices."""

    def __init__(self, buckets: GradientBuckets, number: int, indices: list[int]):
        self.buckets, self.number, self.indices = buckets, number, indices

    def __call__(self, *grads: Array) -> bool:
        if self.buckets.start is not None:
            self.buckets.start(self.number, dict(zip(self.indices, grads)))
        return True


def backwardOrder(graph: Graph, params: list[Param]) -> list[Param]:
    """Parameters in the order in which backward computes their gradients; those without a gradient come last."""
    back = graph.backwardGraph(False, True)
    inner = back.steps()
    makers = {n: i for i, step in enumerate(inner.items) for n in step.outs}
    edges = [param for param, edge in back.paramGrads if edge is not None]
    results = inner.outputs[len(inner.outputs) - len(edges) :]
    made: dict[int, int] = {}
    for param, n in zip(edges, results):  # a parameter used at several nodes has a sum of gradients
        made[id(param)] = max(made.get(id(param), -1), makers.get(n, -1))
    return sorted(params, key=lambda param: made.get(id(param), len(inner.items)))
