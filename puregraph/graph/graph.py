"""Graph: the nodes between given inputs and outputs, in a fixed order. It is itself a Module, so graphs nest."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

from puregraph.arguments import Flag, Number, takes
from puregraph.core.accumulate import isArray, shapeOf
from puregraph.core.late import Late
from puregraph.core.param import Param, State
from puregraph.core.rules import rulesFor
from puregraph.core.tracer import tracerOf
from puregraph.core.versioning import COUNTER, isVersioned
from puregraph.errors import GraphError, GraphWarning, PuregraphError, ShapeError, addPlace, need, show
from puregraph.graph.datachecks import areMixed, checkInputTypes, checkResults, keyOf
from puregraph.graph.inference import StepShapes, inferShapes
from puregraph.graph.lastpass import MODE, Pass, savedOf
from puregraph.graph.linking import asList, checkInputs, checkReached, edgesOf, namesFor, warnLeftOut
from puregraph.graph.lookup import few, listing, nodeNamed, setInside, sourceNames
from puregraph.graph.steps import GraphStep, Steps
from puregraph.graph.unfolding import graphsIn, inputCounts, inputSpecOf, nestedVersions, outputNamesOf, unfold
from puregraph.module import PRECISIONS, Inputs, Module, checkGrads, holdsNode, shapesOf
from puregraph.node import Node, parents, postorder


class Graph(Module):
    """The nodes between `inputs` and `outputs`, checked when it is built and run in a fixed order.

    `inputs`    a Node without parents, or a list of them: their order is the order of the data
    `outputs`   a Node, `(node, slot)`, or a list of those; a node inside may be an output

    Shapes    those of its inputs -> those of its outputs
    Source    PuzzleLib's Graph and Node
    Raises    GraphError naming the nodes: a cycle, an output that no input reaches, an input with parents, a bad slot,
              two nodes of one name. A branch that leads to no output is left out, with one GraphWarning.
    """

    hidden = ("values",)
    unversioned = Module.unversioned | {"last", "inferredShapes", "outshapes"}
    last: Any = None  # the Pass that `backward` belongs to
    data: Any = None
    grad: Any = None
    isGraph = True
    backwardType = Late("puregraph.graph.backward", "BackwardGraph")
    save = Late("puregraph.checkpoint", "saveGraph")
    load = Late("puregraph.checkpoint", "loadReport")
    compile = Late("puregraph.compile.cache", "compiled")

    def __init__(self, inputs: Any, outputs: Any, name: str | None = None):
        super().__init__(name)
        self.version = 0
        if not asList(outputs):
            raise GraphError(f"{self.title()}: wanted at least one output, got none")
        self.link(inputs, outputs)

    # Building ---------------------------------------------------------------------------------------------------------

    def link(self, inputs: Any, outputs: Any) -> None:
        """Find the nodes between inputs and outputs, name them, and forget what was known of older ones."""
        self.inputs: list[Node] = list(inputs) if isinstance(inputs, (list, tuple)) else [inputs]
        self.outputs = [e for o in asList(outputs) for e in edgesOf(o)]
        checkInputs(self.inputs)
        self.nodes = postorder([node for node, _ in self.outputs], parents)
        checkReached(self.nodes, self.inputs)
        self.paths = namesFor(self.nodes)
        for node in self.nodes:
            if node.bwds:
                _ = node.sources  # every argument given once: a wrong count is named now, not in the first pass
        self.warnLeftOut()
        self.version += 1
        self.cache: dict[int, tuple[tuple, Steps]] = {}
        self.unfolded: dict[int | None, tuple[object, Steps]] = {}  # by count, with the mark of `COUNTER`
        modules = [self, *(node.module for node in self.inputs)]
        self.tells: bool = all(map(isVersioned, modules)) and all(inner.tells for inner in graphsIn(self))
        self.checked: dict[Any, Any] = {}
        self.backwards: dict[Any, Any] = {}
        self.inferredShapes: list[Any] | None = None
        self.forget()

    def warnLeftOut(self) -> None:
        """Name the first nodes of branches that lead to no output here, unless another graph has use for them."""
        warnLeftOut(self.nodes, self.inputs, [node for node, _ in self.outputs])

    def steps(self, count: int | None = None, innerKnown: bool = False) -> Steps:
        """The graph unfolded, for `count` inputs (which matters where an input node takes any number).

        Graphs inside are unfolded before it, the innermost first, so that no call is nested deeply; unless they were.
        """
        mark = COUNTER.version  # before anything is looked at: what changes meanwhile is seen the next time
        known = self.unfolded.get(count)
        if known is not None and known[0] is mark:
            return known[1]
        sizes = inputCounts(self, count)
        key, now = sum(sizes), nestedVersions(self)
        if key not in self.cache or self.cache[key][0] != now:
            self.checked.clear()
            self.backwards.clear()
            for inner in postorder([self], graphsIn)[:-1] if now and not innerKnown else ():
                inner.steps(innerKnown=True)
            self.cache[key] = now, self.unfold(sizes)
        found = self.cache[key][1]
        if self.tells:
            self.unfolded[count] = mark, found
        return found

    def unfold(self, sizes: list[int]) -> Steps:
        """The flat list of steps, when each input node takes as many values as `sizes` say."""
        return unfold(self, sizes)

    # As a Module ------------------------------------------------------------------------------------------------------

    @property
    def inputSpec(self) -> Inputs:
        return inputSpecOf(self)

    @property
    def indices(self) -> tuple[str, ...]:  # type: ignore[override]
        return tuple(
            name
            for node in self.inputs
            for name in [self.paths.get(node, node.name)]
            if node.module.indices == node.module.arguments and node.module.indices
        )

    @property
    def outputNames(self) -> tuple[str, ...]:
        return outputNamesOf(self)

    @property
    def ruleNames(self) -> tuple[str, ...]:
        return tuple(self.params)

    def ruleParams(self) -> list[Any]:
        return list(self.params.values())

    def modules(self) -> dict[str, Module]:
        """Every module in use by the path of its first node."""
        found: dict[int, tuple[str, Module]] = {}
        for step in self.steps().items:
            found.setdefault(id(step.module), (step.path, step.module))
        return dict(found.values())

    @property
    def params(self) -> dict[str, Param]:
        """Every trainable array once, by path: `stem.conv.W`."""
        return {path: p for path, p, owner in self.stored("params") if owner == path}

    @property
    def states(self) -> dict[str, State]:
        """Every running statistic once, by path."""
        return {path: s for path, s, owner in self.stored("states") if owner == path}

    @property
    def ties(self) -> dict[str, str]:
        """Further names of arrays that are used in several places, and the path that each is stored under."""
        return {path: owner for kind in ("params", "states") for path, _, owner in self.stored(kind) if owner != path}

    def stored(self, kind: str) -> Iterator[tuple[str, Any, str]]:
        """(path, array, the path that it is stored under) wherever a module has one."""
        owners: dict[int, str] = {}
        for step in self.steps().items:
            for name, array in getattr(step.module, kind).items():
                path = f"{step.path}.{name}"
                yield path, array, owners.setdefault(id(array), path)

    @property
    def dtype(self) -> Any:
        """The dtype that the graph computes in: its parameters'; None where it has none."""
        return next((p.dtype for _, p, _ in self.stored("params")), None)

    def updateData(self, *arguments: Any) -> tuple:
        """The rule of a graph that is run as one node: outputs, then all values of the pass as a hidden output."""
        inputs = [x for x in arguments[: len(arguments) - len(self.params)] if x is not None]
        steps = self.steps(len(inputs))
        values = steps.run(inputs)
        modes = list(map(MODE, steps.items))
        return (*(values[n] for n in steps.outputs), Pass(steps, values, modes, savedOf(steps, values)))

    def updateGrad(self, grad: Any, *values: Any, needs: tuple[bool, ...]) -> tuple:
        """The gradient rule of a graph that is run as one node: of its inputs, then of its parameters."""
        last: Pass = values[-1]
        last.check()
        params = list(self.params.values())
        back = self.backwardGraph(
            any(needs[: len(needs) - len(params)]), any(needs[len(needs) - len(params) :]), last.steps
        )
        inputs, found = back.gradients(grad if len(self.outputs) > 1 else [grad], last.values)
        new = {id(p): g for p, g in found}
        return (*inputs, *(new.get(id(p)) for p in params))

    def gradShapeFrom(self, gradShape: Any, *shapes: Any) -> Any:
        """The shapes of the inputs' gradients, after checking `gradShape`; ahead of any data.

        Without `shapes` those of the last `dataShapeFrom` are meant.
        """
        given = shapesOf(shapes[0]) if len(shapes) == 1 else [s for shape in shapes for s in shapesOf(shape)]
        if not shapes:
            if self.inferredShapes is None:
                raise GraphError(
                    f"{self.title()}: gradShapeFrom needs the inputs' shapes: give them, or call dataShapeFrom first"
                )
            given = self.inferredShapes
        wanted = self.dataShapeFrom(list(given))
        fits = isinstance(gradShape, (tuple, list)) and gradShape == wanted
        need(fits, f"a gradient of shape {show(wanted)}", gradShape)
        return given[0] if len(given) == 1 else given

    def flopsFrom(self, *shapes: Any) -> Any:
        return sum(row.step.module.flopsFrom(*row.inshapes) for row in self.inferShapes(*shapes))

    # Shapes -----------------------------------------------------------------------------------------------------------

    def dataShapeFrom(self, *shapes: Any, onmodule: Callable | None = None) -> Any:
        """The shape of the output (a list where there are several), ahead of any data.

        `shapes` are the inputs' shapes, or one list of them; a dimension may be a symbol: `("N", 1, 28, 28)`.
        `onmodule(module, inshape)` is called after each module's own rule.

        Raises    ShapeError listing every faulty node, with what it wanted, what it was given, and from where
        """
        rows, outs = self.infer(*shapes)
        faults = [row.fault for row in rows if row.fault]
        if faults:
            raise ShapeError(*faults)
        if onmodule is not None:
            for row in rows:
                onmodule(row.step.module, row.inshapes[0] if len(row.inshapes) == 1 else row.inshapes)
        return outs[0] if len(outs) == 1 else outs

    def inferShapes(self, *shapes: Any) -> list[StepShapes]:
        """What every step takes and gives, with faults noted instead of raised."""
        return self.infer(*shapes)[0]

    def infer(self, *shapes: Any) -> tuple[list[StepShapes], list[Any]]:
        """The same, and the shapes of the outputs."""
        whole = shapes[0] if len(shapes) == 1 and isinstance(shapes[0], list) else shapes
        given = [s for shape in whole for s in shapesOf(shape)]
        rows, outshapes = inferShapes(self.steps(len(given)), given)
        self.inferredShapes, self.outshapes = given, outshapes
        return rows, outshapes

    # Running ----------------------------------------------------------------------------------------------------------

    def __call__(self, *data: Any, **keywords: Any) -> Any:
        """Run on arrays (or one list of them), or make a Node when called on Nodes.

        Raises    ShapeError, DtypeError, DataError before anything runs; an exception of a rule keeps its type and
                  gains the node's path and the shapes
        """
        given = list(data[0]) if len(data) == 1 and isinstance(data[0], (list, tuple)) else list(data)
        if keywords or any(map(holdsNode, given)):
            return self.node(*data, **keywords)
        tracer = tracerOf(given)
        if tracer is not None:
            return tracer.handle(self, tuple(given), {})
        own = vars(self)  # what is set in every pass is set past what looks for misspelt names
        own["last"] = None
        steps = self.steps(len(given))
        fresh = self.checkData(given, steps)
        modes = list(map(MODE, steps.items))
        try:
            values = steps.run(given)
        except TypeError as error:
            if areMixed([*given, *(s.array for s in (*self.params.values(), *self.states.values()))]):
                addPlace(error, "some arrays lie on a GPU, others do not: device.toDevice(x) moves an array there")
            raise
        try:
            checkResults(fresh, values)
        except PuregraphError:
            self.checked.clear()
            raise
        own["last"] = Pass(steps, values, modes, savedOf(steps, values))
        found = values[steps.outputs[0]] if len(steps.outputs) == 1 else [values[n] for n in steps.outputs]
        own["data"] = found
        return found  # another thread may have set `data` again

    def checkData(self, data: list[Any], steps: Steps) -> list[StepShapes]:
        """Check shapes and dtypes, once for every new combination of them: the rows then, nothing for a known one."""
        try:
            key = tuple([(x.shape, x.dtype) for x in data])
        except AttributeError:
            key = keyOf(data, self.title())
        if key in self.checked:
            return []
        rows = self.inferShapes([shapeOf(x) for x in data])
        checkInputTypes(data, steps, rows, self.dtype)
        if len(self.checked) > 256:
            self.checked.clear()
        self.checked[key] = True
        return rows

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

        `grad` is the gradient of the output (a list where there are several, None for one that is not wanted); it may
        be left out where the output is one number. The gradient of the inputs is then in `grad` (None without
        `updGrad`), that of each parameter, scale * new + momentum * old, in its own `grad`; of one that this pass does
        not reach, new is nothing, so that without momentum its `grad` is None. In `evalMode` parameters get none.

        Raises    PuregraphError before a forward pass, ShapeError for a gradient of another shape than the output's
        """
        if self.last is None:
            raise PuregraphError(f"{self.title()}: backward needs a forward pass first")
        self.last.check()
        steps, values = self.last[:2]
        outputs = [values[n] for n in steps.outputs]
        grads = checkGrads(grad, outputs, self.title())
        back = self.backwardGraph(updGrad, updParamGrads, steps)
        inputs, found = back.gradients(grads, values)
        given = {id(g) for g in grads}
        for param, new in found:
            param.store(new, scale, momentum, alias=id(new) in given)
            given.add(id(new))
        inputs = [g.copy() if isArray(g) and id(g) in given else g for g in inputs]
        self.grad = None if not updGrad else inputs[0] if len(inputs) == 1 else inputs

    def backwardGraph(self, updGrad: bool = True, updParamGrads: bool = True, steps: Steps | None = None) -> Any:
        """The backward pass of this graph as a graph: made once for each mode, and used by `backward`."""
        steps = steps or self.steps()
        wanted = tuple([step.module.train for step in steps.items])
        params = [getattr(module, name) for _, module, name in steps.params]
        held = tuple([(id(p), getattr(p, "trainable", False)) for p in params])
        key = (updGrad, updParamGrads, wanted, held, id(steps), rulesFor([step.node for step in steps.items]))
        if key not in self.backwards:
            self.backwards[key] = self.backwardType(self, updGrad, updParamGrads, steps)
        return self.backwards[key]

    def forget(self) -> None:
        self.last = self.data = self.grad = None

    def reset(self) -> None:
        """Forget the values of the last pass, here and on every node."""
        self.forget()
        for steps in [steps for _, steps in self.cache.values()]:
            for node in [step.node for step in steps.items] + [node for node, _ in steps.shown]:
                node.reset()

    # Modes ------------------------------------------------------------------------------------------------------------

    @property
    def train(self) -> bool:
        """The mode that was set last; to set it is to set that of every module inside."""
        return vars(self).get("train", True)

    @train.setter
    def train(self, train: bool) -> None:
        self.mode(train)

    def trainMode(self) -> Any:
        return self.mode(True)

    def evalMode(self) -> Any:
        return self.mode(False)

    def mode(self, train: bool) -> Any:
        """Set the mode of every module inside; the last pass is forgotten, as its gradient would mix both modes."""
        setInside(self, "train", train)
        return self

    def calcMode(self, mode: Any) -> Any:
        super().calcMode(mode)
        if type(mode) is str and mode in PRECISIONS:
            setInside(self, "precision", mode)
        self.checked.clear()
        self.reset()
        return self

    # Looking ----------------------------------------------------------------------------------------------------------

    def getNodeByName(self, name: str) -> Node:
        """The node of a path such as `stem.conv`: its `data` and `grad` are those of the last pass.

        Raises    GraphError listing names that come near
        """
        return nodeNamed(self, name)

    def __getitem__(self, key: Any) -> Any:
        """A module by its path, or by its place in the order of execution."""
        if isinstance(key, str):
            return self.getNodeByName(key).module
        return self.nodes[key].module

    def __len__(self) -> int:
        return len(self.nodes)

    def sources(self, step: GraphStep, steps: Steps) -> list[str]:
        """The values that a step reads, as a listing names them."""
        return sourceNames(step, steps)

    def brief(self) -> str:
        return type(self).__name__

    def title(self) -> str:
        return f"{type(self).__name__} '{self.name}'" if self.name else type(self).__name__

    def __repr__(self) -> str:
        return f"<{self.title()}: {len(self.nodes)} nodes, {few(self.arguments)} -> {few(self.outputNames)}>"

    def __str__(self) -> str:
        """One line a node: its path, its module, and where its inputs come from."""
        return listing(self)

    # Copies -----------------------------------------------------------------------------------------------------------

    def __getstate__(self) -> dict:
        kept = {k: v for k, v in vars(self).items() if k not in DERIVED}
        return {**kept, "initArgs": ((), {}), "lastCall": None}

    def __setstate__(self, state: dict) -> None:
        vars(self).update(state)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", GraphWarning)
            self.link(self.inputs, self.outputs)


DERIVED = frozenset(
    "nodes paths cache unfolded tells checked backwards inferredShapes outshapes last data grad".split()
)
