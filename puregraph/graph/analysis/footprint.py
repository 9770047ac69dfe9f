"""Footprint: the bytes, parameters and operations of a graph and of a training step, from its shapes alone."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from puregraph.core.base.dtype import isFloating
from puregraph.core.dim import Size, termsOf
from puregraph.core.errors import ArgumentError, AutoDiffException, Fault, GraphError
from puregraph.core.late import Late
from puregraph.core.shape import bind, product, symbols
from puregraph.graph import Graph
from puregraph.graph.analysis.liveness import Liveness
from puregraph.graph.backward import inputNames, readsOf
from puregraph.graph.inference import StepShapes, hiddenTypes
from puregraph.graph.lookup import sourceNames
from puregraph.graph.steps import GraphStep


class FootprintLine(NamedTuple):
    """One node: the sources of its inputs, the shapes of its outputs and input gradients, and its cost."""

    path: str
    module: Any
    source: list[str]
    shapes: list[Any] | None
    gradShapes: list[Any]
    params: int
    nbytes: Size
    flops: Size
    fault: Fault | None
    dtypes: list[Any]


class Footprint:
    """Memory and operations of a graph at given input shapes. Nothing is allocated; symbols stay symbols in sizes.

    `lines`    one per node, in order; `shapes` is None after a fault here or upstream, and in `gradShapes` None stands
               for an input without a gradient
    `faults`   the nodes that do not fit
    `params`   number of trained elements; `paramBytes` their bytes, `stateBytes` the bytes of running statistics
    `flops`    operations of one forward pass
    `batch`    the only symbol, if every size is proportional to it or constant; else None

    `kept`, `peak` and `eager` measure a training step, and take a size for each symbol: `footprint.peak(N=32)`. A
    step is a forward pass and a backward pass for the parameters (for the inputs, if there are no parameters), in the
    modules' current modes: in evalMode no parameter has a gradient. They are None if there are faults or a
    gradient rule is missing.

    Raises    GraphError for an object that is no Graph; ShapeError for an invalid shape
    """

    _repr_html_ = Late("puregraph.draw.notebook", "footprintHtml")
    __str__: Any = Late("puregraph.graph.analysis.summary", "render")

    def __init__(self, graph: Graph, *shapes: Any):
        if not isinstance(graph, Graph):
            raise GraphError(f"wanted a Graph, got {graph!r:.60}; put modules into a Sequential")
        self.graph = graph
        self.rows = graph.inferShapes(*shapes)
        self.inshapes, self.outshapes = graph.inferredShapes or [], graph.outshapes
        self.steps = graph.steps(len(self.inshapes))
        self.dtype = np.dtype(graph.dtype or np.float32)
        self.shapes, self.sizes = self.measure()
        self.params = sum(p.size for p in graph.params.values())
        self.paramBytes = sum(p.nbytes for p in graph.params.values())
        self.stateBytes = sum(s.nbytes for s in graph.states.values())
        counted: set[int] = set()
        self.lines = [self.lineFrom(row, counted) for row in self.rows]
        self.faults = [line.fault for line in self.lines if line.fault]
        self.flops: Size = sum(line.flops for line in self.lines)
        self.symbols = tuple(dict.fromkeys(s for shape in self.inshapes for s in symbols(shape)))
        self.batch = self.batchFrom()
        self.liveness = None if self.faults else self.livenessFrom()

    @property
    def wantsTrainMode(self) -> bool:
        """True if no module with parameters trains, but some that are not frozen would in trainMode."""
        holders = [step.module for step in self.steps.items if step.module.params]
        return not any(module.isTraining for module in holders) and not all(module.isFrozen for module in holders)

    @property
    def givesInputGrads(self) -> bool:
        """True if a backward pass also computes input gradients."""
        return not self.graph.params

    # A training step --------------------------------------------------------------------------------------------------

    def __repr__(self) -> str:
        return f"<Footprint of {self.graph.title()}: {self.params:,} parameters, {len(self.faults)} faults>"

    def kept(self, **sizes: int) -> int | None:
        """Bytes kept from forward to backward, because a gradient rule reads them; without parameters."""
        return None if self.liveness is None else self.liveness.kept(sizes)

    def peak(self, **sizes: int) -> int | None:
        """The most bytes at one time, if every value is freed after its last use.

        Parameters, states, values and gradients count; temporary memory of rules and optimizer state do not.
        """
        return None if self.liveness is None else self.paramBytes + self.stateBytes + self.liveness.peak(sizes)

    def eager(self, **sizes: int) -> int | None:
        """Bytes after an eager step of a `Graph`, which frees nothing: every node's `data` and `grad` can be read."""
        return None if self.liveness is None else self.paramBytes + self.stateBytes + self.liveness.heldBytes(sizes)

    def seconds(self, flops: float, bandwidth: float, isTraining: bool = True, **sizes: int) -> float | None:
        """The estimated time of a compiled step on a machine of `flops` operations and `bandwidth` bytes a second.

        Sum over nodes, except views, of passes max(operations / flops, bytes / bandwidth), where the bytes are those of
        a node's inputs, weights and outputs, or only of its outputs if all inputs are indices. The forward pass counts
        once; a training step counts a node once more for the gradients of its inputs, and again for those of its
        weights. The optimizer is not included. None after a fault.

        Source    Williams, Waterman, Patterson 2009, Roofline: an insightful visual performance model
        Raises    ArgumentError unless both rates are above 0; ShapeError if a size of a symbol is missing
        """
        for name, rate in (("flops", flops), ("bandwidth", bandwidth)):
            if not rate > 0:
                raise ArgumentError(f"{name}: wanted a rate above 0, got {rate:g}")
        if self.faults:
            return None
        total = 0.0
        for (step, *_), line in zip(self.rows, self.lines, strict=True):
            isLookup = step.inputs == len(line.module.indices) > 0
            read = () if isLookup else step.args
            numbers = {n for n in (*read, *step.outs) if n is not None and n in self.sizes}
            operations, *moved = bind((line.flops, *[self.sizes[n] for n in numbers]), sizes, complete=True)
            passes = 1 + isTraining * (1 + bool(line.module.params))
            total += 0 if line.module.views else passes * max(operations / flops, sum(moved) / bandwidth)
        return total

    def attention(self, **sizes: int) -> tuple[int, int] | None:
        """Extra cuDNN workspace bytes of the largest attention gradient on a GPU: deterministic (the default up to
        256 MB) and nondeterministic; None without attention. PUREGRAPH_DETERMINISTIC selects one."""
        workspaces: list[Any] = []
        for step, inshapes, shapes, *_ in self.rows:
            make = getattr(step.module, "workspaceFrom", None)
            if make is not None and shapes is not None:
                workspaces.append(tuple(make(*[s if s is None else bind(s, sizes, complete=True) for s in inshapes])))
        return max(workspaces, default=None)

    def livenessFrom(self) -> Liveness | None:
        """Walk through a training step. Values of the backward graph are numbered below 0."""
        try:
            back = self.graph.backwardGraph(updGrad=self.givesInputGrads, steps=self.steps)
        except AutoDiffException:
            return None
        lives = Liveness()
        self.livenessForward(lives)
        self.livenessBackward(lives, back)
        return lives

    def livenessForward(self, lives: Liveness) -> None:
        """Record the forward pass: each value is made at its step, and used by its readers and by the cost."""
        for number in self.steps.inputs:
            lives.make(number, self.sizes[number])
        for step in self.steps.items:
            lives.time += 1
            for number in step.outs:
                lives.make(number, self.sizes[number], step.args[0] if step.module.views else None)
            lives.use(step.args)
        lives.middle = lives.time = lives.time + 1
        lives.use(self.steps.outputs)
        lives.hold(self.sizes)

    def livenessBackward(self, lives: Liveness, back: Any) -> None:
        """Record the backward pass: the cost makes the first gradients; parameter gradients live to the end."""
        steps, outside = back.steps(), [*self.steps.outputs, *back.numbers]
        for i, (inner, number) in enumerate(zip(steps.inputs, outside, strict=True)):
            lives.make(-inner, self.sizes[number], None if i < len(back.seeds) else number)
        for step, _, shapes, *_ in back.inferShapes([self.shapes[n] for n in outside]):
            lives.time += 1
            lives.use(-n for n in readsOf(step))
            for number, shape in zip(step.outs, shapes or [], strict=True):
                nbytes = product(shape) * self.dtype.itemsize
                isSame = gradAliases(step) and nbytes == lives.sizeOf(-step.args[0])
                lives.make(-number, nbytes, -step.args[0] if isSame else None)
            lives.hold(-n for n in shownOf(step))
        lives.time += 1
        lives.use(-n for n in steps.outputs)
        lives.hold(-n for n in steps.outputs)

    # Sizes ------------------------------------------------------------------------------------------------------------

    def measure(self) -> tuple[dict[int, Any], dict[int, Size]]:
        """The shape and the bytes of every known value, by number."""
        shapes: dict[int, Any] = dict(zip(self.steps.inputs, self.inshapes, strict=True))
        dtypes: dict[int, Any] = dict(zip(self.steps.inputs, self.graph.inputTypes(len(self.inshapes)), strict=True))
        for number, module, name in self.steps.params:
            stored = getattr(module, name)
            absent = stored is None  # an omitted parameter has a number, too
            shapes[number], dtypes[number] = ((0,), None) if absent else (stored.shape, stored.dtype)
        for step, inshapes, outshapes, _, outtypes in self.rows:
            dtypes.update(zip(step.visible, outtypes))
            if outshapes is not None:
                shapes.update(zip(step.visible, outshapes, strict=True))
                if step.module.hidden:
                    hidden, inputTypes = step.outs[len(outshapes) :], [dtypes.get(n) for n in step.args[: step.inputs]]
                    shapes.update(zip(hidden, step.module.hiddenShapeFrom(*inshapes), strict=True))
                    dtypes.update(zip(hidden, hiddenTypes(step.module, inputTypes), strict=True))
        sizes = {n: product(shape) * np.dtype(dtypes.get(n) or self.dtype).itemsize for n, shape in shapes.items()}
        self.dtypes = dtypes
        return shapes, sizes

    def lineFrom(self, row: StepShapes, counted: set[int]) -> FootprintLine:
        """The line of a node; a shared parameter counts at its first use."""
        step, inshapes, shapes, fault, dtypes = row
        module = step.module
        counting = [p for p in module.params.values() if id(p) not in counted]
        counted.update(map(id, counting))
        known = shapes is not None
        differentiable = [
            None if module.isDiscrete or name in module.indices else n
            for n, name in zip(step.args, inputNames(module, step.inputs))
        ]
        return FootprintLine(
            step.path,
            module,
            sourceNames(step, self.steps),
            shapes,
            [s if self.hasGrad(n) else None for s, n in zip(inshapes, differentiable)] if known else [],
            sum(p.size for p in counting),
            sum(self.sizes[n] for n in step.outs) if known and not module.views else 0,
            module.flopsFrom(*inshapes) if known else 0,
            fault,
            dtypes,
        )

    def hasGrad(self, number: int | None) -> bool:
        """True if a value has a gradient; integers and booleans have none."""
        return number is not None and isFloating(self.dtypes.get(number))

    def batchFrom(self) -> str | None:
        """Return the only symbol, if every size is proportional to it or independent of it; otherwise None."""
        terms = {(), self.symbols}
        linear = all(terms.issuperset(termsOf(size)) for size in (*self.sizes.values(), self.flops))
        return self.symbols[0] if len(self.symbols) == 1 and linear else None


def gradAliases(step: GraphStep) -> bool:
    """True if a step of a backward graph returns its incoming gradient itself when the shapes are equal."""
    of = getattr(step.module, "of", None)
    return of is not None and (of.views or of.gradAliases)


def shownOf(step: GraphStep) -> list[int]:
    """The gradients that a backward pass stores on a forward node: its input gradients."""
    module = step.module
    if not hasattr(module, "of"):
        return []
    inputs = len(module.needed) - len(module.of.ruleNames)
    return [n for n, argument in zip(step.outs, module.wanted) if argument < inputs]
