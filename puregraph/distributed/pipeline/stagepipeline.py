"""StagePipeline: the stages that this process runs, and their exchange with the stages of other processes."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from puregraph.core.errors import GraphError
from puregraph.core.param import Param
from puregraph.core.shape import symbols
from puregraph.distributed.pipeline.packedarray import blank, packed, unpacked
from puregraph.distributed.pipeline.pipelineschedule import PipelineSchedule, StageMove
from puregraph.distributed.pipeline.stagepass import StagePass
from puregraph.distributed.worlds.mesh import Mesh
from puregraph.distributed.worlds.world import Pending
from puregraph.graph import Graph
from puregraph.graph.analysis.footprint import Footprint
from puregraph.graph.analysis.stagecuts import StageCuts
from puregraph.graph.backward import needsOf
from puregraph.graph.graphsegment import Crossing, Crossings, segmentFrom

FORWARD, BACK, SHARED = range(3)  # kinds of messages: values, their gradients, gradients of shared parameters
CHANNELS_PER_STAGE = 2  # channels per stage, for the first two kinds


class Microbatch(NamedTuple):
    """A grain of one of the batches of a step, with its arrays for the graph's inputs."""

    grain: int
    number: int
    arrays: list[Any]


class StagePipeline:
    """A graph of network and cost, cut into pipeline stages; this rank runs some of them.

    `passes`    the stages of this rank by number
    `homes`     by the id of a parameter the stages that have it; the first of them updates it
    `schedule`  the schedule of the last step
    """

    def __init__(self, graph: Graph, shapes: list[Any], last: int, mesh: Mesh, stages: int, isCompiled: bool):
        self.graph, self.mesh, self.stages, self.own = graph, mesh, stages, mesh.stagesOf(stages)
        self.steps = graph.steps(len(shapes))
        crossings = Crossings(self.steps, isCarried=False)
        footprint = Footprint(graph, *shapes)
        self.cuts = StageCuts(footprint, crossings).best(stages, last)
        self.segments = [segmentFrom(crossings, *pair) for pair in pairwise(self.cuts)]
        self.final = stages - 1
        self.wanted = {id(p) for _, module, name in self.steps.params if module.wants(p := getattr(module, name))}
        self.flowing = flowing(self.steps)
        self.passes = {}
        for stage in self.own:
            isAsked = any(map(self.flows, self.segments[stage].taken))
            self.passes[stage] = StagePass(self.segments[stage], isCompiled, isAsked)
        self.homes: dict[int, list[int]] = {}
        for stage, segment in enumerate(self.segments):
            for key in {id(p): None for p in segment.graph.params.values()}:
                self.homes.setdefault(key, []).append(stage)
        pairs = [(key, other) for key, homes in self.homes.items() for other in homes[1:] if key in self.wanted]
        self.channels = {pair: CHANNELS_PER_STAGE * stages + index for index, pair in enumerate(pairs)}
        self.sent: list[tuple[Pending, Any]] = []
        self.coming: dict[Any, tuple[Pending, np.ndarray, Any, Any]] = {}
        self.inferred: dict[Any, dict[int, tuple[Any, Any]]] = {}
        self.schedule = PipelineSchedule(stages, mesh.stage.size, 0)

    def run(
        self,
        units: list[Microbatch],
        begin: Callable[[int, int], None],
        ended: Callable[[int, int, list[Any]], None],
        learnt: Callable[[int, int, dict[int, Any]], None],
    ) -> None:
        """Run microbatches through all stages of this rank, forward and backward.

        `begin(stage, unit)` is called before a stage's forward, `ended(stage, unit, outputs)` after it, and
        `learnt(stage, unit, gradients)` after its backward, with the gradients by the ids of parameters.
        """
        if len(units) != self.schedule.units:
            self.schedule = PipelineSchedule(self.stages, self.mesh.stage.size, len(units))
        self.open(units)
        moves = self.schedule.orders[self.mesh.stage.index]
        for move, following in zip(moves, [*moves[1:], None]):
            self.expect(move)
            if following is not None:
                self.expect(following)  # received while this move is computed
            if move.isForward:
                begin(move.stage, move.unit)
                ended(move.stage, move.unit, self.forward(move))
            else:
                learnt(move.stage, move.unit, self.backward(move))
            self.sent = [entry for entry in self.sent if not entry[0].isDone()]
        self.close()

    def open(self, units: list[Microbatch]) -> None:
        """Begin a step with these microbatches, and no pending messages."""
        self.units, self.values = units, dict[Any, Any]()
        self.sent, self.coming = [], {}

    def close(self) -> None:
        """Wait until all messages are sent."""
        for pending, _ in self.sent:
            pending.wait()
        self.sent = []

    def readFrom(self, weights: Any) -> None:
        """Let the stages read sharded weights."""
        for stagePass in self.passes.values():
            stagePass.weights = weights

    def shareWeights(self) -> None:
        """Send the new values of shared parameters from their first stage to the others."""
        along, here, params = self.mesh.stage.world, self.mesh.stage.index, {}
        for stagePass in self.passes.values():
            params.update({id(param): param for param in stagePass.params})
        sent, coming = [], []
        for (key, stage), channel in self.channels.items():
            first, other = (self.indexOf(home) for home in (self.homes[key][0], stage))
            if first != other and here == first:
                sent.append(along.startSend(params[key].materialize(), other, channel))
            elif first != other and here == other:
                coming.append((params[key], along.startReceive(params[key].materialize(), first, channel)))
        for param, pending in coming:
            pending.wait()
            param.bumpVersion()
        for pending in sent:
            pending.wait()

    def reset(self) -> None:
        """Drop microbatches that an exception has interrupted."""
        for stagePass in self.passes.values():
            stagePass.reset()

    def indexOf(self, stage: int) -> int:
        """Return the index of a stage along the mesh's stage axis."""
        return stage % self.mesh.stage.size

    # One move -----------------------------------------------------------------------------------------------------

    def forward(self, move: StageMove) -> list[Any]:
        """Run a stage forward for a microbatch."""
        outputs = self.passes[move.stage].forward(move.unit, self.entering(move.stage, move.unit))
        self.handOn(move.stage, move.unit, outputs)
        return outputs

    def entering(self, stage: int, unit: int) -> list[Any]:
        """Return the inputs of a stage for a microbatch."""
        segment, inputs = self.segments[stage], dict(zip(self.steps.inputs, self.units[unit].arrays))
        batch = [inputs[crossing.number] for crossing in segment.received]
        return batch + [self.take(FORWARD, stage, unit, crossing.number) for crossing in segment.taken]

    def handOn(self, stage: int, unit: int, outputs: list[Any]) -> None:
        """Send a stage's outputs to the next stage."""
        if stage < self.final:
            values = {crossing.number: y for crossing, y in zip(self.segments[stage].left, outputs)}
            for number, value in values.items():
                self.give(FORWARD, stage + 1, unit, number, value, self.readersOf(stage, number))

    def backward(self, move: StageMove) -> dict[int, Any]:
        """Run a stage backward for a microbatch. Returns parameter gradients, added over the stages that share them."""
        grads, paramGrads = self.passes[move.stage].backward(move.unit, self.seeds(move.stage, move.unit))
        return self.handBack(move.stage, move.unit, grads, paramGrads)

    def seeds(self, stage: int, unit: int) -> list[Any]:
        """Return the gradients that a stage's backward starts from."""
        segment = self.segments[stage]
        if stage < self.final:
            return [
                self.take(BACK, stage, unit, crossing) if self.flows(crossing) else None for crossing in segment.left
            ]
        shape, dtype = self.shapes(unit)[self.steps.outputs[0]]
        return [np.full(shape, self.costGrad(unit), dtype), *[None] * (len(segment.left) - 1)]

    def costGrad(self, unit: int) -> float:
        """The gradient of the cost of a microbatch."""
        return 1.0

    def handBack(self, stage: int, unit: int, grads: list[Any], paramGrads: list[Any]) -> dict[int, Any]:
        """Send input gradients to the stage before. Returns parameter gradients, added over stages that share them."""
        segment = self.segments[stage]
        if stage:
            for crossing, grad in zip(segment.taken, grads[len(segment.received) :]):
                if self.flows(crossing):
                    shape, dtype = self.shapes(unit)[crossing.number]
                    self.give(BACK, stage - 1, unit, crossing, np.zeros(shape, dtype) if grad is None else grad, 1)
        gradients = {id(param): grad for param, grad in zip(self.passes[stage].params, paramGrads)}
        for param in self.passes[stage].params:
            homes = self.homes[id(param)]
            if len(homes) > 1 and id(param) in self.wanted:
                gradient = gradients[id(param)]
                if stage != homes[0]:
                    empty = np.zeros(param.shape, param.dtype)
                    self.give(SHARED, homes[0], unit, (id(param), stage), empty if gradient is None else gradient, 1)
                    del gradients[id(param)]
                else:
                    for other in homes[1:]:
                        theirs = self.take(SHARED, stage, unit, (id(param), other))
                        gradients[id(param)] = gradient = theirs if gradient is None else gradient + theirs
        return gradients

    def flows(self, crossing: Crossing) -> bool:
        """True if these readers of a value return a gradient over the cut."""
        return any((crossing.number, reader) in self.flowing for reader in crossing.readers)

    def readersOf(self, stage: int, number: int) -> int:
        """Count the readers of a value in the next stage."""
        return sum(crossing.number == number for crossing in self.segments[stage].left)

    # Between stages -----------------------------------------------------------------------------------------------

    def give(self, kind: int, stage: int, unit: int, what: Any, value: Any, times: int) -> None:
        """Send a value to a stage, or keep it if this rank has that stage, which takes it `times` times."""
        position = self.indexOf(stage)
        if position == self.mesh.stage.index:
            self.values[kind, stage, unit, what] = [value, times]
        else:
            array = packed(np.asarray(value))
            self.sent.append((self.mesh.stage.world.startSend(array, position, self.channel(kind, stage, what)), array))

    def take(self, kind: int, stage: int, unit: int, what: Any) -> Any:
        """Return a value that was sent to a stage."""
        key = kind, stage, unit, what
        if key in self.coming:
            pending, *array = self.coming.pop(key)
            pending.wait()
            self.values[key] = [unpacked(*array), self.readersOf(stage - 1, what) if kind == FORWARD else 1]
        entry = self.values[key]
        entry[1] -= 1
        if not entry[1]:
            del self.values[key]
        return entry[0]

    def expect(self, move: StageMove) -> None:
        """Begin to receive a move's values from other ranks, in the order of sending; `take` returns them."""
        stage, unit = move.stage, move.unit
        segment, here = self.segments[stage], self.mesh.stage.index
        if move.isForward:
            wanted: dict[Any, int] = {crossing.number: crossing.number for crossing in segment.taken}
            kind, behind = FORWARD, self.indexOf(stage - 1) if stage else here
        else:
            wanted = {
                crossing: crossing.number for crossing in segment.left if stage < self.final and self.flows(crossing)
            }
            kind, behind = BACK, self.indexOf(stage + 1) if stage < self.final else here
            for param in self.passes[stage].params:
                homes = self.homes[id(param)]
                for other in homes[1:] if stage == homes[0] and id(param) in self.wanted else ():
                    if self.indexOf(other) != here:
                        key, source = (SHARED, stage, unit, (id(param), other)), self.indexOf(other)
                        self.receive(key, source, param.shape, param.dtype)
        if behind != here:
            for what, number in wanted.items():
                self.receive((kind, stage, unit, what), behind, *self.shapes(unit)[number])

    def receive(self, key: tuple[int, int, int, Any], source: int, shape: Any, dtype: Any) -> None:
        """Begin to receive an array, unless it was expected before."""
        if key in self.coming or key in self.values:
            return
        array, (kind, stage, _, what) = blank(shape, dtype), key
        pending = self.mesh.stage.world.startReceive(array, source, self.channel(kind, stage, what))
        self.coming[key] = pending, array, shape, dtype

    def channel(self, kind: int, stage: int, what: Any) -> int:
        """Return the channel for a kind of message to a stage; arrays of one channel arrive in the order of sending."""
        return self.channels[what] if kind == SHARED else CHANNELS_PER_STAGE * stage + kind

    def shapes(self, unit: int) -> dict[int, tuple[Any, Any]]:
        """Return the shape and dtype of every value of a microbatch, by number.

        Raises    GraphError for a value between stages whose shape cannot be inferred ahead
        """
        return self.shapesOf(self.units[unit].arrays)

    def shapesOf(self, arrays: list[Any]) -> dict[int, tuple[Any, Any]]:
        """Infer the shapes and dtypes of all values, for a microbatch of such arrays."""
        key = tuple([(x.shape, x.dtype) for x in arrays])
        if key not in self.inferred:
            shapes: dict[int, tuple[Any, Any]] = {}
            for row in self.graph.infer([x.shape for x in arrays], dtypes=[x.dtype for x in arrays]).rows:
                shapes.update(zip(row.step.visible, zip(row.shapes or (), row.dtypes)))
            for number in {crossing.number for segment in self.segments[:-1] for crossing in segment.left}:
                if number not in shapes or any(symbols(shapes[number][0])):
                    name = self.steps.names[number]
                    raise GraphError(f"stages: '{name}' goes over a cut, and only a pass knows its size or dtype")
            self.inferred[key] = shapes
        return self.inferred[key]


def flowing(steps: Any) -> set[tuple[int, Any]]:
    """Return (value, reader) pairs along which gradients flow from the cost to the parameters."""
    requires = {n: True for n, module, name in steps.params if isinstance(getattr(module, name), Param)}
    requires = {n: True for n, module, name in steps.params if n in requires and module.wants(getattr(module, name))}
    needs = []
    for step in steps.items:
        needs.append(needsOf(step, requires))
        if any(needs[-1]):
            requires.update(dict.fromkeys(step.visible, True))
    cost = steps.outputs[0]
    reached, pairs = {cost}, {(cost, (len(steps.items), 0))}
    for index in range(len(steps.items) - 1, -1, -1):
        step = steps.items[index]
        if any(needs[index]) and any(n in reached for n in step.visible):
            for argument, isNeeded in enumerate(needs[index]):
                if isNeeded:
                    reached.add(step.args[argument])
                    pairs.add((step.args[argument], (index, argument)))
    return pairs
