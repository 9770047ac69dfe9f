"""Plan: the base of all plans to divide a training step on a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from puregraph.core.errors import ArgumentError, show
from puregraph.distributed.collectives.grains import Grains
from puregraph.distributed.collectives.treesum import Span, spansIn
from puregraph.distributed.plan.cluster import Cluster
from puregraph.distributed.worlds.countingworld import CountingWorld
from puregraph.distributed.worlds.mesh import Mesh
from puregraph.graph import Graph
from puregraph.optimizers.parameterrule import statesPerWeight

SHARDS = (None, "state", "gradients", "parameters")
BACKWARD_FLOPS_RATIO = 2  # operations of backward, by those of forward: a gradient for each of two factors
MAX_SEARCHED_RANKS = 64  # ranks among which the busiest is searched


class Plan:
    """The ways to divide a training step, from the graph alone: nothing is allocated and nothing runs.

    `graph`      the network; inputs of `shapes` are a full batch, along their first axis
    `optimizer`  an optimizer or its class, which gives the state arrays per weight

    `batch`   the samples of a batch
    `keeps`   the elements of state for each weight
    `params`  the trained parameters; `dtype`: of their sums

    Raises    ArgumentError without a batch in numbers, and for an impossible cluster
    """

    def __init__(self, graph: Graph, shapes: Sequence[Any], cluster: Cluster, optimizer: Any):
        self.graph, self.shapes, self.cluster = graph, [tuple(shape) for shape in shapes], cluster.checked()
        self.batch, self.optimizer, self.keeps = batchOf(self.shapes), optimizer, statesPerWeight(optimizer)
        self.params = [param for param in graph.params.values() if param.trainable]
        self.dtype = np.result_type(np.float32, *[param.dtype for param in self.params])

    def mesh(self, rank: int = 0, stage: int = 1) -> Mesh:
        """Return the mesh of a rank in a CountingWorld, which only counts the bytes that it would send."""
        return Mesh(CountingWorld(self.cluster.ranks, rank, self.cluster.share), stage=stage)

    def fits(self, nbytes: float) -> bool:
        """True if a rank has that much memory."""
        return nbytes <= self.cluster.memory

    def shapesFor(self, samples: int) -> list[Any]:
        """Return the input shapes for n samples.

        Raises    ShapeError if the graph does not fit them
        """
        shapes = [(samples, *shape[1:]) for shape in self.shapes]
        self.graph.dataShapeFrom(shapes)
        return shapes


class Busiest(NamedTuple):
    """The rank that sends most: its number, its number of grains, and the subtree spans of all ranks."""

    rank: int
    grains: int
    spans: list[list[Span]]


def busiest(ranks: int, count: int) -> Busiest:
    """Return the rank with the most subtrees over `count` grains, searched among the first ones.

    If ranks divide the grains evenly, all have as many. Ranks that were not searched get the busiest one's spans.
    """
    bounds = Grains(count, CountingWorld(ranks)).bounds
    spans = [spansIn(count, begin, end) for begin, end in zip(bounds, bounds[1 : MAX_SEARCHED_RANKS + 1])]
    rank = max(range(len(spans)), key=lambda r: len(spans[r]))
    return Busiest(rank, bounds[rank + 1] - bounds[rank], spans + [spans[rank]] * (ranks - len(spans)))


def arraysFor(spans: Sequence[Span]) -> int:
    """Return the peak number of arrays that `TreeSum.own` needs for these subtrees."""

    def needed(leaves: int) -> int:
        half = leaves // 2
        return 1 if leaves == 1 else max(needed(half), 1 + needed(leaves - half))

    return max(i + needed(end - begin) for i, (begin, end) in enumerate(spans))


def batchOf(shapes: Sequence[Any]) -> int:
    """Return the number of samples in a batch whose inputs have these shapes.

    Raises    ArgumentError if it is not a number, or differs between inputs
    """
    sizes = [shape[0] if shape else 0 for shape in shapes]
    if not sizes or any(type(size) is not int or size < 1 or size != sizes[0] for size in sizes):
        raise ArgumentError(f"wanted the shapes of one whole batch, in numbers, got {', '.join(map(show, shapes))}")
    return sizes[0]


def tableOf(rows: Sequence[Sequence[str]], marks: Sequence[str], ragged: int = 0) -> list[str]:
    """Return lines with aligned columns, the last `ragged` of them as they are, a mark after each but the first."""
    columns = list(zip(*rows))
    wide = [max(map(len, column)) for column in columns[: len(columns) - ragged]] + [0] * ragged
    lines = ["  ".join(cell.rjust(width) for cell, width in zip(row, wide)) for row in rows]
    return [f"{line}  {mark}" if mark else line for line, mark in zip(lines, ["", *marks])]
