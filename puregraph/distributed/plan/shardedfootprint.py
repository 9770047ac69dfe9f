"""Sharded footprints: the bytes of a step, or of a stage of it, with sharded gradients and weights."""

from __future__ import annotations

from typing import Any

from puregraph.compile.gradientbuckets import GradientBuckets
from puregraph.core.shape import product
from puregraph.distributed.collectives.treesum import UNCUT_ELEMENTS
from puregraph.graph.analysis.footprint import Footprint, gradAliases, shownOf
from puregraph.graph.analysis.liveness import Liveness
from puregraph.graph.backward import readsOf


class ShardedFootprint(Footprint):
    """The Footprint of one of several processes.

    A gradient is freed when its bucket is complete. The `parted` weights, which are sharded, take memory from their
    first reader to their last, once in forward and once in backward.

    `reads`  the parameters that a step reads from other processes; listed twice if both passes read them
    """

    def __init__(self, graph: Any, shapes: list[Any], buckets: GradientBuckets, parted: list[Any]):
        self.buckets = buckets
        self.parted = {id(param): param for param in parted}
        self.reads: list[Any] = []
        super().__init__(graph, *shapes)

    def livenessForward(self, lives: Liveness) -> None:
        held = {n: p for n, module, name in self.steps.params if id(p := getattr(module, name)) in self.parted}
        self.weights = held
        for number in self.steps.inputs:
            lives.make(number, self.sizes[number])
        made: dict[int, int] = {}
        for step in self.steps.items:
            lives.time += 1
            for number in step.args:
                if number in held:
                    self.read(lives, number, held[number], made)
            for number in step.outs:
                lives.make(number, self.sizes[number], step.args[0] if step.module.views else None)
            lives.use(step.args)
        lives.middle = lives.time = lives.time + 1
        lives.use(self.steps.outputs)

    def read(self, lives: Liveness, number: int, param: Any, made: dict[int, int]) -> None:
        """Allocate a weight at its first read; other nodes, and other value numbers, share the memory."""
        lives.make(number, param.nbytes, made.get(id(param)))
        if id(param) not in made:
            made[id(param)] = number
            self.reads.append(param)

    def livenessBackward(self, lives: Liveness, back: Any) -> None:
        steps, outside = back.steps(), [*self.steps.outputs, *back.numbers]
        held: dict[int, Any] = {}
        for i, (inner, number) in enumerate(zip(steps.inputs, outside, strict=True)):
            if number in self.weights:
                held[-inner] = self.weights[number]
            else:
                lives.make(-inner, self.sizes[number], None if i < len(back.seeds) else number)
        waiting = self.gradients(steps, back)
        made: dict[int, int] = {}
        for step, _, shapes, *_ in back.inferShapes([self.shapes[n] for n in outside]):
            lives.time += 1
            taken = [-n for n in readsOf(step)]
            for number in taken if shownOf(step) else ():  # a backward step reads weights for the gradients of inputs
                if number in held and number not in lives.owner:
                    self.read(lives, number, held[number], made)
            lives.use(taken)
            for number, shape in zip(step.outs, shapes or [], strict=True):
                nbytes = product(shape) * self.dtype.itemsize
                isSame = gradAliases(step) and nbytes == lives.sizeOf(-step.args[0])
                lives.make(-number, nbytes, -step.args[0] if isSame else None)
            while waiting and all(n in lives.owner for n in waiting[0]):
                lives.use(waiting.pop(0))

    def gradients(self, steps: Any, back: Any) -> list[list[int]]:
        """Return by bucket the value numbers of its gradients."""
        edges = [param for param, edge in back.paramGrads if edge is not None]
        results = steps.outputs[len(steps.outputs) - len(edges) :]
        numbers: dict[int, list[int]] = {}
        for param, number in zip(edges, results):
            numbers.setdefault(id(param), []).append(-number)
        params = self.buckets.params
        return [[n for index in group for n in numbers.get(id(params[index]), ())] for group in self.buckets.groups]


class StageFootprint(ShardedFootprint):
    """A ShardedFootprint of a stage, whose gradients have their own memory, as all results of programs.

    `isAsked`   True if the stage before needs gradients
    `made`      bytes of parameter gradients, not part of any other figure
    `passing`   peak bytes of values that are not kept from forward to backward
    `gathered`  additional peak bytes of gathered weights
    """

    def __init__(self, graph: Any, shapes: list[Any], isAsked: bool):
        self.isAsked = isAsked
        self.results: list[int] = []
        self.weightNumbers: list[int] = []
        params = [param for param in graph.params.values() if param.trainable]
        super().__init__(graph, shapes, GradientBuckets(params, 1, UNCUT_ELEMENTS), params)
        self.made = self.without(self.results)
        most = self.mostBytes()
        self.without(self.weightNumbers)
        self.passing = self.mostBytes()
        self.gathered = most - self.passing

    @property
    def givesInputGrads(self) -> bool:
        return self.isAsked

    def gradients(self, steps: Any, back: Any) -> list[list[int]]:
        self.results = [number for group in super().gradients(steps, back) for number in group]
        return [self.results]

    def read(self, lives: Liveness, number: int, param: Any, made: dict[int, int]) -> None:
        super().read(lives, number, param, made)
        self.weightNumbers.append(number)

    def without(self, numbers: list[int]) -> int:
        """Remove the buffers of these values, and return their bytes."""
        lives = self.liveness
        if lives is None:
            return 0
        buffers = {lives.owner[number] for number in numbers if number in lives.owner}
        return sum(int(lives.sizes.pop(number, 0)) for number in buffers)

    def mostBytes(self) -> int:
        """Return the peak bytes of everything but weights, states and kept values."""
        return (self.peak() or 0) - self.paramBytes - self.stateBytes - (self.kept() or 0)
