"""Lockstep: forward and backward of all grains of a batch at once, where modules take sums over all of them."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, NamedTuple

import numpy as np

from puregraph.core import device
from puregraph.core.errors import addLocation, show
from puregraph.distributed.collectives.grains import Grains
from puregraph.distributed.collectives.treesum import TreeSum
from puregraph.distributed.dataparallel.grainpieces import GrainPieces
from puregraph.distributed.dataparallel.lockedpass import LockedPass
from puregraph.distributed.worlds.world import World
from puregraph.graph import Graph
from puregraph.graph.backward import Gradient
from puregraph.graph.steps import Steps, apart

MAX_KEPT_SHAPES = 32  # shapes of grains for which programs are kept


class GrainPass(NamedTuple):
    """The results of a grain: the graph's outputs, and each parameter with its gradient, or None."""

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
        inputs: dict[int, list[Any]],
        states: dict[int, Any],
        shares: dict[int, float],
    ) -> dict[int, GrainPass]:
        """Run grains forward and backward in lockstep, from their arrays on the device.

        `smallest`  arrays like those of the smallest grain on any rank
        `states`    arrays of each grain in place of States, by the ids of these; rules write to them
        `shares`    the gradient of each grain's cost
        """
        isCompiled = self.isCompiled and self.takesAlone(graph, smallest)
        passed = self.forward(graph, smallest, inputs, states, isCompiled)
        seeds = {}
        for grain in inputs:
            cost, *others = passed.outputs(grain)
            seeds[grain] = [np.full_like(cost, shares[grain]), *[None] * len(others)]
        results = self.backward(passed, seeds)
        return {grain: GrainPass(passed.outputs(grain), grads) for grain, (_, grads) in results.items()}

    def forward(
        self,
        graph: Graph,
        smallest: list[Any],
        inputs: dict[int, list[Any]],
        states: dict[int, Any],
        isCompiled: bool,
        isAsked: bool = False,
    ) -> LockedPass:
        """Run forward alone; with `isAsked`, backward will also compute the gradients of the graph's inputs."""
        steps = graph.steps(len(smallest))
        self.running = list(inputs)
        every, pieces = None, dict[int, GrainPieces]()
        if isCompiled:
            pieces = {grain: self.piecesFor(graph, data, isAsked) for grain, data in inputs.items()}
            every = next(iter(pieces.values())) if pieces else self.piecesFor(graph, smallest, isAsked)
        values: dict[int, list[Any]] = {}
        for grain, data in inputs.items():
            grainValues = values[grain] = [None] * steps.count
            for number, x in zip(steps.inputs, data, strict=True):
                grainValues[number] = x
            for number, module, name in steps.params:
                stored = getattr(module, name)
                if stored is not None and (every is None or not every.reads(number, stored)):
                    grainValues[number] = states[grain].get(id(stored), stored.materialize())
        passed = LockedPass(graph, steps, values, states, isAsked, every, pieces)
        if every is None:
            self.takeSteps(steps, values)
        else:
            self.takePieces(passed, every.passes[0], 0, values)
        return passed

    def backward(self, passed: LockedPass, seeds: dict[int, list[Any]]) -> dict[int, tuple[list[Any], list[Any]]]:
        """Run backward from output gradients. Returns by grain the gradients of inputs, and of each parameter."""
        self.running = list(passed.values)
        if passed.every is not None:
            backs = {grain: p.valuesFor(seeds[grain], passed.values[grain]) for grain, p in passed.pieces.items()}
            self.takePieces(passed, passed.every.passes[1], 1, backs)
            return {grain: p.partitioned.back.collected(backs[grain]) for grain, p in passed.pieces.items()}
        back = passed.graph.backwardGraph(passed.isAsked, True, passed.steps)
        inner, backs = back.steps(), {}
        for grain, values in passed.values.items():
            slots = backs[grain] = [None] * inner.count
            for number, x in zip(inner.inputs, [*seeds[grain], *[values[n] for n in back.numbers]], strict=True):
                slots[number] = x
        self.takeSteps(inner, backs)
        return {grain: back.collected(values) for grain, values in backs.items()}

    def takeSteps(self, steps: Steps, passes: dict[int, list[Any]]) -> None:
        """Run a list of steps, each for all grains before the next."""
        for step in steps.items:
            self.takeStep(step, passes)

    def takeStep(self, step: Any, passes: dict[int, list[Any]]) -> None:
        """Run a step for all grains."""
        arguments = [[values[n] for n in step.args] for values in passes.values()]
        try:
            results = self.rule(step, arguments)
        except Exception as error:
            shapes = [show([getattr(x, "shape", None) for x in inputs]) for inputs in arguments[:1]]
            addLocation(error, f"at '{step.path}' ({step.label}): given {', '.join(shapes)}")
            raise
        for values, result in zip(passes.values(), results):
            for number, y in zip(step.outs, result, strict=True):
                values[number] = y

    # Compiled -------------------------------------------------------------------------------------------------------

    def takePieces(self, passed: LockedPass, every: list[Any], which: int, values: dict[int, list[Any]]) -> None:
        """Run all pieces of the forward (0) or backward (1) pass for all grains."""
        for index, piece in enumerate(every):
            step = metIn(piece)
            if step is not None:
                self.takeStep(step, values)
            else:
                for grain, pieces in passed.pieces.items():
                    pieces.run(pieces.passes[which][index], values[grain], passed.states[grain])

    def takesAlone(self, graph: Graph, arrays: list[Any]) -> bool:
        """True if every rule accepts the shapes of a single grain, unlike a norm of one value. All ranks get the same
        answer, and run the batch alike."""
        key = keyOf(graph, arrays)
        if key not in self.alone:
            inferred = graph.infer([x.shape for x in arrays], dtypes=[x.dtype for x in arrays])
            self.alone[key] = not any(row.fault for row in inferred.rows)
        return self.alone[key]

    def piecesFor(self, graph: Graph, arrays: list[Any], isAsked: bool) -> GrainPieces:
        """Return the GrainPieces for arrays of these shapes and dtypes, made once for each."""
        key = keyOf(graph, arrays)
        if key not in self.pieces:
            if len(self.pieces) >= MAX_KEPT_SHAPES:
                self.pieces.popitem(last=False)
            self.pieces[key] = GrainPieces(graph, arrays, isMet, isAsked, self.weights)
        self.pieces.move_to_end(key)
        self.pieces[key].refresh()
        return self.pieces[key]

    def rule(self, step: Any, arguments: list[list[Any]]) -> list[tuple]:
        """Run a rule for every grain, and return the results."""
        module: Any = step.module
        if isSynchronized(module):
            return module.updateTogether(arguments, self.total)
        of: Any = getattr(module, "of", None)
        if isinstance(module, Gradient) and isSynchronized(of):
            complete = [module.complete(tuple(inputs)) for inputs in arguments]
            gradients = of.gradTogether(complete, module.needed, self.total)
            return [tuple([grads[i] for i in module.wanted]) for grads in gradients]
        results = [step.call(*inputs) for inputs in arguments]
        whole = [result if type(result) is tuple else (result,) for result in results]
        count = len(step.stored)
        if not count:
            return whole
        return [apart(result, inputs[len(inputs) - count :]) for result, inputs in zip(whole, arguments)]

    def total(self, sums: list[Any], length: int) -> Any:
        """Sum arrays over all grains of all ranks, as a binary tree; `sums` has this rank's grains."""
        if length not in self.trees:
            self.trees[length] = TreeSum(self.world, self.grains, length, np.dtype(np.float64))
        tree, known = self.trees[length], dict(zip(self.running, sums))

        def leaf(grain: int, into: np.ndarray) -> None:
            into[...] = device.toHost(known[grain]) if grain in known else 0

        added = tree.reduce(tree.own(leaf)).copy()
        return device.toDevice(added) if sums and device.isDeviceArray(sums[0]) else added


def keyOf(graph: Graph, arrays: list[Any]) -> tuple[Any, ...]:
    """Return the key of a graph's pieces: its steps, and the shapes and dtypes of its inputs."""
    return graph.steps(len(arrays)), *[(x.shape, x.dtype) for x in arrays]


def isMet(step: Any) -> bool:
    """True if a step sums over all grains, in forward or backward."""
    return isSynchronized(step.module) or isSynchronized(getattr(step.module, "of", None))


def metIn(piece: Any) -> Any:
    """Return the step of a piece that sums over all grains; None if there is none."""
    step = piece.partition.items[0]
    return step if piece.partition.isOpen and isMet(step) else None


def isSynchronized(module: Any) -> bool:
    """True if a module sums over all grains in its current mode."""
    return getattr(module, "synchronized", False) and module.isTraining
