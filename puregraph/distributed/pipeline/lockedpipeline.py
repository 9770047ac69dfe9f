"""LockedPipeline: stages with modules that take sums over a batch, which take all microbatches of it at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from puregraph.distributed.dataparallel.lockedpass import LockedPass
from puregraph.distributed.dataparallel.lockstep import LockStep, isMet, isSynchronized
from puregraph.distributed.pipeline.pipelineschedule import StageMove
from puregraph.distributed.pipeline.stagepipeline import Microbatch, StagePipeline
from puregraph.distributed.worlds.mesh import Mesh
from puregraph.graph import Graph


class LockedPipeline(StagePipeline):
    """A StagePipeline that takes batches one by one: all microbatches of a batch go forward before any goes backward.

    A stage with a `synchronized` module waits for all microbatches, and takes them in lockstep; other stages take them
    one after the other. Every stage therefore keeps the values of all its microbatches.

    `lockstep`  the lockstep of the ranks that share the grains of these stages
    `locked`    the stages that wait for all microbatches
    """

    def __init__(self, graph: Graph, shapes: list[Any], last: int, mesh: Mesh, stages: int, isCompiled: bool):
        with alone(graph):
            super().__init__(graph, shapes, last, mesh, stages, isCompiled)

    def setup(self, lockstep: LockStep) -> None:
        """Set the lockstep that runs the stages."""
        self.lockstep = lockstep
        steps = {stage: stagePass.segment.graph.steps() for stage, stagePass in self.passes.items()}
        self.locked = {stage for stage, stageSteps in steps.items() if any(map(isMet, stageSteps.items))}

    def runBatch(
        self,
        units: list[Microbatch],
        shares: list[float],
        smallest: list[Any],
        begin: Callable[[int, int], None],
        ended: Callable[[int, int, list[Any]], None],
        learnt: Callable[[int, int, dict[int, Any]], None],
    ) -> None:
        """Run the microbatches of one batch through all stages of this rank, as `run`.

        `shares`    the gradients of their costs
        `smallest`  arrays like those of the smallest microbatch on any rank
        """
        self.open(units)
        self.shares, own, count = shares, self.own, len(units)
        isCompiled = self.lockstep.isCompiled and self.lockstep.takesAlone(self.graph, smallest)
        for stagePass in self.passes.values():
            stagePass.isCompiled = isCompiled
        passed: dict[int, LockedPass] = {}
        for stage in own:
            if stage in self.locked:
                passed[stage] = self.forwardTogether(stage, smallest, begin, ended)
                continue
            for unit in range(count):
                self.expect(StageMove(True, stage, unit))
                begin(stage, unit)
                ended(stage, unit, self.forward(StageMove(True, stage, unit)))
        for stage in reversed(own):
            if stage in self.locked:
                self.backwardTogether(stage, passed.pop(stage), learnt)
                continue
            for unit in range(count):
                self.expect(StageMove(False, stage, unit))
                learnt(stage, unit, self.backward(StageMove(False, stage, unit)))
        self.close()

    def costGrad(self, unit: int) -> float:
        return self.shares[unit]

    def forwardTogether(self, stage: int, smallest: list[Any], begin: Any, ended: Any) -> LockedPass:
        """Run a stage forward for all microbatches, each with states of its own."""
        segment, stagePass = self.segments[stage], self.passes[stage]
        held = list({id(state): state for state in segment.graph.states.values()}.values())
        for unit in range(len(self.units)):
            self.expect(StageMove(True, stage, unit))
        inputs, states = dict[int, list[Any]](), dict[int, Any]()
        for unit, (grain, _, _) in enumerate(self.units):
            begin(stage, unit)
            inputs[grain] = self.entering(stage, unit)
            states[grain] = {id(state): state.materialize().copy() for state in held}
        known, examples = self.shapesOf(smallest), dict(zip(self.steps.inputs, smallest))
        like = [examples[crossing.number] for crossing in segment.received]
        like += [np.empty(*known[crossing.number]) for crossing in segment.taken]
        passed = self.lockstep.forward(segment.graph, like, inputs, states, stagePass.isCompiled, stagePass.isAsked)
        for unit, (grain, _, _) in enumerate(self.units):
            for state in held:
                state.materialize()[...] = states[grain][id(state)]
            self.handOn(stage, unit, passed.outputs(grain))
            ended(stage, unit, passed.outputs(grain))
        return passed

    def backwardTogether(self, stage: int, passed: LockedPass, learnt: Any) -> None:
        """Run a stage backward for all microbatches."""
        stagePass, left = self.passes[stage], self.segments[stage].left
        for unit in range(len(self.units)):
            self.expect(StageMove(False, stage, unit))
        isReached = stage == self.final or any(map(self.flows, left))
        if isReached and (stagePass.isAsked or any(param.trainable for param in stagePass.params)):
            seeds = {grain: self.seeds(stage, unit) for unit, (grain, _, _) in enumerate(self.units)}
            results = self.lockstep.backward(passed, seeds)
        else:
            nothing = [None] * len(passed.steps.inputs), list[Any]()
            results = dict.fromkeys(passed.values, nothing)
        for unit, (grain, _, _) in enumerate(self.units):
            inputs, params = results[grain]
            grads = {id(param): grad for param, grad in params}
            ofParams = [grads.get(id(param)) for param in stagePass.params]
            learnt(stage, unit, self.handBack(stage, unit, inputs, ofParams))

    def shapesOf(self, arrays: list[Any]) -> dict[int, tuple[Any, Any]]:
        with alone(self.graph):
            return super().shapesOf(arrays)


@contextmanager
def alone(graph: Graph) -> Iterator[None]:
    """Let `synchronized` modules accept the shapes of a single grain inside the block, even of one value."""
    norms = [module for module in graph.modules().values() if isSynchronized(module)]
    for norm in norms:
        vars(norm)["isTraining"] = False  # bypasses __setattr__, which would recompile programs
    try:
        yield
    finally:
        for norm in norms:
            vars(norm)["isTraining"] = True
