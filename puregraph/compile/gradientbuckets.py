"""Gradient buckets: the gradients of parameters in one row, parts of which leave while backward makes the others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from puregraph.graph import Graph

LEAST, GREATEST = 1 << 16, 1 << 24  # bytes of a bucket, unless one gradient is larger
COUNT = 8  # buckets of a network that is neither small nor large


class GradientBuckets:
    """Gradients of parameters in one row, in the order in which backward makes them, cut into buckets.

    A program that is given them calls `start(number, gradients)` for each bucket as soon as its last gradient is there;
    the gradients are in a dict by the index of their parameter. All programs start them in the order of their numbers.

    `params`   in the order of the row, and `spans`, which elements each has; none is in two buckets
    `cuts`     where the buckets begin, multiples of `block` elements, and the end of the last
    `groups`   the indices of the parameters that each bucket completes
    `start`    None: nobody waits for them
    `device`   on a GPU, what runs the sections in which buckets start, and has the current stream `join` them
    `isPassing`  whether a program keeps no gradients itself, but only hands them over here
    `predict`  gives for the bytes of a bucket the collectives that exchange it, and the seconds that these take
    """

    def __init__(self, params: list[Any], itemsize: int, block: int):
        self.params, self.itemsize, self.isPassing = params, itemsize, False
        self.start: Callable[[int, dict[int, Any]], None] | None = None
        self.device: Any = None
        self.predict: Callable[[int], tuple[str, float]] | None = None
        left = sum(param.size for param in params)
        enough = max(min(max(left * itemsize // COUNT, LEAST), GREATEST) // itemsize, block)
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
        """Whether other ones have the same parameters in the same buckets."""
        same = self.cuts == other.cuts and self.isPassing == other.isPassing
        return same and list(map(id, self.params)) == list(map(id, other.params))

    def nbytes(self, number: int) -> int:
        """The bytes of a bucket."""
        return (self.cuts[number + 1] - self.cuts[number]) * self.itemsize


class BucketStart:
    """The Python call in a step that starts a bucket, with the gradients of some parameters, given by their indices."""

    def __init__(self, buckets: GradientBuckets, number: int, indices: list[int]):
        self.buckets, self.number, self.indices = buckets, number, indices

    def __call__(self, *grads: Any) -> bool:
        if self.buckets.start is not None:
            self.buckets.start(self.number, dict(zip(self.indices, grads)))
        return True


def backwardOrder(graph: Graph, params: list[Any]) -> list[Any]:
    """Parameters in the order in which backward makes their gradients; those that have none are last."""
    back = graph.backwardGraph(False, True)
    inner = back.steps()
    makers = {n: i for i, step in enumerate(inner.items) for n in step.outs}
    edges = [param for param, edge in back.paramGrads if edge is not None]
    results = inner.outputs[len(inner.outputs) - len(edges) :]
    made: dict[int, int] = {}
    for param, n in zip(edges, results):  # one that is used at several nodes has the sum of several
        made[id(param)] = max(made.get(id(param), -1), makers.get(n, -1))
    return sorted(params, key=lambda param: made.get(id(param), len(inner.items)))
