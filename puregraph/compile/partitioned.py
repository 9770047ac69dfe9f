"""Partitioned: run a graph whose sizes depend on data in pieces, and compile the pieces between the open steps."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from numpy.typing import DTypeLike

from puregraph.compile.partition import Partition, entering, openSteps, partition, withKnown
from puregraph.compile.report.partitiontable import partitionTable
from puregraph.compile.runtime.buffers import Workspace
from puregraph.compile.subgraph import Subgraph
from puregraph.compile.trace.steprequest import StepRequest
from puregraph.compile.updater import Updater
from puregraph.core.shape import bind
from puregraph.graph import Graph
from puregraph.graph.backward import readsOf
from puregraph.graph.datachecks import checkResults
from puregraph.graph.inference import StepShapes, inferShapes
from puregraph.graph.lastpass import storeGrads
from puregraph.graph.steps import GraphStep, Steps, spread

if TYPE_CHECKING:
    from puregraph.core.param import Param
    from puregraph.core.protocols import AnyArray
    from puregraph.core.shape import Shape
    from puregraph.graph.backward import BackwardGraph
    from puregraph.optimizers.optimizer import Optimizer


class PartitionedGraph:
    """Runs the passes of a graph in pieces, each compiled for the sizes that occur.

    `graph`, `rows`  the graph, and the inferred shapes of its steps
    `back`           its backward graph, or None; `forward`, `backwards`: the pieces of both
    `values`         the values of the last forward pass that are still read, by number; `sizes`: its symbols' sizes
    `outlined`       shape and dtype of values that the backward graph needs only the shape of
    `isAlone`        selects steps that are separate pieces, besides those with a new size
    `weights`        sharded weights, which compiled pieces gather when they read them
    `backOf`         makes the backward graph; default: that of the parameters that are trained
    """

    def __init__(
        self,
        graph: Graph,
        shapes: Sequence[Shape],
        dtypes: Sequence[DTypeLike],
        request: StepRequest,
        isAlone: Callable[[GraphStep], bool] | None = None,
        backOf: Callable[[], BackwardGraph] | None = None,
    ):
        self.graph, self.request, self.weights, self.backOf = graph, request, request.weights, backOf
        self.steps = graph.steps(len(shapes))
        self.rows = graph.infer(list(shapes), dtypes=list(dtypes)).rows
        self.isOpen = openSteps(self.rows)
        if isAlone is not None:
            self.isOpen.update(filter(isAlone, self.steps.items))
        self.shapes = dict(zip(self.steps.inputs, shapes))
        stored(self.steps, self.weights)  # make arrays now: later they would count as a change
        self.workspace = Workspace()
        self.back: Any = None
        self.grad: Any = None
        self.updaters: list[Updater] = []
        self.values: list[Any] = []
        self.sizes: dict[str, int] = {}
        self.update(self.backwardGraph(), True)

    def backwardGraph(self) -> BackwardGraph | None:
        """The backward graph of this step, by default for the parameters that are currently trained."""
        if self.request.grads is None:
            return None
        if self.backOf is not None:
            return self.backOf()
        return self.graph.backwardGraph(self.request.updGrad, True, self.steps)

    def update(self, back: BackwardGraph | None, isFirst: bool = False) -> None:
        """Build the pieces again if the backward graph has changed."""
        if back is self.back and not isFirst:
            return
        self.back, self.outlined, self.backwards = back, {}, []
        wanted = set(self.steps.outputs)
        if back is not None:
            inner = back.steps()
            of = dict(zip(inner.inputs[len(self.steps.outputs) :], back.numbers, strict=True))
            read = {of.get(n) for step in inner.items for n in readsOf(step)}
            known = {
                n: (shape, dtype)
                for row in self.rows
                for n, shape, dtype in zip(row.step.visible, row.shapes or (), row.dtypes)
                if dtype is not None
            }
            self.outlined = {n: known[n] for n in back.numbers if n not in read and n in known}
            wanted |= {n for n in back.numbers if n not in self.outlined}
            rows = self.backRows(inner, of)
            self.backwards = self.pieces(self.withWeights(inner, of), *rows, set(inner.outputs))
        self.forward = self.pieces(self.steps, self.rows, self.isOpen, wanted)

    def backRows(self, inner: Steps, of: dict[int, int]) -> tuple[list[StepShapes], set[GraphStep]]:
        """The inferred shapes of the backward steps, and the gradient steps of open steps."""
        shapes: dict[int, Any] = dict(self.shapes)
        for row in self.rows:
            shapes.update(zip(row.step.visible, row.shapes or ()))
        for n, module, name in self.steps.params:
            shapes[n] = getattr(getattr(module, name), "shape", ())
        seeds = [shapes[n] for n in self.steps.outputs]
        inputShapes = [tuple(shape) for shape in (*seeds, *[shapes.get(n, ()) for n in of.values()])]
        opens = {self.back.gradientNodes[step] for step in self.isOpen if step in self.back.gradientNodes}
        return inferShapes(inner, inputShapes).rows, {step for step in inner.items if step.node in opens}

    def withWeights(self, inner: Steps, of: dict[int, int]) -> Steps:
        """The backward steps, which read sharded weights as parameters, not as values of the forward pass."""
        held = {n: (module, name) for n, module, name in self.steps.params if self.has(getattr(module, name))}
        backSteps = copy.copy(inner)
        backSteps.params = [*inner.params, *[(n, *held[number]) for n, number in of.items() if number in held]]
        return backSteps

    def has(self, param: Param) -> bool:
        """True if a parameter is sharded, so that compiled pieces gather it."""
        return self.weights is not None and self.weights.has(param)

    def pieces(self, steps: Steps, rows: list[StepShapes], isOpen: set[GraphStep], wanted: set[int]) -> list[Subgraph]:
        """The pieces of some steps; their outputs are the `wanted` values and those that other pieces read."""
        parts: list[tuple[Partition, list[GraphStep]]] = [
            (part, withKnown(part, rows, isOpen)) for part in partition(rows, isOpen, steps)
        ]
        inputs = [entering(steps, items) for _, items in parts]
        needed = wanted.union(*inputs)
        pieces = []
        for (part, items), read in zip(parts, inputs):
            outputs = [n for step in part.items for n in step.outs if n in needed]
            if outputs or any(step.stored for step in part.items):
                pieces.append(Subgraph(self.graph, steps, part, items, read, outputs, self.workspace, self.weights))
        return pieces

    # As a Graph -------------------------------------------------------------------------------------------------------

    def __call__(self, data: list[Any]) -> Any:
        """The outputs of the graph for its inputs.

        Raises    any error of the graph; PuregraphError if a data-dependent size has two values
        """
        values, self.sizes = self.forwardPass(data)
        self.values = [] if self.back is None else values
        outputs = [values[n] for n in self.steps.outputs]
        return outputs[0] if len(outputs) == 1 else outputs

    def forwardPass(self, data: list[Any]) -> tuple[list[Any], dict[str, int]]:
        """Run a forward pass, and return its values by number and the sizes of symbols.

        Raises    as `__call__`
        """
        self.update(self.backwardGraph())
        self.graph.checkData(data, self.steps)
        values = run(self.forward, self.steps, data, self.weights)
        return values, checkResults(self.rows, values, isPartial=True)

    def gradients(
        self, grads: list[Any], values: list[Any], sizes: dict[str, int]
    ) -> tuple[list[Any], list[tuple[Param, Any]]]:
        """The gradients of the inputs, and (parameter, gradient) pairs, of a forward pass."""
        return self.back.gradients(grads, self.withOutlines(values, sizes), False, self.runBackward)

    def backward(self, grad: Any, updGrad: bool = True, scale: float = 1.0, momentum: float = 0.0) -> None:
        """Back-propagate through the last pass, like `Graph.backward`."""
        grads = list(grad) if len(self.steps.outputs) > 1 else [grad]
        inputs, paramGrads = self.gradients(grads, self.values, self.sizes)
        inputs = storeGrads(grads, inputs, paramGrads, scale, momentum)
        self.grad = None if not updGrad else inputs[0] if len(inputs) == 1 else inputs
        self.values = []

    def withOutlines(self, values: list[Any], sizes: dict[str, int]) -> list[Any]:
        """The values of a forward pass, with zeros for values needed only for their shape."""
        filled, like = list(values), values[self.steps.inputs[0]]
        for n, (shape, dtype) in self.outlined.items():
            filled[n] = spread(like, bind(shape, sizes), dtype)
        return filled

    def runBackward(self, data: list[AnyArray], outside: int) -> list[Any]:
        """The outputs of all backward pieces, by number."""
        return run(self.backwards, self.back.steps(), data)

    def applyUpdate(self, optimizer: Optimizer) -> None:
        """Update the parameters with an optimizer, in a compiled step."""
        if not self.updaters:
            self.updaters = [Updater(self.graph, optimizer)]
        self.updaters[0].run()

    @property
    def bytes(self) -> int:
        """The largest arena of a piece so far: pieces share one workspace."""
        programs = [p for piece in [*self.forward, *self.backwards] for p in piece.compiled]
        return max([p.bytes for p in programs], default=0)

    def table(self) -> str:
        """The pieces, and the steps of each program."""
        return partitionTable([*self.forward, *self.backwards], self.updaters)


def run(pieces: Sequence[Subgraph], steps: Steps, data: list[AnyArray], weights: Any = None) -> list[Any]:
    """Run the pieces of some steps; returns their outputs by number, without `weights`."""
    values: list[Any] = [None] * steps.count
    for number, x in zip(steps.inputs, data, strict=True):
        values[number] = x
    for number, array in stored(steps, weights).items():
        values[number] = array
    for piece in pieces:
        piece(values)
    return values


def stored(steps: Steps, weights: Any = None) -> dict[int, AnyArray]:
    """Arrays of parameters and states by value number, except sharded ones, which `weights` holds."""
    held = {n: getattr(module, name) for n, module, name in steps.params}
    isLeft = [param is None or weights is not None and weights.has(param) for param in held.values()]
    return {n: param.materialize() for (n, param), left in zip(held.items(), isLeft) if not left}
