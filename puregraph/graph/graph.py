"""Graph: the nodes between given inputs and outputs, in a fixed order. It is itself a Module, so graphs nest."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from puregraph.core.accumulate import shapeOf
from puregraph.core.arguments import Flag, Number, isType, takes
from puregraph.core.base.dtype import isFloating, needType
from puregraph.core.errors import DtypeError, GraphError, PuregraphError, addLocation, misfit, need, show
from puregraph.core.late import Late
from puregraph.core.parameterized import PRECISIONS, dtypeOf
from puregraph.core.rules import rulesFor
from puregraph.core.shape import valueOf
from puregraph.core.tracer import tracerOf
from puregraph.graph.datachecks import areMixed, checkInputTypes, checkResults, checkValues
from puregraph.graph.inference import (
    Inferred,
    StepShapes,
    followSizes,
    inferShapes,
    inferTypes,
    inputTypes,
    takenTypes,
)
from puregraph.graph.lastpass import MODE, Pass, savedOf, storeGrads
from puregraph.graph.lookup import setInside
from puregraph.graph.module import Module, checkGrads, holdsNode, shapesOf
from puregraph.graph.nodegraph import NodeGraph
from puregraph.graph.steps import Steps
from puregraph.graph.unfolding import graphsIn

if TYPE_CHECKING:
    from numpy.typing import DTypeLike
    from typing_extensions import Self

    from puregraph.core.dim import Size
    from puregraph.core.protocols import AnyArray
    from puregraph.core.shape import Shape


class Graph(NodeGraph):
    """The nodes between `inputs` and `outputs`, checked when it is built and run in a fixed order.

    `inputs`    a Node without parents, or a list of them: their order is the order of the data
    `outputs`   a Node, `(node, slot)`, or a list of them; an inner node may be an output

    Shapes    as its inputs -> as its outputs
    Source    PuzzleLib's Graph and Node
    Raises    GraphError naming the nodes: a cycle, an output that no input reaches, an input with parents, a bad slot,
              two nodes of one name. A branch that leads to no output is left out, with one GraphWarning.
    """

    hidden = ("values",)
    unversioned = Module.unversioned | {"last", "inferredShapes", "outshapes"}
    backwardType = Late("puregraph.graph.backward", "BackwardGraph")
    save = Late("puregraph.serialize.checkpoint", "saveGraph")
    load = Late("puregraph.serialize.checkpoint", "loadReport")
    compile = Late("puregraph.compile.cache", "compile")
    draw = Late("puregraph.draw.drawing", "drawGraph")
    _repr_html_ = Late("puregraph.draw.notebook", "graphHtml")

    # As a Module ------------------------------------------------------------------------------------------------------

    def updateData(self, *arguments: AnyArray) -> tuple:
        """The rule of a graph that is run as one node: outputs, then all values of the pass as a hidden output."""
        inputs = [x for x in arguments[: len(arguments) - len(self.params)] if x is not None]
        steps = self.steps(len(inputs))
        values = steps.run(inputs)
        modes = list(map(MODE, steps.items))
        return (*(values[n] for n in steps.outputs), Pass(steps, values, modes, savedOf(steps, values)))

    def updateGrad(self, grad: Any, *values: Any, needs: tuple[bool, ...]) -> tuple:
        """Gradient rule of a graph run as one node: input gradients, then parameter gradients."""
        last: Pass = values[-1]
        last.check()
        params = list(self.params.values())
        back = self.backwardGraph(
            any(needs[: len(needs) - len(params)]), any(needs[len(needs) - len(params) :]), last.steps
        )
        inputs, pairs = back.gradients(grad if len(self.outputs) > 1 else [grad], last.values)
        new = {id(p): g for p, g in pairs}
        return (*inputs, *(new.get(id(p)) for p in params))

    def gradShapeFrom(self, gradShape: Shape | list[Shape], *shapes: Any) -> Any:
        """Check `gradShape`, return the shapes of the input gradients; `shapes` default to the last inferred ones."""
        inputShapes = shapesOf(shapes[0]) if len(shapes) == 1 else [s for shape in shapes for s in shapesOf(shape)]
        if not shapes:
            if self.inferredShapes is None:
                raise GraphError(
                    f"{self.title()}: gradShapeFrom needs the inputs' shapes: give them, or call dataShapeFrom first"
                )
            inputShapes = self.inferredShapes
        wanted = self.dataShapeFrom(list(inputShapes))
        fits = isinstance(gradShape, (tuple, list)) and gradShape == wanted
        need(fits, f"a gradient of shape {show(wanted)}", gradShape)
        return inputShapes[0] if len(inputShapes) == 1 else inputShapes

    def flopsFrom(self, *shapes: Any) -> Size:
        return sum(row.step.module.flopsFrom(*row.inshapes) for row in self.inferShapes(*shapes))

    # Shapes -----------------------------------------------------------------------------------------------------------

    def dataShapeFrom(self, *shapes: Any, onmodule: Callable | None = None) -> Shape | list[Shape]:
        """Infer the shape of the output (a list for several), without data.

        `shapes` are the inputs', one list of them, or a dict by their names; a dimension may be a symbol: `("N", 28)`.
        `onmodule(module, inshape)` is called after each module's own rule.

        Raises    ShapeError listing every faulty node with its expected and actual shapes, and their origin
        """
        inferred = self.infer(*shapes)
        faults = [row.fault for row in inferred.rows if row.fault]
        if faults:
            raise misfit(faults)
        if onmodule is not None:
            for row in inferred.rows:
                onmodule(row.step.module, row.inshapes[0] if len(row.inshapes) == 1 else row.inshapes)
        return tuple(inferred.shapes[0]) if len(inferred.shapes) == 1 else list(map(tuple, inferred.shapes))

    def valueFrom(self, *shapes: Any) -> Any:
        """The output's elements (a list for several) if shapes and constants determine them; otherwise None."""
        values = list(map(valueOf, self.infer(*shapes).shapes))
        return values[0] if len(values) == 1 else values

    def dataTypeFrom(self, *dtypes: Any) -> Any:
        """Infer the dtype of the output (a list for several) from the input dtypes, without data.

        `dtypes` are the inputs' dtypes, or one list of them; None if unknown.

        Raises    DtypeError listing every faulty node with its expected and actual dtypes, and their origin
        """
        listed = dtypes[0] if len(dtypes) == 1 and isinstance(dtypes[0], (list, tuple)) else dtypes
        wrong = [d for d in listed if d is not None and not isType(d)]
        needType(not wrong, "dtypes, such as np.float32", wrong)
        inputDtypes = [None if d is None else np.dtype(d) for d in listed]
        known, faults = inferTypes(self.steps(len(inputDtypes)), inputDtypes)
        if faults:
            raise DtypeError(*faults)
        outs = [known[n] for n in self.steps(len(inputDtypes)).outputs]
        return outs[0] if len(outs) == 1 else outs

    def inputTypes(self, count: int | None = None, actual: list[Any] | None = None) -> list[np.dtype]:
        """The dtype that each input is cast to; `actual` integers and booleans are kept if the rules accept them."""
        steps = self.steps(count)
        asked = inputTypes(steps, np.dtype(self.dtype or np.float32))
        return asked if actual is None else takenTypes(steps, asked, actual)

    def inferShapes(self, *shapes: Any) -> list[StepShapes]:
        """Infer the input and output shapes of every step; faults are recorded instead of raised."""
        return self.infer(*shapes).rows

    def infer(self, *shapes: Any, dtypes: list[Any] | None = None) -> Inferred:
        """Infer all steps and the outputs; without `dtypes`, inputs have the dtypes that the rules ask for."""
        ordered: Any = inOrder(self, shapes, "a shape")
        ordered = ordered[0] if len(ordered) == 1 and isinstance(ordered[0], list) else ordered
        inputShapes = [s for shape in ordered for s in shapesOf(shape)]
        inferred = inferShapes(
            self.steps(len(inputShapes)), inputShapes, self.inputTypes(len(inputShapes)) if dtypes is None else dtypes
        )
        self.inferredShapes, self.outshapes = inputShapes, inferred.shapes
        return inferred

    # Running ----------------------------------------------------------------------------------------------------------

    def __call__(self, *data: Any, **keywords: Any) -> Any:
        """Run on arrays, one list of them, or a dict by the inputs' names; or make a Node when called on Nodes.

        Raises    ShapeError, DtypeError, DataError before anything runs; an exception of a rule keeps its type and
                  gains the node's path and the shapes
        """
        if len(data) == 1 and type(data[0]) is dict:
            data = inOrder(self, data, "an array")
        inputs = list(data[0]) if len(data) == 1 and isinstance(data[0], (list, tuple)) else list(data)
        if keywords or any(map(holdsNode, inputs)):
            return self.node(*data, **keywords)
        tracer = tracerOf(inputs)
        if tracer is not None:
            return tracer.handle(self, tuple(inputs), {})
        attributes = vars(self)  # attributes set in every pass bypass the check for misspelt names
        attributes["last"] = None
        steps = self.steps(len(inputs))
        fresh = self.checkData(inputs, steps)
        modes = list(map(MODE, steps.items))
        try:
            values = steps.run(inputs)
        except TypeError as error:
            if areMixed([*inputs, *(s.array for s in (*self.params.values(), *self.states.values()))]):
                addLocation(error, "some arrays are on a GPU, others are not: device.toDevice(x) moves an array there")
            raise
        try:
            checkResults(fresh, values)
        except PuregraphError:
            self.checked.clear()
            raise
        attributes["last"] = Pass(steps, values, modes, savedOf(steps, values))
        output = values[steps.outputs[0]] if len(steps.outputs) == 1 else [values[n] for n in steps.outputs]
        attributes["data"] = output
        return output  # another thread may have set `data` again

    def checkData(self, data: list[Any], steps: Steps) -> list[StepShapes]:
        """Check shapes and dtypes once per combination; return the rows whose results are still unchecked."""
        try:
            key: Any = tuple([(type(x), x.shape, x.dtype) for x in data])
        except AttributeError:  # a value that is not an array
            key = tuple([(shapeOf(x), getattr(x, "dtype", type(x))) for x in data])
        if key in self.checked:
            if steps.followers:
                followSizes(steps, [shapeOf(x) for x in data])
            return self.checked[key]
        checkValues(data, self.title())
        dtypes = [getattr(x, "dtype", None) for x in data]
        inferred = self.infer([shapeOf(x) for x in data], dtypes=dtypes)
        checkInputTypes(data, steps, inferred.rows, self.dtype)
        if steps.followers:
            followSizes(steps, [shapeOf(x) for x in data])
        if len(self.checked) > 256:
            self.checked.clear()
        self.checked[key] = inferred.rows if inferred.isOpen else []
        return inferred.rows

    @takes(updParamGrads=Flag, updGrad=Flag, scale=Number, momentum=Number)
    def backward(
        self,
        grad: Any = None,
        updParamGrads: bool = True,
        updGrad: bool = True,
        scale: float = 1.0,
        momentum: float = 0.0,
    ) -> None:
        """Back-propagate through the last pass.

        `grad` is the gradient of the output (a list for several outputs, None for an output without one); it is
        optional if the output is one number. The gradient of the inputs is stored in `grad` (None without `updGrad`),
        the gradient of each parameter, scale * new + momentum * old, in the parameter's `grad`. For a parameter that
        this pass does not reach, new is None, so without momentum its `grad` is None. In `evalMode` parameters get no
        gradient.

        Raises    PuregraphError before a forward pass, ShapeError for a gradient whose shape differs from the output's
        """
        if self.last is None:
            raise PuregraphError(f"{self.title()}: backward needs a forward pass first")
        self.last.check()
        steps, values = self.last[:2]
        outputs = [values[n] for n in steps.outputs]
        grads = checkGrads(grad, outputs, self.title())
        back = self.backwardGraph(updGrad, updParamGrads, steps)
        inputs, paramGrads = back.gradients(grads, values)
        inputs = storeGrads(grads, inputs, paramGrads, scale, momentum)
        self.grad = None if not updGrad else inputs[0] if len(inputs) == 1 else inputs

    def backwardGraph(self, updGrad: bool = True, updParamGrads: bool = True, steps: Steps | None = None) -> Any:
        """Return the backward pass of this graph as a graph: made once for each mode, and used by `backward`."""
        steps = steps or self.steps()
        wanted = tuple([step.module.isTraining for step in steps.items])
        params = [getattr(module, name) for _, module, name in steps.params]
        held = tuple([(id(p), getattr(p, "trainable", False)) for p in params])
        key = (updGrad, updParamGrads, wanted, held, id(steps), rulesFor([step.node for step in steps.items]))
        if key not in self.backwards:
            self.backwards[key] = self.backwardType(self, updGrad, updParamGrads, steps)
        return self.backwards[key]

    def reset(self) -> None:
        """Forget the values of the last pass, here and on every node."""
        self.forget()
        for steps in [steps for _, steps in self.cache.values()]:
            for node in [step.node for step in steps.items] + [node for node, _ in steps.shown]:
                node.reset()

    # Modes ------------------------------------------------------------------------------------------------------------

    @property
    def isTraining(self) -> bool:
        """The mode that was set last; setting it sets the mode of every module inside."""
        return vars(self).get("isTraining", True)

    @isTraining.setter
    def isTraining(self, train: bool) -> None:
        self.mode(train)

    def calcMode(self, mode: Any) -> Self:
        usual = self.usualFloats()
        for part in (*[node.module for node in self.inputs], *graphsIn(self)):
            part.calcMode(mode)
        super().calcMode(mode)
        if type(mode) is not str or mode not in PRECISIONS[1:]:
            self.followFloats(usual, dtypeOf(mode))
        if type(mode) is str and mode in PRECISIONS:
            setInside(self, "precision", mode)
        self.checked.clear()
        self.reset()
        return self

    def usualFloats(self) -> np.dtype:
        """The dtype of floats that the graph computes in: of its parameters, else of its inputs, else float32."""
        declared = [vars(node.module).get("dtype") for node in self.inputs]
        floats = [dtype for dtype in (self.dtype, *declared) if dtype is not None and isFloating(dtype)]
        return floats[0] if floats else np.dtype(np.float32)

    def followFloats(self, usual: Any, dtype: DTypeLike) -> None:
        for node in self.nodes:
            node.module.followFloats(usual, dtype)
        self.checked.clear()


def inOrder(graph: Graph, arguments: tuple, what: str) -> tuple:
    """A graph's inputs; a dict by input names is put in order."""
    isNamed = len(arguments) == 1 and type(arguments[0]) is dict  # a subclass of dict may be a value
    return tuple(graph.inputSpec.order(arguments[0], what, graph.title())) if isNamed else arguments
