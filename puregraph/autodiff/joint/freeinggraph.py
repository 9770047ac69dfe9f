"""FreeingGraph: graphs that free each value after its last reader, and that are also called by names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from puregraph.autodiff.joint.remat import CotangentInput, Exposed, Outline, rematerialized
from puregraph.core.accumulate import isArray, shapeOf
from puregraph.core.errors import AutoDiffException, DtypeError, ShapeError, need
from puregraph.core.linkednode import Edge
from puregraph.core.shape import product
from puregraph.core.traversal import weakenReader
from puregraph.graph import Graph
from puregraph.graph.analysis.liveness import Liveness
from puregraph.graph.backward import Gradient, behind, inputNames, readsOf
from puregraph.graph.input import Input
from puregraph.graph.lookup import nearest
from puregraph.graph.module import Module, holdsNode, isFloat
from puregraph.graph.node import Node
from puregraph.graph.steps import ABSENT, GraphStep, Steps

if TYPE_CHECKING:
    from puregraph.core.linkednode import Parents
    from puregraph.core.protocols import AnyArray

WHOLE = np.dtype(np.int64)


class Descriptor(NamedTuple):
    """A value's shape and dtype before the run; None where they depend on the data.

    >>> Descriptor((5, 3), np.dtype("float32"))
    Descriptor(shape=(5, 3), dtype=dtype('float32'))
    """

    shape: tuple | None
    dtype: Any


class FreeingGraph(Graph):
    """A graph whose nodes run in the order in which they were made, and which keeps nothing but its outputs.

    `labels`    the names of its outputs
    `optional`  names of inputs that may be left out, and are then 1: gradients of single numbers
    `grad_names` names of the outputs that are gradients, `required` of the inputs whose gradient is among them
    """

    labels: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    grad_names: tuple[str, ...] = ()
    required: tuple[str, ...] = ()
    accumulate = False

    def __init__(self, name: str | None = None):
        Module.__init__(self, name)
        self.version = 0
        self.made: list[Node] = []
        self.known: set[str] = set()

    # Building ---------------------------------------------------------------------------------------------------------

    def grow(self, module: Module, parents: Parents, name: str) -> Node:
        """Add a node with a unique name."""
        node = Node(module, parents)
        node.rename = self.fresh(name)
        weakenReader(node)
        self.made.append(node)
        return node

    def fresh(self, name: str) -> str:
        """This name, or name_0, name_1, ... if it is taken."""
        again = (f"{name}_{i}" for i in range(len(self.known)))
        free = name if name not in self.known else next(n for n in again if n not in self.known)
        self.known.add(free)
        return free

    def repeat(self, steps: Steps) -> tuple[list[Node], dict[int, Edge]]:
        """Clone all steps of a forward pass. Returns its input nodes, and the edges of its values by number."""
        values: dict[int, Edge] = {n: (self.grow(Input(), None, steps.names[n]), 0) for n in steps.inputs}
        for step in steps.items:
            values |= rematerialized(step, values.__getitem__, self.grow, step.path)
        return [values[n][0] for n in steps.inputs], values

    @property
    def outputNames(self) -> tuple[str, ...]:
        return self.labels

    def order(self) -> list[Node]:
        inside = set(behind(self.outputs))
        return [node for node in self.made if node in inside]

    def warnLeftOut(self) -> None:
        """Give no warning about unused steps: they are expected here."""

    def unfold(self, sizes: list[int]) -> Steps:
        steps = Graph.unfold(self, sizes)
        steps.freeAfterLastUse(readsOf)
        return steps

    # Running ----------------------------------------------------------------------------------------------------------

    def __call__(self, *data: Any, **keywords: Any) -> Any:
        """Run on inputs in order; trailing gradients of scalar outputs may be left out."""
        inputs = list(data[0]) if len(data) == 1 and isinstance(data[0], (list, tuple)) else list(data)
        if keywords or any(map(holdsNode, inputs)):
            return self.node(*data, **keywords)
        names = self.arguments
        lacking = names[len(inputs) :]
        if len(inputs) > len(names) or not set(lacking) <= set(self.optional):
            raise AutoDiffException(
                f"{self.title()}: wanted {len(names)} inputs ({', '.join(names)}), got {len(inputs)}"
            )
        outputs = self.results(inputs + [None] * len(lacking))
        return outputs[0] if len(outputs) == 1 else outputs

    def run(self, **arrays: Any) -> dict[str, Any]:
        """Run on inputs by name; return the outputs by name.

        An array passed under an output's name receives that output: it is overwritten, or added to for a gradient in a
        graph made with `accumulate`. Nothing is written unless every output was computed.

        Raises    AutoDiffException naming a missing input or an unknown name; ShapeError, DtypeError for a buffer that
                  does not fit
        """
        names, made = self.arguments, self.outputNames
        unknown = [name for name in arrays if name not in names and name not in made]
        if unknown:
            near = ", ".join(nearest(unknown[0], [*names, *made]))
            raise AutoDiffException(f"{self.title()} has neither input nor output {unknown[0]!r}; near are {near}")
        lacking = [name for name in names if name not in arrays and name not in self.optional]
        if lacking:
            raise AutoDiffException(f"{self.title()}: {', '.join(lacking)} is missing")
        outputs = dict(zip(made, self.results([arrays.get(name) for name in names])))
        buffers = {name: arrays[name] for name in made if name in arrays and name not in names}
        for name, buffer in buffers.items():
            y = outputs[name]
            need(shapeOf(buffer) == shapeOf(y), f"{name} of shape {shapeOf(y)}", shapeOf(buffer))
            if buffer.dtype != y.dtype:
                raise DtypeError(f"{self.title()}: wanted {name} of {y.dtype}, got {buffer.dtype}")
        for name, buffer in buffers.items():
            if self.accumulate and name in self.grad_names:
                buffer += outputs[name]
            else:
                buffer[...] = outputs[name]
        return outputs | buffers

    def results(self, data: list[Any]) -> list[Any]:
        """Compute all outputs; None in place of an omitted gradient stands for 1."""
        names = self.arguments
        for name, x in zip(names, data):
            if name in self.required and not isFloat(x):
                raise AutoDiffException(
                    f"{self.title()}: {name!r} holds {x.dtype}, and only floating numbers have a gradient; "
                    "leave it out of the inputs to be differentiated, or convert it"
                )
        floats = [x.dtype for x in data if isArray(x) and isFloat(x)]
        dtype = self.dtype or (floats[0] if floats else np.float64)
        like = next((x for x in data if isArray(x)), np.zeros(()))
        data = [oneLike(like, dtype) if x is None else x for x in data]
        steps = self.steps(len(data))
        self.last = None
        self.checkData(data, steps)
        values = steps.run(data)
        outputs = [values[number] for number in steps.outputs]
        return self.ownGradients(data, outputs)

    def ownGradients(self, data: list[AnyArray], outputs: list[AnyArray]) -> list[Any]:
        """Return the outputs, with a copy of each gradient whose array is also an input or another output."""
        others = {id(x) for x in data}
        for i, name in enumerate(self.outputNames):
            if name in self.grad_names:
                if outputs[i] is None:
                    raise AutoDiffException(f"{self.title()}: {name!r} is None: a rule on its path returned None")
                if id(outputs[i]) in others and isArray(outputs[i]):
                    outputs[i] = outputs[i].copy()
            others.add(id(outputs[i]))
        return outputs

    def backward(self, *grad: Any, **options: object) -> None:
        raise AutoDiffException(
            f"{self.title()} frees its values while it runs, so there is nothing to go back through: "
            "make the graph of its gradients with add_backward_pass"
        )

    def __repr__(self) -> str:
        return Graph.__repr__(self)

    # Measuring --------------------------------------------------------------------------------------------------------

    def peak(self, *shapes: Any) -> int:
        """Estimate the peak bytes of a run on inputs of these shapes: values, parameters and states.

        Working memory inside rules is not counted. Without parameters, values are assumed to be float32.

        Raises    ShapeError listing every faulty node
        """
        values, lives = self.described(*shapes), Liveness()
        size = {n: product(shape or ()) * (dtype or WHOLE).itemsize for n, (shape, dtype) in values.items()}
        steps = self.steps(len(shapes))
        for number in steps.inputs:
            lives.make(number, size[number])
        for step in steps.items:
            lives.time += 1
            for number in step.outs:
                lives.make(number, size[number], within(step, size[number], lives))
            lives.use(readsOf(step))
        lives.time += 1
        lives.use([*steps.inputs, *steps.outputs])
        stored = (*self.params.values(), *self.states.values())
        return sum(p.nbytes for p in stored) + lives.peak({})

    def described(self, *shapes: tuple[int, ...]) -> dict[int, Descriptor]:
        """Infer the shape and dtype of every value, by number, for inputs of these shapes; integers have dtype None."""
        rows = self.inferShapes(list(shapes))
        faults = [row.fault for row in rows if row.fault]
        if faults:
            raise ShapeError(*faults)
        steps, dtype = self.steps(len(shapes)), np.dtype(self.dtype or np.float32)
        descriptors = {n: Descriptor(shape, dtype) for n, shape in zip(steps.inputs, self.inferredShapes or ())}
        for step, _, outshapes, *_ in rows:
            module, dtypes = step.module, [dtype] * len(step.outs)
            for name, n in zip(inputNames(module, step.inputs), step.args):
                if name in module.indices and n != ABSENT:
                    descriptors[n] = Descriptor(descriptors[n].shape, None)
            if isinstance(module, Exposed):
                dtypesIn = [descriptors[n].dtype if n in descriptors else None for n in step.args[: step.inputs]]
                hidden = [d or dtype for d in module.inner.hiddenTypeFrom(*dtypesIn)]
                dtypes[len(dtypes) - len(hidden) :] = hidden
            if isinstance(module, Outline):
                dtypes = [descriptors[step.args[0]].dtype]
            descriptors |= {n: Descriptor(*known) for n, *known in zip(step.outs, outshapes or (), dtypes)}
        return descriptors


def within(step: GraphStep, size: int, lives: Liveness) -> int | None:
    """Return the value whose memory a step's output shares; None if it has its own."""
    module = step.module
    if module.views:
        return step.args[0]
    if isinstance(module, CotangentInput):
        return step.args[1]
    if (
        isinstance(module, Gradient)
        and (module.of.views or module.of.gradAliases)
        and size == lives.sizeOf(step.args[0])
    ):
        return step.args[0]
    return None


def oneLike(x: AnyArray, dtype: Any) -> AnyArray:
    """A one without axes, where x is stored."""
    return np.ones_like(x, shape=(1,), dtype=dtype).reshape(())  # CuPy takes shape=() for none
