"""StagePipeline: the stages of a step that this process has, and what it sends to others and gets from them."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from puregraph.analysis.footprint import Footprint
from puregraph.analysis.stagecuts import StageCuts
from puregraph.core.param import Param
from puregraph.core.shape import symbols
from puregraph.errors import GraphError
from puregraph.graph import Graph
from puregraph.graph.backward import needsOf
from puregraph.graph.graphsegment import Crossing, Crossings, segmentFrom
from puregraph.many.world import Pending
from puregraph.train.pipeline.packedarray import blank, packed, unpacked
from puregraph.train.pipeline.pipelinegrid import PipelineGrid
from puregraph.train.pipeline.pipelineschedule import PipelineSchedule, StageMove
from puregraph.train.pipeline.stagepass import StagePass

FORWARD, BACK, SHARED = range(3)  # what is sent: values, their gradients, gradients of parameters in two stages
KINDS = 2  # of the first two, each stage has a channel


class Microbatch(NamedTuple):
    """A grain of one of the batches of a step, and what the graph takes of it."""

    grain: int
    number: int
    arrays: list[Any]


class StagePipeline:
    """A graph of network and cost in stages, some of which this process has.

    `passes`    by number the stages of this process
    `homes`     by parameter, as its id, the stages that have it; the first of them updates it
    `schedule`  of the last step
    """

    def __init__(self, graph: Graph, shapes: list[Any], last: int, grid: PipelineGrid, isCompiled: bool):
        self.graph, self.grid = graph, grid
        self.steps = graph.steps(len(shapes))
        crossings = Crossings(self.steps, isCarried=False)
        found = Footprint(graph, *shapes)
        self.cuts = StageCuts(found, crossings).best(grid.stages, last)
        self.segments = [segmentFrom(crossings, *pair) for pair in pairwise(self.cuts)]
        self.final = grid.stages - 1
        self.wanted = {id(p) for _, module, name in self.steps.params if module.wants(p := getattr(module, name))}
        self.flowing = flowing(self.steps)
        self.passes = {}
        for stage in grid.own:
            isAsked = any(map(self.flows, self.segments[stage].taken))
            self.passes[stage] = StagePass(self.segments[stage], isCompiled, isAsked)
        self.homes: dict[int, list[int]] = {}
        for stage, segment in enumerate(self.segments):
            for key in {id(p): None for p in segment.graph.params.values()}:
                self.homes.setdefault(key, []).append(stage)
        pairs = [(key, other) for key, homes in self.homes.items() for other in homes[1:] if key in self.wanted]
        self.channels = {pair: KINDS * grid.stages + index for index, pair in enumerate(pairs)}
        self.sent: list[tuple[Pending, Any]] = []
        self.coming: dict[Any, tuple[Pending, np.ndarray, Any, Any]] = {}
        self.inferred: dict[Any, dict[int, tuple[Any, Any]]] = {}
        self.schedule = PipelineSchedule(grid.stages, grid.positions, 0)

    def run(
        self,
        units: list[Microbatch],
        begin: Callable[[int, int], None],
        ended: Callable[[int, int, list[Any]], None],
        learnt: Callable[[int, int, dict[int, Any]], None],
    ) -> None:
        """Take microbatches through all stages of this process, forward and back.

        `begin(stage, unit)` is called before a stage goes forward, `ended(stage, unit, outputs)` behind it, and
        `learnt(stage, unit, gradients)` when it has gone back, with the gradients by the ids of parameters.
        """
        if len(units) != self.schedule.units:
            self.schedule = PipelineSchedule(self.grid.stages, self.grid.positions, len(units))
        self.open(units)
        moves = self.schedule.orders[self.grid.position]
        for move, following in zip(moves, [*moves[1:], None]):
            self.expect(move)
            if following is not None:
                self.expect(following)  # it comes while this one is computed
            if move.isForward:
                begin(move.stage, move.unit)
                ended(move.stage, move.unit, self.forward(move))
            else:
                learnt(move.stage, move.unit, self.backward(move))
            self.sent = [each for each in self.sent if not each[0].isDone()]
        self.close()

    def open(self, units: list[Microbatch]) -> None:
        """Begin with these, and nothing from others."""
        self.units, self.values = units, dict[Any, Any]()
        self.sent, self.coming = [], {}

    def close(self) -> None:
        """Wait until all is sent."""
        for pending, _ in self.sent:
            pending.wait()
        self.sent = []

    def readFrom(self, weights: Any) -> None:
        """Have the stages read weights of which several processes have pieces."""
        for each in self.passes.values():
            each.weights = weights

    def shareWeights(self) -> None:
        """Give the new values of parameters that several stages have to all of these, from the first of them."""
        along, here, params = self.grid.along, self.grid.position, {}
        for each in self.passes.values():
            params.update({id(param): param for param in each.params})
        sent, coming = [], []
        for (key, stage), channel in self.channels.items():
            first, other = (self.grid.positionOf(each) for each in (self.homes[key][0], stage))
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
        """Forget microbatches that an exception has left behind."""
        for each in self.passes.values():
            each.reset()

    # One move -----------------------------------------------------------------------------------------------------

    def forward(self, move: StageMove) -> list[Any]:
        """A stage goes forward with a microbatch."""
        found = self.passes[move.stage].forward(move.unit, self.entering(move.stage, move.unit))
        self.handOn(move.stage, move.unit, found)
        return found

    def entering(self, stage: int, unit: int) -> list[Any]:
        """What a stage goes forward from."""
        segment, inputs = self.segments[stage], dict(zip(self.steps.inputs, self.units[unit].arrays))
        given = [inputs[each.number] for each in segment.received]
        return given + [self.take(FORWARD, stage, unit, each.number) for each in segment.taken]

    def handOn(self, stage: int, unit: int, found: list[Any]) -> None:
        """Give the next stage what this one has made."""
        if stage < self.final:
            for number, value in {each.number: y for each, y in zip(self.segments[stage].left, found)}.items():
                self.give(FORWARD, stage + 1, unit, number, value, self.readersOf(stage, number))

    def backward(self, move: StageMove) -> dict[int, Any]:
        """A stage goes back with a microbatch; the gradients of its parameters, of those in two stages of both."""
        grads, found = self.passes[move.stage].backward(move.unit, self.seeds(move.stage, move.unit))
        return self.handBack(move.stage, move.unit, grads, found)

    def seeds(self, stage: int, unit: int) -> list[Any]:
        """The gradients that a stage goes back from."""
        segment = self.segments[stage]
        if stage < self.final:
            return [self.take(BACK, stage, unit, each) if self.flows(each) else None for each in segment.left]
        shape, dtype = self.shapes(unit)[self.steps.outputs[0]]
        return [np.full(shape, self.costGrad(unit), dtype), *[None] * (len(segment.left) - 1)]

    def costGrad(self, unit: int) -> float:
        """The gradient of the cost of a microbatch."""
        return 1.0

    def handBack(self, stage: int, unit: int, grads: list[Any], found: list[Any]) -> dict[int, Any]:
        """Give the stage before the gradients of what it has made; those of parameters, of all stages together."""
        segment = self.segments[stage]
        if stage:
            for each, grad in zip(segment.taken, grads[len(segment.received) :]):
                if self.flows(each):
                    shape, dtype = self.shapes(unit)[each.number]
                    self.give(BACK, stage - 1, unit, each, np.zeros(shape, dtype) if grad is None else grad, 1)
        gradients = {id(param): grad for param, grad in zip(self.passes[stage].params, found)}
        for param in self.passes[stage].params:
            homes = self.homes[id(param)]
            if len(homes) > 1 and id(param) in self.wanted:
                own = gradients[id(param)]
                if stage != homes[0]:
                    empty = np.zeros(param.shape, param.dtype)
                    self.give(SHARED, homes[0], unit, (id(param), stage), empty if own is None else own, 1)
                    del gradients[id(param)]
                else:
                    for other in homes[1:]:
                        theirs = self.take(SHARED, stage, unit, (id(param), other))
                        gradients[id(param)] = own = theirs if own is None else own + theirs
        return gradients

    def flows(self, crossing: Crossing) -> bool:
        """Whether a gradient comes back over a cut for these readers of a value."""
        return any((crossing.number, reader) in self.flowing for reader in crossing.readers)

    def readersOf(self, stage: int, number: int) -> int:
        """How often the next stage is given a value."""
        return sum(each.number == number for each in self.segments[stage].left)

    # Between stages -----------------------------------------------------------------------------------------------

    def give(self, kind: int, stage: int, unit: int, what: Any, value: Any, times: int) -> None:
        """Give a stage a value, which it takes some times."""
        position = self.grid.positionOf(stage)
        if position == self.grid.position:
            self.values[kind, stage, unit, what] = [value, times]
        else:
            array = packed(np.asarray(value))
            self.sent.append((self.grid.along.startSend(array, position, self.channel(kind, stage, what)), array))

    def take(self, kind: int, stage: int, unit: int, what: Any) -> Any:
        """What a stage was given."""
        key = kind, stage, unit, what
        if key in self.coming:
            pending, *array = self.coming.pop(key)
            pending.wait()
            self.values[key] = [unpacked(*array), self.readersOf(stage - 1, what) if kind == FORWARD else 1]
        found = self.values[key]
        found[1] -= 1
        if not found[1]:
            del self.values[key]
        return found[0]

    def expect(self, move: StageMove) -> None:
        """Have what comes from others for a move put where `take` finds it, in the order in which they send it."""
        stage, unit = move.stage, move.unit
        segment, here = self.segments[stage], self.grid.position
        if move.isForward:
            wanted: dict[Any, int] = {each.number: each.number for each in segment.taken}
            kind, behind = FORWARD, self.grid.positionOf(stage - 1) if stage else here
        else:
            wanted = {each: each.number for each in segment.left if stage < self.final and self.flows(each)}
            kind, behind = BACK, self.grid.positionOf(stage + 1) if stage < self.final else here
            for param in self.passes[stage].params:
                homes = self.homes[id(param)]
                for other in homes[1:] if stage == homes[0] and id(param) in self.wanted else ():
                    if self.grid.positionOf(other) != here:
                        key, source = (SHARED, stage, unit, (id(param), other)), self.grid.positionOf(other)
                        self.receive(key, source, param.shape, param.dtype)
        if behind != here:
            for what, number in wanted.items():
                self.receive((kind, stage, unit, what), behind, *self.shapes(unit)[number])

    def receive(self, key: tuple[int, int, int, Any], source: int, shape: Any, dtype: Any) -> None:
        """Begin to receive an array, unless it was expected before."""
        if key in self.coming or key in self.values:
            return
        array, (kind, stage, _, what) = blank(shape, dtype), key
        pending = self.grid.along.startReceive(array, source, self.channel(kind, stage, what))
        self.coming[key] = pending, array, shape, dtype

    def channel(self, kind: int, stage: int, what: Any) -> int:
        """The channel by which a stage is sent something: arrays of one arrive in the order in which they are sent."""
        return self.channels[what] if kind == SHARED else KINDS * stage + kind

    def shapes(self, unit: int) -> dict[int, tuple[Any, Any]]:
        """Shape and dtype of every value of a microbatch, by number.

        Raises    GraphError for a value whose size only a pass knows
        """
        return self.shapesOf(self.units[unit].arrays)

    def shapesOf(self, arrays: list[Any]) -> dict[int, tuple[Any, Any]]:
        """The same for a microbatch of such arrays."""
        key = tuple([(x.shape, x.dtype) for x in arrays])
        if key not in self.inferred:
            found: dict[int, tuple[Any, Any]] = {}
            for row in self.graph.infer([x.shape for x in arrays], dtypes=[x.dtype for x in arrays]).rows:
                found.update(zip(row.step.visible, zip(row.shapes or (), row.dtypes)))
            for number in {each.number for segment in self.segments[:-1] for each in segment.left}:
                if number not in found or any(symbols(found[number][0])):
                    name = self.steps.names[number]
                    raise GraphError(f"stages: '{name}' goes over a cut, and only a pass knows its size or dtype")
            self.inferred[key] = found
        return self.inferred[key]


def flowing(steps: Any) -> set[tuple[int, Any]]:
    """The values, each with the readers from which a gradient comes, that the cost gives parameters through."""
    requires = {n: True for n, module, name in steps.params if isinstance(getattr(module, name), Param)}
    requires = {n: True for n, module, name in steps.params if n in requires and module.wants(getattr(module, name))}
    needs = []
    for step in steps.items:
        needs.append(needsOf(step, requires))
        if any(needs[-1]):
            requires.update(dict.fromkeys(step.visible, True))
    cost = steps.outputs[0]
    reached, found = {cost}, {(cost, (len(steps.items), 0))}
    for index in range(len(steps.items) - 1, -1, -1):
        step = steps.items[index]
        if any(needs[index]) and any(n in reached for n in step.visible):
            for argument, isNeeded in enumerate(needs[index]):
                if isNeeded:
                    reached.add(step.args[argument])
                    found.add((step.args[argument], (index, argument)))
    return found
