"""Lockstep: forward and backward of all grains of a batch at once, where modules take sums over all of them."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, NamedTuple

import numpy as np

from puregraph import device
from puregraph.errors import addLocation, show
from puregraph.graph import Graph
from puregraph.graph.backward import Gradient
from puregraph.graph.steps import Steps, apart
from puregraph.many.grains import Grains
from puregraph.many.treesum import TreeSum
from puregraph.many.world import World
from puregraph.train.together.grainpieces import GrainPieces
from puregraph.train.together.lockedpass import LockedPass

MOST = 32  # shapes of grains for which programs are kept


class GrainPass(NamedTuple):
    """What became of a grain: the graph's outputs, and each parameter with its gradient, or None."""

    outputs: list[Any]
    grads: list[tuple[Any, Any]]


class LockStep:
    """Run each operation for all microbatches of this rank before the next (for synchronized modules).

    A synchronized module, such as BatchNorm, has rules for all microbatches, `updateTogether` and `gradTogether`, which
    also sum over the other ranks; compiled, the graph runs in pieces between them. The values of all microbatches are
    kept until their gradients are computed. `weights` holds sharded parameters, if there are any.
    """

    def __init__(self, world: World, grains: Grains, isCompiled: bool = False, weights: Any = None):
        self.world, self.grains, self.isCompiled, self.weights = world, grains, isCompiled, weights
        self.trees: dict[int, TreeSum] = {}
        self.running: list[int] = []
        self.pieces: OrderedDict[Any, GrainPieces] = OrderedDict()  # by shapes and dtypes of a grain's arrays
        self.alone: dict[Any, bool] = {}

    def run(
        self,
        graph: Graph,
        smallest: list[Any],
        given: dict[int, list[Any]],
        states: dict[int, Any],
        shares: dict[int, float],
    ) -> dict[int, GrainPass]:
        """Forward and backward of some grains, by number: of their arrays, on the device.

        `smallest`  arrays like those of the smallest grain of all processes
        `states`    for each grain arrays that stand for States, by the ids of these, and that rules write to
        `shares`    for each grain the gradient of its cost
        """
        isCompiled = self.isCompiled and self.takesAlone(graph, smallest)
        passed = self.forward(graph, smallest, given, states, isCompiled)
        seeds = {}
        for grain in given:
            cost, *others = passed.outputs(grain)
            seeds[grain] = [np.full_like(cost, shares[grain]), *[None] * len(others)]
        found = self.backward(passed, seeds)
        return {grain: GrainPass(passed.outputs(grain), grads) for grain, (_, grads) in found.items()}

    def forward(
        self,
        graph: Graph,
        smallest: list[Any],
        given: dict[int, list[Any]],
        states: dict[int, Any],
        isCompiled: bool,
        isAsked: bool = False,
    ) -> LockedPass:
        """Forward alone; with `isAsked` backward gives the gradients of the graph's inputs as well."""
        steps = graph.steps(len(smallest))
        self.running = list(given)
        every, pieces = None, dict[int, GrainPieces]()
        if isCompiled:
            pieces = {grain: self.piecesFor(graph, data, isAsked) for grain, data in given.items()}
            every = next(iter(pieces.values())) if pieces else self.piecesFor(graph, smallest, isAsked)
        values: dict[int, list[Any]] = {}
        for grain, data in given.items():
            own = values[grain] = [None] * steps.count
            for number, x in zip(steps.inputs, data, strict=True):
                own[number] = x
            for number, module, name in steps.params:
                stored = getattr(module, name)
                if stored is not None and (every is None or not every.reads(number, stored)):
                    own[number] = states[grain].get(id(stored), stored.materialize())
        passed = LockedPass(graph, steps, values, states, isAsked, every, pieces)
        if every is None:
            self.takeSteps(steps, values)
        else:
            self.takePieces(passed, every.passes[0], 0, values)
        return passed

    def backward(self, passed: LockedPass, seeds: dict[int, list[Any]]) -> dict[int, tuple[list[Any], list[Any]]]:
        """By grain the gradients of the graph's inputs, and each parameter with its own, from those of the outputs."""
        self.running = list(passed.values)
        if passed.every is not None:
            backs = {grain: each.valuesFor(seeds[grain], passed.values[grain]) for grain, each in passed.pieces.items()}
            self.takePieces(passed, passed.every.passes[1], 1, backs)
            return {grain: each.whole.back.found(backs[grain]) for grain, each in passed.pieces.items()}
        back = passed.graph.backwardGraph(passed.isAsked, True, passed.steps)
        inner, backs = back.steps(), {}
        for grain, values in passed.values.items():
            own = backs[grain] = [None] * inner.count
            for number, x in zip(inner.inputs, [*seeds[grain], *[values[n] for n in back.numbers]], strict=True):
                own[number] = x
        self.takeSteps(inner, backs)
        return {grain: back.found(values) for grain, values in backs.items()}

    def takeSteps(self, steps: Steps, passes: dict[int, list[Any]]) -> None:
        """All rules of a list of steps, for all grains."""
        for step in steps.items:
            self.takeStep(step, passes)

    def takeStep(self, step: Any, passes: dict[int, list[Any]]) -> None:
        """A rule for all grains."""
        arguments = [[values[n] for n in step.args] for values in passes.values()]
        try:
            results = self.rule(step, arguments)
        except Exception as error:
            shapes = [show([getattr(x, "shape", None) for x in each]) for each in arguments[:1]]
            addLocation(error, f"at '{step.path}' ({step.label}): given {', '.join(shapes)}")
            raise
        for values, result in zip(passes.values(), results):
            for number, y in zip(step.outs, result, strict=True):
                values[number] = y

    # Compiled -------------------------------------------------------------------------------------------------------

    def takePieces(self, passed: LockedPass, every: list[Any], which: int, values: dict[int, list[Any]]) -> None:
        """All pieces of one of both passes, for all grains; `every` are those of any, where this process has none."""
        for index, piece in enumerate(every):
            step = metIn(piece)
            if step is not None:
                self.takeStep(step, values)
            else:
                for grain, each in passed.pieces.items():
                    each.run(each.passes[which][index], values[grain], passed.states[grain])

    def takesAlone(self, graph: Graph, arrays: list[Any]) -> bool:
        """Whether no rule refuses the shapes of a grain by itself, as a norm of one value would: all processes find
        the same, and run the batch alike."""
        key = keyOf(graph, arrays)
        if key not in self.alone:
            inferred = graph.infer([x.shape for x in arrays], dtypes=[x.dtype for x in arrays])
            self.alone[key] = not any(row.fault for row in inferred.rows)
        return self.alone[key]

    def piecesFor(self, graph: Graph, arrays: list[Any], isAsked: bool) -> GrainPieces:
        """The pieces for a grain of such arrays; a graph is always asked for the same."""
        key = keyOf(graph, arrays)
        if key not in self.pieces:
            if len(self.pieces) >= MOST:
                self.pieces.popitem(last=False)
            self.pieces[key] = GrainPieces(graph, arrays, isMet, isAsked, self.weights)
        self.pieces.move_to_end(key)
        self.pieces[key].refresh()
        return self.pieces[key]

    def rule(self, step: Any, arguments: list[list[Any]]) -> list[tuple]:
        """What a rule gives for each grain."""
        module: Any = step.module
        if isSynchronized(module):
            return module.updateTogether(arguments, self.total)
        of: Any = getattr(module, "of", None)
        if isinstance(module, Gradient) and isSynchronized(of):
            complete = [module.complete(tuple(each)) for each in arguments]
            found = of.gradTogether(complete, module.needed, self.total)
            return [tuple([grads[i] for i in module.wanted]) for grads in found]
        results = [step.call(*each) for each in arguments]
        whole = [result if type(result) is tuple else (result,) for result in results]
        count = len(step.stored)
        return [apart(result, each[len(each) - count :]) for result, each in zip(whole, arguments)] if count else whole

    def total(self, sums: list[Any], length: int) -> Any:
        """Arrays of the grains that are run, added over all grains of all processes as one binary tree."""
        if length not in self.trees:
            self.trees[length] = TreeSum(self.world, self.grains, length, np.dtype(np.float64))
        tree, known = self.trees[length], dict(zip(self.running, sums))

        def leaf(grain: int, into: np.ndarray) -> None:
            into[...] = device.toHost(known[grain]) if grain in known else 0

        found = tree.reduce(tree.own(leaf)).copy()
        return device.toDevice(found) if sums and device.isDeviceArray(sums[0]) else found


def keyOf(graph: Graph, arrays: list[Any]) -> tuple[Any, ...]:
    """What pieces depend on: the steps of a graph, and the shapes and dtypes of its inputs."""
    return graph.steps(len(arrays)), *[(x.shape, x.dtype) for x in arrays]


def isMet(step: Any) -> bool:
    """Whether a step takes sums over all grains, forward or back."""
    return isSynchronized(step.module) or isSynchronized(getattr(step.module, "of", None))


def metIn(piece: Any) -> Any:
    """The step of a piece that takes sums over all grains; None if there is none."""
    step = piece.partition.items[0]
    return step if piece.partition.isOpen and isMet(step) else None


def isSynchronized(module: Any) -> bool:
    """Whether a module takes sums over all grains, in its mode."""
    return getattr(module, "synchronized", False) and module.isTraining
