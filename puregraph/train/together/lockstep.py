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

MOST = 32  # shapes of grains for which programs are kept


class GrainPass(NamedTuple):
    """What became of a grain: the graph's outputs, and each parameter with its gradient, or None."""

    outputs: list[Any]
    grads: list[tuple[Any, Any]]


class LockStep:
    """Runs a graph rule by rule, each for all grains of this process, before the next one; or compiled, in pieces
    between the modules that are `synchronized`.

    Such a module has rules for all grains, `updateTogether` and `gradTogether`, which add up over those of other
    processes as well. The values of all grains of this process are kept until the gradients are there. `weights` are
    those of which each process has pieces, if there are such.
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
        steps = graph.steps(len(smallest))
        self.running = list(given)
        passes: dict[int, list[Any]] = {}
        for grain, data in given.items():
            values = passes[grain] = [None] * steps.count
            for number, x in zip(steps.inputs, data, strict=True):
                values[number] = x
            for number, module, name in steps.params:
                stored = getattr(module, name)
                if stored is not None:
                    values[number] = states[grain].get(id(stored), stored.materialize())
        if self.isCompiled and self.takesAlone(graph, smallest):
            pieces = {grain: self.piecesFor(graph, data) for grain, data in given.items()}
            every = next(iter(pieces.values())) if pieces else self.piecesFor(graph, smallest)
            return self.runPieces(every, pieces, passes, states, shares)
        self.takeSteps(steps, passes)
        back = graph.backwardGraph(False, True, steps)
        inner = back.steps()
        backs: dict[int, list[Any]] = {}
        for grain, values in passes.items():
            cost = values[steps.outputs[0]]
            seeds = [np.full_like(cost, shares[grain]), *[None] * (len(steps.outputs) - 1)]
            own = backs[grain] = [None] * inner.count
            for number, x in zip(inner.inputs, [*seeds, *[values[n] for n in back.numbers]], strict=True):
                own[number] = x
        self.takeSteps(inner, backs)
        return {g: GrainPass([passes[g][n] for n in steps.outputs], back.found(backs[g])[1]) for g in passes}

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

    def runPieces(
        self,
        every: GrainPieces,
        found: dict[int, GrainPieces],
        passes: dict[int, list[Any]],
        states: dict[int, Any],
        shares: dict[int, float],
    ) -> dict[int, GrainPass]:
        """The same with a program for each piece of a pass; `every` has those of any grain, where there is none too."""
        outputs = every.whole.steps.outputs
        self.takePieces(every, 0, found, passes, states)
        backs = {}
        for grain, each in found.items():
            cost = passes[grain][outputs[0]]
            seeds = [np.full_like(cost, shares[grain]), *[None] * (len(outputs) - 1)]
            backs[grain] = each.valuesFor(seeds, passes[grain])
        self.takePieces(every, 1, found, backs, states)
        grads = {grain: each.whole.back.found(backs[grain])[1] for grain, each in found.items()}
        return {grain: GrainPass([passes[grain][n] for n in outputs], grads[grain]) for grain in found}

    def takePieces(
        self,
        every: GrainPieces,
        which: int,
        found: dict[int, GrainPieces],
        passes: dict[int, list[Any]],
        states: dict[int, Any],
    ) -> None:
        """All pieces of one of both passes, for all grains; `every` has those of any, where this process has none."""
        for index, piece in enumerate(every.passes[which]):
            step = every.metIn(piece)
            if step is not None:
                self.takeStep(step, passes)
            else:
                for grain, each in found.items():
                    each.run(each.passes[which][index], passes[grain], states[grain])

    def takesAlone(self, graph: Graph, arrays: list[Any]) -> bool:
        """Whether no rule refuses the shapes of a grain by itself, as a norm of one value would: all processes find
        the same, and run the batch alike."""
        key = keyOf(graph, arrays)
        if key not in self.alone:
            inferred = graph.infer([x.shape for x in arrays], dtypes=[x.dtype for x in arrays])
            self.alone[key] = not any(row.fault for row in inferred.rows)
        return self.alone[key]

    def piecesFor(self, graph: Graph, arrays: list[Any]) -> GrainPieces:
        """The pieces for a grain of such arrays."""
        key = keyOf(graph, arrays)
        if key not in self.pieces:
            if len(self.pieces) >= MOST:
                self.pieces.popitem(last=False)
            self.pieces[key] = GrainPieces(graph, arrays, isMet, self.weights)
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


def isSynchronized(module: Any) -> bool:
    """Whether a module takes sums over all grains, in its mode."""
    return getattr(module, "synchronized", False) and module.train
