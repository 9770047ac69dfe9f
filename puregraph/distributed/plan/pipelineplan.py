"""PipelinePlan: predict the peak memory of each process of a pipeline, from the graph alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from puregraph.compile.memory.outputs import SPARE
from puregraph.core.errors import GraphError
from puregraph.distributed.collectives.treesum import Span
from puregraph.distributed.plan.cluster import Cluster
from puregraph.distributed.plan.plan import MAX_SEARCHED_RANKS, SHARDS, Plan, arraysFor, busiest, tableOf
from puregraph.distributed.plan.shardedfootprint import StageFootprint
from puregraph.distributed.sharding.sharding import shardSize
from puregraph.distributed.worlds.mesh import meshFor
from puregraph.graph import Graph
from puregraph.graph.analysis.footprint import Footprint
from puregraph.graph.analysis.stagecuts import StageCuts
from puregraph.graph.analysis.summary import bytesText
from puregraph.graph.graphsegment import Crossings, GraphSegment, segmentFrom

COUNTS = 2, 3, 4, 6, 8  # of stages in a table
GRAINS_PER_RANK = 8  # grains of a process, or as many as a batch has


class StageSplit(NamedTuple):
    """A network in stages, and the memory of its processes.

    `stages`, `shard`, `grains`  as the Trainer takes them
    `replicas`                   the processes per position, which divide the grains
    `memory`                     peak bytes by position and replica; further replicas are like the last one
    """

    stages: int
    shard: str | None
    grains: int
    replicas: int
    memory: list[list[int]]

    def of(self, rank: int) -> int:
        """Return the peak bytes of a process."""
        position, replica = divmod(rank, self.replicas)
        return self.memory[position][min(replica, len(self.memory[position]) - 1)]

    @property
    def most(self) -> int:
        """The largest peak of all processes."""
        return max(map(max, self.memory))


class Stage(NamedTuple):
    """A stage: the size of the parameters that it updates, and the bytes of a microbatch in it.

    `size`       elements of these parameters
    `kept`       bytes kept from forward to backward
    `values`     bytes of all other values, and of gradients from programs
    `gathered`   extra bytes of gathered weights, if these are sharded
    `gradients`  bytes of gradients while they are added to a grain's sums
    `passed`     bytes that cross its cuts
    """

    size: int
    kept: int
    values: int
    gathered: int
    gradients: int
    passed: int


class StageSums(NamedTuple):
    """The subtree spans of a process, shifted to begin at 0, and the number of subtrees of all `replicas`."""

    spans: tuple[Span, ...]
    parts: int
    replicas: int

    @property
    def grains(self) -> int:
        """The grains of the process."""
        return sum(end - begin for begin, end in self.spans)


class PipelinePlan(Plan):
    """The possible pipelines of a network on a cluster; `best` takes the least memory.

    Sizes are those of a grain. The peak of a step is in the passes of microbatches, in the reduction of gradients, or
    in the update.

    Weights, gradients, optimizer state, values of microbatches and buffers of reductions are counted; data, cost,
    metrics, packed weights and Python itself are not.

    Raises    ShapeError for shapes that do not fit; ArgumentError without a batch in numbers
    """

    def __init__(self, graph: Graph, shapes: Sequence[Any], cluster: Cluster, optimizer: Any):
        super().__init__(graph, shapes, cluster, optimizer)
        self.stored = sum(array.nbytes for kind in (graph.params, graph.states) for array in kind.values())
        self.cuts: dict[int, StageCuts] = {}  # by the samples of a microbatch
        self.planned: dict[tuple[int, int], list[Stage]] = {}
        self.splits = list(self.every())

    @property
    def best(self) -> StageSplit | None:
        """The split whose largest process needs the least memory; None if none fits."""
        fitting = [split for split in self.splits if self.fits(split.most)]
        return min(fitting, key=lambda split: split.most, default=None)

    def every(self) -> Iterator[StageSplit]:
        """Yield the splits for numbers of stages that divide the processes, with every shard."""
        ranks = self.cluster.ranks
        for stages in (k for k in COUNTS if ranks % k == 0 and ranks // k <= self.batch):
            replicas = ranks // stages
            grains = replicas * min(GRAINS_PER_RANK, 1 << (self.batch // replicas).bit_length() - 1)
            for shard in SHARDS if replicas > 1 else (None, "parameters"):
                try:
                    yield self.split(stages, shard, grains)
                except GraphError:  # the network has fewer stages
                    break

    def split(self, stages: int, shard: str | None, grains: int) -> StageSplit:
        """Return the split of the network into n stages, with these grains.

        Raises    GraphError if it cannot be cut into n stages
        """
        mesh = meshFor(self.mesh().world, stages)
        positions, replicas = mesh.stage.size, mesh.data.size
        every = self.stages(stages, -(-self.batch // grains))
        spans = busiest(replicas, grains).spans
        parts, memory = sum(map(len, spans)), []
        for position in range(positions):
            lengths = [tuple([(0, b - a) for a, b in stageSpans]) for stageSpans in spans[: MAX_SEARCHED_RANKS + 1]]
            byRank, localStages = [StageSums(s, parts, replicas) for s in lengths], range(position, stages, positions)
            peaks = {sums: self.memory(every, localStages, shard, sums) for sums in set(byRank)}
            memory.append([peaks[sums] for sums in byRank])
        return StageSplit(stages, shard, grains, replicas, memory)

    def memory(self, every: list[Stage], own: range, shard: str | None, reduced: StageSums) -> int:
        """Return the peak memory of a rank with some of all stages and these sums of gradients."""
        itemsize, stages, replicas = self.dtype.itemsize, [every[stage] for stage in own], reduced.replicas
        piece = sum(shardSize(stage.size, replicas if shard else 1) for stage in stages) * itemsize
        held = self.stored
        if shard == "parameters":
            held -= sum(param.nbytes for param in self.params) - piece
            held += sum(stage.gathered for stage in stages)
        elif shard is not None:
            held += piece  # the updated weights
        held += int(self.keeps * piece) + piece  # the update's gradients, kept until the next update
        alive = [min(len(every) - number, reduced.grains) for number in own]
        held += sum(stage.values + min(count, SPARE) * stage.kept for count, stage in zip(alive, stages))
        sums = arraysFor([*reduced.spans]) * itemsize * sum(stage.size for stage in stages)
        passing = sums + max(stage.gradients for stage in stages) + sum(stage.passed for stage in stages)
        passing += sum(max(count - SPARE, 0) * stage.kept for count, stage in zip(alive, stages))
        summing = sums + piece
        if replicas > 1:
            largest, count = max(stage.size for stage in stages), len(reduced.spans)
            received = reduced.parts if count > 1 else reduced.parts - 1  # several subtree sums of a process are copied
            shardElements, levels = shardSize(largest, replicas), reduced.parts.bit_length()
            summing += itemsize * shardElements * (received - 1 + levels)  # partial sums of the tree
            summing += itemsize * (largest - shardElements) * count if count > 1 else 0  # the send buffer
        isBrief = shard in ("gradients", "parameters")
        return held + max(passing, summing, piece + (0 if isBrief else sums))

    # Stages -----------------------------------------------------------------------------------------------------------

    def stages(self, count: int, samples: int) -> list[Stage]:
        """Return the `count` stages of the network, for a microbatch of n samples."""
        key = count, samples
        if key not in self.planned:
            cuts, counted = self.cutsFor(samples), set[int]()
            segments = [segmentFrom(cuts.crossings, *pair) for pair in pairwise(cuts.best(count))]
            self.planned[key] = [self.stage(cuts.footprint, segment, counted) for segment in segments]
        return self.planned[key]

    def cutsFor(self, samples: int) -> StageCuts:
        """Return the possible cuts of the network, for n samples.

        Raises    ShapeError if the network does not fit them
        """
        if samples not in self.cuts:
            footprint = Footprint(self.graph, *self.shapesFor(samples))
            self.cuts[samples] = StageCuts(footprint, Crossings(footprint.steps, isCarried=False))
        return self.cuts[samples]

    def stage(self, footprint: Footprint, segment: GraphSegment, counted: set[int]) -> Stage:
        """Return a stage, which updates the parameters that no earlier stage has."""
        graph = segment.graph
        params = {id(param): param for param in graph.params.values() if param.trainable}
        size = sum(param.size for key, param in params.items() if key not in counted)
        counted |= params.keys()
        entering = [crossing.number for crossing in (*segment.received, *segment.taken)]
        inner = StageFootprint(graph, [footprint.shapes[n] for n in entering], len(segment.taken) > 0)
        gradients = [param.nbytes for param in params.values()]
        added = sum(gradients) + max(gradients, default=0)  # and a scaled copy of one at a time
        passed = sum(int(footprint.sizes[crossing.number]) for crossing in (*segment.taken, *segment.left))
        return Stage(size, int(inner.kept() or 0), inner.passing + inner.made, inner.gathered, added, passed)

    # Words ------------------------------------------------------------------------------------------------------------

    def table(self) -> str:
        """Return a line per pipeline, with the memory of the processes at each position."""
        title = f"stages of {self.graph.title()}, and the memory of a process with each of them"
        if not self.splits:
            return f"{title}: no number of them up to {COUNTS[-1]} divides network and {self.cluster.ranks:,} processes"
        rows = [("stages", "shard", "grains", "memory"), *map(self.row, self.splits)]
        best, fitting = self.best, [self.fits(split.most) for split in self.splits]
        marks = ["least" if way is best else "" if fits else "too large" for way, fits in zip(self.splits, fitting)]
        return "\n".join([title, *tableOf(rows, marks, ragged=1)])

    def row(self, split: StageSplit) -> tuple[str, str, str, str]:
        """Return the table row of a pipeline."""
        memory = ", ".join([bytesText(max(peaks)) for peaks in split.memory])
        return str(split.stages), split.shard or "nothing", f"{split.grains:,}", memory

    def __repr__(self) -> str:
        return (
            f"<PipelinePlan of {self.graph.title()} for {self.cluster.ranks} processes: {len(self.splits)} pipelines>"
        )
