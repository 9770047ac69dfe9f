"""DataParallelPlan: what each way to train on several processes takes, from the graph alone: bytes, memory and time."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from puregraph.compile.gradientbuckets import GradientBuckets, backwardOrder
from puregraph.core.errors import ArgumentError, show
from puregraph.distributed.collectives.bucketedsum import INFLIGHT
from puregraph.distributed.collectives.grains import Grains
from puregraph.distributed.collectives.treesum import BLOCK, Span, cutAt, spansIn
from puregraph.distributed.plan.cluster import Cluster
from puregraph.distributed.plan.shardedfootprint import ShardedFootprint
from puregraph.distributed.sharding.shardedupdate import chunkOf
from puregraph.distributed.worlds.countingworld import Collective, CountingWorld
from puregraph.graph import Graph
from puregraph.graph.analysis.footprint import Footprint
from puregraph.graph.analysis.summary import bytesText, secondsText
from puregraph.optimizers.parameterrule import statesPerWeight

SHARDS = (None, "state", "gradients", "parameters")
GRAINS = (1, 2, 4, 8)  # of each process
BACKWARD = 2  # times the operations of forward: a gradient for each of two factors
ROW = 5  # numbers in a row of `SharedStep` besides those of parameters, states and metrics
MANY = 12  # lines of collectives, above which those of one name are one
LOOKED = 64  # processes of which the one is taken that has most to send


class StepSplit(NamedTuple):
    """A way to divide a step, and what it takes of one process, the one that has most to send.

    `shard`, `grains`  as the Trainer takes them
    `calls`            the collectives of a step in their order
    `memory`           bytes at the peak
    `compute`          seconds of forward and backward; `update` of adding gradients and of the update
    """

    shard: str | None
    grains: int
    calls: list[Collective]
    memory: int
    compute: float
    update: float

    @property
    def nbytes(self) -> int:
        """The bytes that the process sends."""
        return sum(call.nbytes for call in self.calls)

    @property
    def exchange(self) -> float:
        """The seconds of all collectives."""
        return sum(call.seconds for call in self.calls)

    @property
    def seconds(self) -> float:
        """The seconds of a step."""
        return self.compute + self.update + self.exchange


class DataParallelPlan:
    """The data parallel splits of a batch on a cluster; `best` is the fastest that fits in memory.

    Nothing is allocated and nothing runs: sizes come from `Footprint` at the shapes of a grain.

    `graph`      the network; inputs of `shapes` are a full batch, along their first axis
    `optimizer`  an optimizer or its class, which gives the state arrays per weight

    Weights, gradients, optimizer state, values of a grain and buffers of reductions are counted; data, metrics, packed
    weights and Python itself are not. Backward takes twice the operations of forward.

    Raises    ShapeError for shapes that do not fit; ArgumentError without a batch in numbers, and for a batch with
              fewer samples than processes
    """

    def __init__(self, graph: Graph, shapes: Sequence[Any], cluster: Cluster, optimizer: Any):
        self.graph, self.shapes, self.cluster = graph, [tuple(s) for s in shapes], cluster.checked()
        self.batch, self.optimizer = batchOf(self.shapes), optimizer
        if self.batch < cluster.ranks:
            raise ArgumentError(
                f"a batch of {self.batch} cannot be divided among {cluster.ranks} processes: each takes a sample at "
                "least; give larger shapes, or fewer --ranks"
            )
        self.params = [param for param in graph.params.values() if param.trainable]
        self.keeps = statesPerWeight(optimizer)
        self.dtype = np.result_type(np.float32, *[param.dtype for param in self.params])
        order = backwardOrder(graph, self.params)
        self.buckets = GradientBuckets(order, self.dtype.itemsize, BLOCK)
        sizes = {end - begin for begin, end in pairwise(self.buckets.cuts)}
        self.chunks = {size: chunkSizes(size, cluster.ranks) for size in sizes}
        most = [g for g in GRAINS if g * cluster.ranks <= self.batch]
        self.busiest = {g * cluster.ranks: busiest(cluster, g * cluster.ranks) for g in most}
        self.splits = [self.split(shard, g) for g in most for shard in (SHARDS if cluster.ranks > 1 else (None,))]

    @property
    def best(self) -> StepSplit | None:
        """The fastest that fits; of equally fast ones the one that takes least memory. None if none fits."""
        fitting = [split for split in self.splits if split.memory <= self.cluster.memory]
        return min(fitting, key=lambda split: (round(split.seconds, 9), split.memory), default=None)

    @property
    def alone(self) -> StepSplit | None:
        """The step of a single process that has the batch to itself; None where the cluster is one."""
        if self.cluster.ranks == 1:
            return None
        return DataParallelPlan(self.graph, self.shapes, self.cluster._replace(ranks=1, node=1), self.optimizer).splits[
            0
        ]

    def split(self, shard: str | None, perRank: int) -> StepSplit:
        """Return a split with as many grains for every rank."""
        cluster, count = self.cluster, self.cluster.ranks * perRank
        sizes = self.footprint(-(-self.batch // count), shard)
        dtype, buckets, ranks = self.dtype, self.buckets, cluster.ranks
        total = buckets.cuts[-1] * dtype.itemsize
        rank, grains, spans = self.busiest[count]
        world, localGrains = CountingWorld(ranks, rank, cluster.share), len(spans[rank])
        piece = sum(pieceOf(world, end - begin) for begin, end in pairwise(buckets.cuts)) * dtype.itemsize
        parts = sum(map(len, spans)) if ranks > 1 else 0
        largest = max(map(buckets.nbytes, range(len(buckets.groups)))) / total
        gathered, joined = round(parts * piece * largest), round(piece * largest)
        if ranks > 1:
            self.call(world, shard, count, localGrains, getattr(sizes, "reads", []) * grains)
        updated = total if shard is None else piece
        memory = sizes.paramBytes + sizes.stateBytes + int(self.keeps * updated)
        if shard is not None:
            memory += (
                3 * piece
            )  # the weights that are updated, their gradients as they come, and as the update reads them
        if shard == "parameters":
            memory -= sum(param.nbytes for param in self.params)
        isBrief = shard in ("gradients", "parameters") and grains == 1
        rows = min(INFLIGHT, len(buckets.groups)) * largest if isBrief else arraysFor(spans[world.rank])
        memory += self.values(sizes) + round(rows * total) + gathered
        memory += parts.bit_length() * joined if parts > 2 else joined if parts else 0  # sums on the way to the root
        memory += (
            round(localGrains * total * largest) if localGrains > 1 and ranks > 1 else 0
        )  # pieces are joined to be sent
        moved = total * (2 + 2 * grains + 3 * (grains - 1)) + 3 * parts * piece + (3 + 2 * self.keeps) * updated
        flops = (1 + BACKWARD) * int(sizes.flops) * grains
        return StepSplit(shard, count, world.calls, memory, flops / cluster.flops, moved / cluster.bandwidth)

    def footprint(self, samples: int, shard: str | None) -> Footprint:
        """Return the footprint of the graph for n samples.

        Raises    ShapeError if the graph does not fit them
        """
        shapes = [(samples, *shape[1:]) for shape in self.shapes]
        self.graph.dataShapeFrom(shapes)
        if shard is None:
            return Footprint(self.graph, *shapes)
        return ShardedFootprint(self.graph, shapes, self.buckets, self.params if shard == "parameters" else [])

    def values(self, taken: Footprint) -> int:
        """Return the bytes of a grain's values and gradients."""
        return (taken.peak() or taken.eager() or 0) - taken.paramBytes - taken.stateBytes

    def call(self, world: CountingWorld, shard: str | None, count: int, own: int, reads: list[Any]) -> None:
        """Count the collectives of a step of a rank with `own` sums, as in `SharedStep`, and the reads of sharded
        weights."""
        if shard == "parameters":
            world.startBarrier()
            owners = sum(min(world.size - 1, -(-param.size // BLOCK)) for param in reads)
            world.count("read", world.share(sum(param.nbytes for param in reads)), owners)
        sizes, dtype = [end - begin for begin, end in pairwise(self.buckets.cuts)], self.dtype
        for size in sizes:
            sent = own * (size - pieceOf(world, size))
            world.count("allToAll", sent * dtype.itemsize, world.size - 1)
            if shard is None:
                world.startAllGather(nothing(size, dtype), [])
        held = {id(state): state.size for state in self.graph.states.values()}
        row = ROW + len(self.params) + sum(held.values())
        world.startAllGather(nothing(count * row, np.float64), [])
        if shard == "parameters":
            world.startBarrier()
        for size in sizes if shard in ("state", "gradients") else ():
            for length in self.chunks[size]:
                world.startAllGather(nothing(length, dtype), [])

    def table(self) -> str:
        """Every split as a line, and what the best one exchanges."""
        names = ("shard", "grains", "memory", "sent", "compute", "exchange", "update", "step", "waited")
        best = self.best
        rows = [names, *[self.row(split) for split in self.splits]]
        wide = [max(map(len, column)) for column in zip(*rows)]
        lines = ["  ".join(c.rjust(w) for c, w in zip(row, wide)) for row in rows]
        for i, split in enumerate(self.splits, 1):
            fits = split.memory <= self.cluster.memory
            lines[i] += "  best" if split is best else "" if fits else "  too large"
        lines += self.aloneLines()
        title = f"{self.graph.title()}, a batch of {self.batch:,} on {self.cluster.ranks:,} processes"
        if best is None:
            return "\n".join([title, *lines, "none of them fits"])
        return "\n".join([title, *lines, "", *self.exchanges(best)])

    def aloneLines(self) -> list[str]:
        """Time of a single process for the batch, and by how much it beats the best split, if it does."""
        alone, best = self.alone, self.best
        if alone is None:
            return []
        line = f"one process alone: a step of {secondsText(alone.seconds)}, {bytesText(alone.memory)}"
        if alone.memory > self.cluster.memory:
            return ["", f"{line}, too large"]
        if best is not None and alone.seconds < best.seconds:
            line += f": {best.seconds / alone.seconds:.2g} times as fast as the best split; train without the others"
        return ["", line]

    def row(self, split: StepSplit) -> tuple[str, ...]:
        """A split in words."""
        times = split.compute, split.exchange, split.update, split.seconds
        shown = [secondsText(t) for t in times]
        waited = f"{100 * split.exchange / split.seconds:.0f} %" if split.seconds else "0 %"
        sizes = bytesText(split.memory), bytesText(split.nbytes)
        return (split.shard or "nothing", f"{split.grains:,}", *sizes, *shown, waited)

    def exchanges(self, split: StepSplit) -> list[str]:
        """The collectives of a split, equal ones in a row as one line."""
        lines: list[tuple[Collective, int]] = []
        for call in split.calls:
            if lines and lines[-1][0] == call:
                lines[-1] = call, lines[-1][1] + 1
            else:
                lines.append((call, 1))
        if len(lines) > MANY:
            return [sumOf(name, split.calls) for name in dict.fromkeys(call.name for call in split.calls)]
        return [
            f"{call.name:<13}{f'{times} x ' if times > 1 else ''}{bytesText(call.nbytes)}, {secondsText(call.seconds)}"
            for call, times in lines
        ]

    def __repr__(self) -> str:
        return (
            f"<DataParallelPlan of {self.graph.title()} for {self.cluster.ranks} processes: {len(self.splits)} splits>"
        )


def batchOf(shapes: Sequence[Any]) -> int:
    """The samples of a batch whose inputs have these shapes.

    Raises    ArgumentError where that is no number, or not the same for all
    """
    sizes = [shape[0] if shape else 0 for shape in shapes]
    if not sizes or any(type(size) is not int or size < 1 or size != sizes[0] for size in sizes):
        raise ArgumentError(f"wanted the shapes of one whole batch, in numbers, got {', '.join(map(show, shapes))}")
    return sizes[0]


def sumOf(name: str, calls: list[Collective]) -> str:
    """Return a line about all collectives of one name."""
    matching = [call for call in calls if call.name == name]
    seconds = secondsText(sum(call.seconds for call in matching))
    return f"{name:<13}{len(matching)} times, together {bytesText(sum(call.nbytes for call in matching))}, {seconds}"


class Busiest(NamedTuple):
    """The process that has most to send: its number, its grains, and the parts of the tree that all processes have."""

    rank: int
    grains: int
    spans: list[list[Span]]


def busiest(cluster: Cluster, count: int) -> Busiest:
    """The process that has the most spans of the tree to send, among the first ones.

    Where processes divide the grains evenly, all have as many; the spans of those not looked at are then like these.
    """
    bounds = Grains(count, CountingWorld(cluster.ranks)).bounds
    spans = [spansIn(count, begin, end) for begin, end in zip(bounds, bounds[1 : LOOKED + 1])]
    rank = max(range(len(spans)), key=lambda r: len(spans[r]))
    return Busiest(rank, bounds[rank + 1] - bounds[rank], spans + [spans[rank]] * (cluster.ranks - len(spans)))


def pieceOf(world: CountingWorld, size: int) -> int:
    """The elements of a bucket that a process updates."""
    return cutAt(size, world.size, world.rank + 1) - cutAt(size, world.size, world.rank)


def chunkSizes(size: int, count: int) -> list[int]:
    """Return the elements of a bucket's weights in each all-gather of all ranks."""
    cuts = np.minimum(BLOCK * (-(-size // BLOCK) * np.arange(count + 1) // count), size)
    pieces, counts = np.unique(np.diff(cuts), return_counts=True)
    chunk = chunkOf(count)
    return [int(np.clip(pieces - at, 0, chunk) @ counts) for at in range(0, int(pieces.max()), chunk)]


def arraysFor(spans: list[Span]) -> int:
    """The most arrays that `TreeSum.own` needs at one time for these parts of the tree."""

    def needed(leaves: int) -> int:
        half = leaves // 2
        return 1 if leaves == 1 else max(needed(half), 1 + needed(leaves - half))

    return max(i + needed(end - begin) for i, (begin, end) in enumerate(spans))


def nothing(size: int, dtype: Any) -> np.ndarray:
    """An array of n elements that takes no memory."""
    return np.broadcast_to(np.zeros((), dtype), (size,))
