"""DataParallelPlan: predict bytes, memory and time of data parallel training, from the graph alone."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from puregraph.compile.gradientbuckets import GradientBuckets, backwardOrder
from puregraph.core.errors import ArgumentError
from puregraph.distributed.collectives.bucketedsum import INFLIGHT
from puregraph.distributed.collectives.treesum import UNCUT_ELEMENTS
from puregraph.distributed.plan.cluster import Cluster
from puregraph.distributed.plan.plan import BACKWARD_FLOPS_RATIO, SHARDS, Plan, arraysFor, busiest, tableOf
from puregraph.distributed.plan.shardedfootprint import ShardedFootprint
from puregraph.distributed.sharding.shardedupdate import chunkOf
from puregraph.distributed.sharding.sharding import shardSize
from puregraph.distributed.worlds.countingworld import Collective, CountingWorld
from puregraph.graph import Graph
from puregraph.graph.analysis.footprint import Footprint
from puregraph.graph.analysis.summary import bytesText, secondsText

GRAINS = (1, 2, 4, 8)  # per process
ROW_NUMBERS = 5  # numbers in a row of `SharedStep` besides those of parameters, states and metrics
MAX_PLAN_LINES = 12  # lines of a table above which the collectives of one name are merged


class StepSplit(NamedTuple):
    """A way to divide a step, and its cost for the process that sends most.

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


