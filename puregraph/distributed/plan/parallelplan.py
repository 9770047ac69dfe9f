"""ParallelPlan: splits of data, state, stages and tensors together, for more processes than a batch has samples."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from puregraph.core.errors import DataError, GraphError, ShapeError
from puregraph.core.shape import product
from puregraph.distributed.plan.clocks import INSIDE, Clocks
from puregraph.distributed.plan.cluster import Cluster
from puregraph.distributed.plan.plan import BACKWARD_FLOPS_RATIO, SHARDS, Plan, tableOf
from puregraph.distributed.tensor.tensorlayout import COLUMNS, WITHIN, TensorLayout
from puregraph.distributed.worlds.countingworld import Collective
from puregraph.graph import Graph
from puregraph.graph.analysis.footprint import Footprint
from puregraph.graph.analysis.stagecuts import StageCuts
from puregraph.graph.analysis.summary import bytesText, secondsText
from puregraph.graph.graphsegment import Crossings

BUCKETS = 8  # of gradients; the last one is complete at the end of backward
MICRO = (1, 2, 4, 8, 16)  # samples of a microbatch
MAX_LISTED_MIXES = 6  # mixes in a table
JITTER = 0.02  # relative standard deviation of compute time, for the time that ranks wait


class Mix(NamedTuple):
    """A combination of data, tensor and pipeline parallelism, with its cost for a rank of the largest stage.

    `data`, `tensor`, `stages`  the ranks that divide the batch, each layer, and the layers; their product is all ranks
    `shard`                     the state sharded over the data parallel ranks, as in Trainer
    `micro`, `microbatches`     samples of a microbatch, and microbatches of a rank in a step
    `memory`                    bytes at the peak
    `compute`                   seconds of forward and backward; `bubble`: idle seconds of a stage
    `calls`                     collectives of a step, equal ones merged; `hidden`: seconds that overlap with compute
    """

    data: int
    tensor: int
    stages: int
    shard: str | None
    micro: int
    microbatches: int
    memory: float
    compute: float
    bubble: float
    hidden: float
    calls: list[Collective]

    @property
    def exchange(self) -> float:
        """The seconds of all collectives."""
        return sum(call.seconds for call in self.calls)

    @property
    def seconds(self) -> float:
        """The seconds of a step."""
        return self.compute + self.bubble + self.exchange - self.hidden

    @property
    def waited(self) -> float:
        """The fraction of a step in which a process is idle."""
        return 1 - self.compute / self.seconds


class ParallelPlan(Plan):
    """The combinations of parallelism for a graph and a cluster; `best` is the fastest that fits in memory.

    Sizes are those of one sample, and grow with samples.

    Sharding divides the optimizer's state, gradients, and parameters by d; the parameters of the largest node exist
    twice. Linear, Embedder and heads are divided by t within a machine, see `TensorLayout`. Each of s pipeline stages
    is idle for (s - 1) / m of its time, and keeps the values of min(s, m) microbatches (1F1B). Reductions use halving
    and doubling, within machines first.

    Source    Rajbhandari et al. 2020, ZeRO; Shoeybi et al. 2019, Megatron-LM; Narayanan et al. 2021, Efficient
              Large-Scale Language Model Training on GPU Clusters Using Megatron-LM
    Raises    ShapeError for shapes that do not fit; ArgumentError without a batch in numbers
    """

    def __init__(self, graph: Graph, shapes: Sequence[Any], cluster: Cluster, optimizer: Any):
        super().__init__(graph, shapes, cluster, optimizer)
        single = [(1, *shape[1:]) for shape in shapes]
        footprint = Footprint(graph, *single)
        if footprint.faults:
            raise ShapeError(*footprint.faults)
        self.lines = footprint.lines
        self.itemsize = footprint.dtype.itemsize
        self.weightBytes = footprint.params * self.itemsize
        self.kept = footprint.kept() or 0
        self.passing = max(
            (footprint.peak() or 0) - footprint.paramBytes - footprint.stateBytes - self.kept - self.weightBytes, 0
        )
        self.flops = np.array([float(line.flops) for line in self.lines])
        self.weights = self.itemsize * np.array([float(line.params) for line in self.lines])
        self.made = np.array([float(line.nbytes) for line in self.lines])
        self.layouts = {
            t: layout for t in powers(self.cluster.node) if (layout := self.layout(t, single, footprint.rows))
        }
        self.crossings = StageCuts(footprint, Crossings(footprint.steps, isCarried=False))
        most = max(1, sum(line.params > 0 for line in self.lines))
        self.cuts = {k: cuts for k in powers(most) if (cuts := self.cutsFor(k))}
        self.stages: dict[tuple[int, int], dict[str, float]] = {}
        self.exchanged: dict[int, tuple[int, float]] = {}  # by the number of tensor parallel parts
        self.mixes = sorted(self.every(), key=lambda mix: (round(mix.seconds, 9), mix.memory))

    @property
    def best(self) -> Mix | None:
        """The fastest that fits; None if none does."""
        return next((mix for mix in self.mixes if self.fits(mix.memory)), None)

    def every(self) -> Iterator[Mix]:
        """Yield all combinations whose factors divide the ranks and the batch."""
        ranks = self.cluster.ranks
        for tensor in self.tensors():
            for stages in self.cuts:
                data, remainder = divmod(ranks, tensor * stages)
                if remainder or not data or self.batch % data:
                    continue
                samples = self.batch // data
                for micro in (m for m in MICRO if samples % m == 0):
                    for shard in SHARDS if data > 1 else (None,):
                        yield self.mix(data, tensor, stages, shard, micro)

    def cutsFor(self, stages: int) -> list[int]:
        """Return the beginnings of a Trainer's stages, and their end; empty if it cannot be cut into that number."""
        try:
            return self.crossings.best(stages)
        except GraphError:
            return []

    def tensors(self) -> list[int]:
        """The possible numbers of tensor parallel parts, at most the processes of a machine."""
        return [1, *self.layouts]

    def layout(self, tensor: int, shapes: list[Any], rows: list[Any]) -> TensorLayout | None:
        """Return the tensor parallel layout; None for one part, and if the network cannot be divided."""
        if tensor == 1 or self.cluster.node % tensor:
            return None
        try:
            return TensorLayout(self.graph, tensor, shapes, rows)
        except DataError:
            return None

    def mix(self, data: int, tensor: int, stages: int, shard: str | None, micro: int) -> Mix:
        """Estimate one combination."""
        cluster, count = self.cluster, self.batch // data // micro
        stage = self.stage(stages, tensor)
        flops, params, kept, edge = (stage[name] for name in ("flops", "params", "kept", "edge"))
        compute = (1 + BACKWARD_FLOPS_RATIO) * flops * micro * count / cluster.flops
        largest = float(self.weights.max(initial=0.0)) / tensor
        divided = {None: 0, "state": 1, "gradients": 2, "parameters": 3}[shard]
        held = [params, params, self.keeps * params]  # weights, gradients, the optimizer's state
        held = [size / data if divided >= least else size for size, least in zip(held, (3, 2, 1))]
        memory = sum(held) + micro * (kept * min(stages, count) + self.passing / stages)
        memory += 2 * largest if divided == 3 else params / BUCKETS if divided == 2 else 0
        calls = [*self.sums(tensor, stages, micro * 1.0, count), *self.sends(stages, edge * micro, count)]
        reduced = self.reductions(data, tensor, params, shard, count)
        hides = compute if divided == 3 else compute / count * BACKWARD_FLOPS_RATIO / (1 + BACKWARD_FLOPS_RATIO)
        spent = sum(call.seconds for call in reduced)
        hidden = min(spent * (1 - 1 / BUCKETS), hides)
        bubble = (stages - 1) / count * compute
        return Mix(data, tensor, stages, shard, micro, count, memory, compute, bubble, hidden, [*calls, *reduced])

    # Parts ------------------------------------------------------------------------------------------------------------

    def stage(self, stages: int, tensor: int) -> dict[str, float]:
        """Return the cost of the largest stage per sample: operations, bytes of parameters, kept values and sends."""
        if (stages, tensor) in self.stages:
            return self.stages[stages, tensor]
        inner, divided = np.ones(len(self.lines)), np.ones(len(self.lines))
        for index, role in self.layouts[tensor].roles.items() if tensor > 1 else ():
            divided[index] = 1 / tensor
            inner[index] = 1 / tensor if role in (COLUMNS, WITHIN) else 1.0
        flops, params, made = self.flops * divided, self.weights * divided, self.made
        bounds = self.cuts[stages]
        starts, ends = bounds[:-1], bounds[1:]
        largest = {
            "flops": max(float(flops[a:b].sum()) for a, b in zip(starts, ends)),
            "params": max(float(params[a:b].sum()) for a, b in zip(starts, ends)),
            "kept": self.kept / stages * (float((made * inner).sum() / made.sum()) if made.any() else 1.0),
            "edge": max((float(self.crossings.crossing[bound]) for bound in starts[1:]), default=0.0),
        }
        self.stages[stages, tensor] = largest
        return largest

    def sums(self, tensor: int, stages: int, samples: float, count: int) -> list[Collective]:
        """Estimate the tensor parallel all-reduces and gathers of one stage."""
        if tensor == 1:
            return []
        if tensor not in self.exchanged:
            self.exchanged[tensor] = self.exchangedBy(self.layouts[tensor])
        turns, nbytes = self.exchanged[tensor]
        sent = (tensor - 1) / tensor * nbytes * samples / stages * count
        seconds = (tensor - 1) * math.ceil(turns / stages) * count * INSIDE.latency + sent / INSIDE.bandwidth
        return [Collective("tensor sums", round(sent), seconds)]

    def exchangedBy(self, layout: TensorLayout) -> tuple[int, float]:
        """Count the tensor parallel collectives of a forward and backward pass, and their bytes per sample."""
        sums = [*layout.spread, *layout.summed]
        sizes = [product(layout.shapes[n]) for n in (*sums, *sums, *layout.joined)]
        return len(sizes), float(sum(sizes) * self.itemsize)

    def sends(self, stages: int, nbytes: float, count: int) -> list[Collective]:
        """Estimate the sends of an inner stage to its neighbours: activations forward, gradients backward."""
        if stages == 1:
            return []
        share = self.cluster.link.bandwidth / self.cluster.node
        turns = 2 * (count + stages - 1)
        return [Collective("stage sends", round(turns * nbytes), turns * (self.cluster.link.latency + nbytes / share))]

    def reductions(self, data: int, tensor: int, params: float, shard: str | None, count: int) -> list[Collective]:
        """Estimate the data parallel collectives: gradients once, and parameters if they are sharded."""
        if data == 1:
            return []
        if shard is None:
            return [self.collective("gradient sums", data, tensor, params, 2)]
        scatter = self.collective("gradient pieces", data, tensor, params, 1)
        if shard == "parameters":
            gather = self.collective("parameter gathers", data, tensor, params, 1)
            gathers = 2 * count  # for every microbatch, before forward and before backward
            return [scatter, Collective(gather.name, gathers * gather.nbytes, gathers * gather.seconds)]
        return [scatter, self.collective("parameter gather", data, tensor, params, 1)]

    def collective(self, name: str, data: int, tensor: int, nbytes: float, ways: int) -> Collective:
        """Estimate a collective of 1 or 2 `ways` (halving, doubling): within machines, then between them, as Clocks."""
        inner, link = self.inner(data, tensor), self.cluster.link
        outer = data // inner
        rounds = max(outer - 1, 0).bit_length()
        seconds = (inner - 1) * (BUCKETS * INSIDE.latency + nbytes / inner / INSIDE.bandwidth)
        passed = nbytes / inner * (outer - 1) / outer
        seconds += BUCKETS * rounds * link.latency + passed * self.cluster.node / link.bandwidth
        if outer & (outer - 1):  # surplus ranks beyond a power of two first send their arrays to a neighbour
            seconds += BUCKETS * link.latency + nbytes / inner * self.cluster.node / link.bandwidth
        sent = nbytes * (inner - 1) / inner + passed
        return Collective(name, round(ways * sent), ways * seconds)

    def inner(self, data: int, tensor: int) -> int:
        """Return the number of data parallel ranks on one machine."""
        slots = max(self.cluster.node // tensor, 1)
        return math.gcd(data, slots)

    # Words ------------------------------------------------------------------------------------------------------------

    def clocks(self, mix: Mix, jitter: float) -> float:
        """Fraction of a step that the slowest data-parallel rank waits, given jitter in compute time."""
        inner, link = self.inner(mix.data, mix.tensor), self.cluster.link
        shared = link._replace(bandwidth=link.bandwidth * inner / self.cluster.node)
        clocks, turn = Clocks(mix.data, shared, node=inner), mix.compute / (1 + BACKWARD_FLOPS_RATIO)
        backward = BACKWARD_FLOPS_RATIO * turn / mix.microbatches
        before = mix.compute - backward + mix.bubble
        params = self.stage(mix.stages, mix.tensor)["params"]
        clocks.step(before, backward, [params / BUCKETS] * BUCKETS, "halving", jitter)
        rest = mix.exchange - sum(
            call.seconds for call in mix.calls if call.name.startswith(("gradient", "parameter g"))
        )
        return 1 - mix.compute / (float(clocks.times.max()) + rest)

    def table(self) -> str:
        """Return a table of the fastest combinations that fit, the collectives of the best, and the time ranks wait."""
        names = ("data", "tensor", "stages", "shard", "micro", "memory", "sent", "compute", "step", "waited")
        fitting = [mix for mix in self.mixes if self.fits(mix.memory)]
        title = f"{len(self.mixes):,} combinations for a batch of {self.batch:,}; {len(fitting):,} fit in memory"
        if not fitting:
            least = min(self.mixes, key=lambda mix: mix.memory, default=None)
            return f"{title}" + ("" if least is None else f"; the smallest takes {bytesText(round(least.memory))}")
        rows = [names, *[self.row(mix) for mix in fitting[:MAX_LISTED_MIXES]]]
        lines, best = [title, *tableOf(rows, ["best", *[""] * MAX_LISTED_MIXES])], fitting[0]
        exchanges = [f"{call.name:<18}{bytesText(call.nbytes)}, {secondsText(call.seconds)}" for call in best.calls]
        waits = [f"{100 * self.clocks(best, jitter):.0f} %" for jitter in (0.0, JITTER)]
        clocks = f"processes spend {waits[0]} of each step waiting"
        uneven = f"{waits[1]} if their compute times differ by {100 * JITTER:.0f} %"
        return "\n".join([*lines, "", *exchanges, f"{clocks}, {uneven}"])

    def row(self, mix: Mix) -> tuple[str, ...]:
        """Return the table row of a mix."""
        counts = f"{mix.data:,}", str(mix.tensor), str(mix.stages), mix.shard or "nothing"
        batches = f"{mix.microbatches} x {mix.micro}"
        sizes = bytesText(round(mix.memory)), bytesText(sum(call.nbytes for call in mix.calls))
        times = secondsText(mix.compute), secondsText(mix.seconds), f"{100 * mix.waited:.0f} %"
        return (*counts, batches, *sizes, *times)

    def __repr__(self) -> str:
        return f"<ParallelPlan of {self.graph.title()} for {self.cluster.ranks} processes: {len(self.mixes)} mixes>"


def powers(most: int) -> list[int]:
    """1, 2, 4, ... up to a number."""
    return [1 << k for k in range(max(most, 1).bit_length())]