class DataParallelPlan(Plan):
    """The data parallel splits of a batch on a cluster; `best` is the fastest that fits in memory.

    Sizes are those of a grain. Weights, gradients, optimizer state, values of a grain and buffers of reductions are
    counted; data, metrics, packed weights and Python itself are not. Backward takes twice the operations of forward.

    Raises    ShapeError for shapes that do not fit; ArgumentError without a batch in numbers, and for a batch with
              fewer samples than processes
    """

    def __init__(self, graph: Graph, shapes: Sequence[Any], cluster: Cluster, optimizer: Any):
        super().__init__(graph, shapes, cluster, optimizer)
        if self.batch < cluster.ranks:
            raise ArgumentError(
                f"a batch of {self.batch} cannot be divided among {cluster.ranks} processes: each takes a sample at "
                "least; give larger shapes, or fewer --ranks"
            )
        order = backwardOrder(graph, self.params)
        self.buckets = GradientBuckets(order, self.dtype.itemsize, UNCUT_ELEMENTS)
        sizes = {end - begin for begin, end in pairwise(self.buckets.cuts)}
        self.chunks = {size: chunkSizes(size, cluster.ranks) for size in sizes}
        most = [g for g in GRAINS if g * cluster.ranks <= self.batch]
        self.busiest = {g * cluster.ranks: busiest(cluster.ranks, g * cluster.ranks) for g in most}
        self.splits = [self.split(shard, g) for g in most for shard in (SHARDS if cluster.ranks > 1 else (None,))]

    @property
    def best(self) -> StepSplit | None:
        """The fastest that fits; of equally fast ones the one that takes least memory. None if none fits."""
        fitting = [split for split in self.splits if self.fits(split.memory)]
        return min(fitting, key=lambda split: (round(split.seconds, 9), split.memory), default=None)

    @property
    def alone(self) -> StepSplit | None:
        """The step of a single process with the full batch; None if the cluster is a single process."""
        if self.cluster.ranks == 1:
            return None
        single = self.cluster._replace(ranks=1, node=1)
        return DataParallelPlan(self.graph, self.shapes, single, self.optimizer).splits[0]

    def split(self, shard: str | None, perRank: int) -> StepSplit:
        """Return a split with as many grains for every rank."""
        cluster, count = self.cluster, self.cluster.ranks * perRank
        sizes = self.footprint(-(-self.batch // count), shard)
        dtype, buckets, ranks = self.dtype, self.buckets, cluster.ranks
        total = buckets.cuts[-1] * dtype.itemsize
        rank, grains, spans = self.busiest[count]
        world: Any = self.mesh(rank).data.world
        localGrains, sizesOf = len(spans[rank]), [end - begin for begin, end in pairwise(buckets.cuts)]
        piece = sum(shardSize(size, ranks, rank) for size in sizesOf) * dtype.itemsize
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
            )  # the updated weights, their received gradients, and the gradients that the update reads
        if shard == "parameters":
            memory -= sum(param.nbytes for param in self.params)
        isBrief = shard in ("gradients", "parameters") and grains == 1
        rows = min(INFLIGHT, len(buckets.groups)) * largest if isBrief else arraysFor(spans[world.rank])
        memory += self.values(sizes) + round(rows * total) + gathered
        memory += parts.bit_length() * joined if parts > 2 else joined if parts else 0  # partial sums of the tree
        memory += (
            round(localGrains * total * largest) if localGrains > 1 and ranks > 1 else 0
        )  # the send buffer of several subtree sums
        moved = total * (2 + 2 * grains + 3 * (grains - 1)) + 3 * parts * piece + (3 + 2 * self.keeps) * updated
        flops = (1 + BACKWARD_FLOPS_RATIO) * int(sizes.flops) * grains
        return StepSplit(shard, count, world.calls, memory, flops / cluster.flops, moved / cluster.bandwidth)

    def footprint(self, samples: int, shard: str | None) -> Footprint:
        """Return the footprint of the graph for n samples.

        Raises    ShapeError if the graph does not fit them
        """
        shapes = self.shapesFor(samples)
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
            owners = sum(min(world.size - 1, -(-param.size // UNCUT_ELEMENTS)) for param in reads)
            world.count("read", world.share(sum(param.nbytes for param in reads)), owners)
        sizes, dtype = [end - begin for begin, end in pairwise(self.buckets.cuts)], self.dtype
        for size in sizes:
            sent = own * (size - shardSize(size, world.size, world.rank))
            world.count("allToAll", sent * dtype.itemsize, world.size - 1)
            if shard is None:
                world.startAllGather(nothing(size, dtype), [])
        held = {id(state): state.size for state in self.graph.states.values()}
        row = ROW_NUMBERS + len(self.params) + sum(held.values())
        world.startAllGather(nothing(count * row, np.float64), [])
        if shard == "parameters":
            world.startBarrier()
        for size in sizes if shard in ("state", "gradients") else ():
            for length in self.chunks[size]:
                world.startAllGather(nothing(length, dtype), [])

    def table(self) -> str:
        """Return a line per split, and the collectives of the best."""
        names = ("shard", "grains", "memory", "sent", "compute", "exchange", "update", "step", "waited")
        best = self.best
        rows = [names, *[self.row(split) for split in self.splits]]
        fitting = [self.fits(split.memory) for split in self.splits]
        marks = ["best" if way is best else "" if fits else "too large" for way, fits in zip(self.splits, fitting)]
        lines = [*tableOf(rows, marks), *self.aloneLines()]
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
        if not self.fits(alone.memory):
            return ["", f"{line}, too large"]
        if best is not None and alone.seconds < best.seconds:
            line += f": {best.seconds / alone.seconds:.2g} times as fast as the best split; train without the others"
        return ["", line]

    def row(self, split: StepSplit) -> tuple[str, ...]:
        """Return the table row of a split."""
        times = split.compute, split.exchange, split.update, split.seconds
        shown = [secondsText(t) for t in times]
        waited = f"{100 * split.exchange / split.seconds:.0f} %" if split.seconds else "0 %"
        sizes = bytesText(split.memory), bytesText(split.nbytes)
        return (split.shard or "nothing", f"{split.grains:,}", *sizes, *shown, waited)

    def exchanges(self, split: StepSplit) -> list[str]:
        """Return a line per collective of a split; consecutive equal ones are merged."""
        lines: list[tuple[Collective, int]] = []
        for call in split.calls:
            if lines and lines[-1][0] == call:
                lines[-1] = call, lines[-1][1] + 1
            else:
                lines.append((call, 1))
        if len(lines) > MAX_PLAN_LINES:
            return [sumOf(name, split.calls) for name in dict.fromkeys(call.name for call in split.calls)]
        return [
            f"{call.name:<13}{f'{times} x ' if times > 1 else ''}{bytesText(call.nbytes)}, {secondsText(call.seconds)}"
            for call, times in lines
        ]

    def __repr__(self) -> str:
        return (
            f"<DataParallelPlan of {self.graph.title()} for {self.cluster.ranks} processes: {len(self.splits)} splits>"
        )


def sumOf(name: str, calls: list[Collective]) -> str:
    """Return a line about all collectives of one name."""
    matching = [call for call in calls if call.name == name]
    seconds = secondsText(sum(call.seconds for call in matching))
    return f"{name:<13}{len(matching)} times, together {bytesText(sum(call.nbytes for call in matching))}, {seconds}"


def chunkSizes(size: int, count: int) -> list[int]:
    """Return the elements of a bucket's weights in each all-gather of all ranks."""
    cuts = np.minimum(UNCUT_ELEMENTS * (-(-size // UNCUT_ELEMENTS) * np.arange(count + 1) // count), size)
    pieces, counts = np.unique(np.diff(cuts), return_counts=True)
    chunk = chunkOf(count)
    return [int(np.clip(pieces - at, 0, chunk) @ counts) for at in range(0, int(pieces.max()), chunk)]


def nothing(size: int, dtype: Any) -> np.ndarray:
    """An array of n elements that takes no memory."""
    return np.broadcast_to(np.zeros((), dtype), (size,))
