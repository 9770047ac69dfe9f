"""Graph: the nodes between given inputs and outputs, in a fixed order. It is itself a Module, so graphs nest."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

from puregraph.arguments import Flag, Number, takes
from puregraph.base.fingerprint import fingerprint
from puregraph.base.signals import isAsynchronous
from puregraph.core.accumulate import isArray, isValue, shapeOf
from puregraph.core.param import Param, State
from puregraph.core.rules import rulesFor
from puregraph.core.tracer import tracerOf
from puregraph.core.versioning import COUNTER, isVersioned
from puregraph.device import isDeviceArray
from puregraph.errors import (
    DataError,
    DtypeError,
    Fault,
    GraphError,
    GraphWarning,
    PuregraphError,
    ShapeError,
    addPlace,
    need,
    plural,
    show,
)
from puregraph.graph.input import Input
from puregraph.graph.steps import ABSENT, GraphStep, Steps
from puregraph.module import PRECISIONS, Inputs, Module, checkGrads, holdsNode, shapesOf
from puregraph.node import Node, checkMode, isMarked, isModified, modified, parents, postorder

MODE = attrgetter("module.train")


class StepShapes(NamedTuple):
    """What is known of one step ahead of time; `shapes` is None where a fault here or above leaves it unknown."""

    step: GraphStep
    inshapes: list[Any]
    shapes: list[Any] | None
    fault: Fault | None


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
    backwardType: Any = None  # BackwardGraph, which stands above this file, puts itself here
    save: Callable[..., Any]  # `checkpoint` stands above this file and adds save and load
    load: Callable[..., Any]
    compile: Callable[..., Any]  # as does `compile`

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
        for node in self.inputs:
            if not isinstance(node, Node):
                raise GraphError(
                    f"an input of a graph must be a Node, got {type(node).__name__}; make one with Input().node()"
                )
            if node.bwds:
                raise GraphError(
                    f"input '{node}' ({node.label}) has parents: {', '.join(map(repr, map(str, parents(node))))}"
                )
        if len(set(self.inputs)) < len(self.inputs):
            raise GraphError(f"an input is given twice: {', '.join(map(str, self.inputs))}")
        self.nodes = self.order()
        entered = set(self.inputs)
        lost = [n for n in self.nodes if not n.bwds and n not in entered and n.module.arguments]
        if lost:
            raise GraphError(
                f"the outputs need {', '.join(f'{str(n)!r} ({n.label})' for n in lost)}, which no input reaches: "
                "add it to the graph's inputs, or give it parents"
            )
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

    def order(self) -> list[Node]:
        """The nodes that lead to the outputs, in the order in which they run."""
        return postorder([node for node, _ in self.outputs], parents)

    def warnLeftOut(self) -> None:
        """Name the first nodes of branches that lead to no output here, unless another graph has use for them."""
        inside, ends = set(self.nodes), {node for node, _ in self.outputs}
        out = [n for n in self.inputs if n not in inside]
        out += [link.node for n in self.nodes if n not in ends for link in n.fwds if link.node not in inside]
        out = [n for n in dict.fromkeys(out) if not n.noticed]
        for node in (*self.nodes, *out):
            node.noticed = True
        if out:
            names = ", ".join(f"'{n}' ({n.label})" for n in out)
            warnings.warn(f"left out, because no output of the graph needs it: {names}", GraphWarning, stacklevel=4)

    def nested(self) -> tuple:
        """What this graph's steps were made from: the versions of the graphs inside, each once."""
        found: dict[int, int] = {}
        waiting = [self]
        while waiting:
            for inner in graphsIn(waiting.pop()):
                if id(inner) not in found:
                    found[id(inner)] = inner.version
                    waiting.append(inner)
        return tuple(found.items())

    def steps(self, count: int | None = None, innerKnown: bool = False) -> Steps:
        """The graph unfolded, for `count` inputs (which matters where an input node takes any number).

        Graphs inside are unfolded before it, the innermost first, so that no call is nested deeply; unless they were.
        """
        mark = COUNTER.version  # before anything is looked at: what changes meanwhile is seen the next time
        known = self.unfolded.get(count)
        if known is not None and known[0] is mark:
            return known[1]
        sizes = self.inputCounts(count)
        key, now = sum(sizes), self.nested()
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
        flat = Steps()
        value = {}
        sizeOf = dict(zip(self.inputs, sizes, strict=True))
        for node in self.inputs:
            value[node] = flat.addInputs(self.paths.get(node, node.name), self.inputNames(node, sizeOf[node]))
        for node, path in self.paths.items():
            if node in sizeOf:
                args = value[node] + (ABSENT,) * (len(node.module.arguments) - sizeOf[node])
            else:
                args = tuple(ABSENT if e is None else value[e[0]][e[1]] for e in node.sources)
            if isinstance(node.module, Graph):
                value[node] = flat.unfold(node.module.steps(len(args)), path, args)
                flat.shown.append((node, value[node]))
            elif isinstance(node.module, Input):
                value[node] = args
                flat.shown.append((node, args))
            else:
                value[node] = flat.add(path, node, args)
        flat.outputs = [value[node][slot] for node, slot in self.outputs]
        return flat

    def inputNames(self, node: Node, count: int) -> list[str]:
        """The names of the values that enter at an input node."""
        path, names = self.paths.get(node, node.name), node.module.arguments
        if isinstance(node.module, Input):
            return [path]
        if isinstance(node.module, Graph):
            inner = node.module.steps(count)
            return [f"{path}.{inner.names[n]}" for n in inner.inputs]
        return [f"{path}.{names[i] if i < len(names) else i}" for i in range(count)]

    def inputCounts(self, count: int | None) -> list[int]:
        """How many of `count` values each input node takes; what is left over goes to what is optional."""
        specs = [n.module.inputSpec for n in self.inputs]
        sizes = [len(s.names) - len(s.optional) for s in specs]
        free = [i for i, s in enumerate(specs) if s.variadic or s.optional]
        if count is None or count == sum(sizes):
            return sizes
        more = count - sum(sizes)
        if len(free) == 1 and 0 < more and (specs[free[0]].variadic or more <= len(specs[free[0]].optional)):
            sizes[free[0]] += more
            return sizes
        spare = [i for i, s in enumerate(specs) if s.optional]
        if len(spare) == 1 and 0 < count - sum(sizes) <= len(specs[spare[0]].optional):
            sizes[spare[0]] += count - sum(sizes)
            return sizes
        raise GraphError(
            f"{self.title()}: wanted {plural(sum(sizes), 'input')} ({', '.join(self.arguments)}), got {count}"
        )

    # As a Module ------------------------------------------------------------------------------------------------------

    @property
    def inputSpec(self) -> Inputs:
        known: dict[int, Inputs] = {}
        for graph in postorder([self], lambda graph: onlyGraphs(graph.inputs)):
            names, variadic = [], False
            for node in graph.inputs:
                spec = known.get(id(node.module)) or node.module.inputSpec
                variadic = variadic or spec.variadic
                path = graph.paths.get(node, node.name)
                required = [n for n in spec.names if n not in spec.optional]
                names += [path] if len(required) == 1 else [f"{path}.{n}" for n in required]
            known[id(graph)] = Inputs(tuple(names), (), variadic)
        return known[id(self)]

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
        known: dict[int, tuple[str, ...]] = {}
        for graph in postorder(
            [self], lambda graph: [n.module for n, _ in graph.outputs if isinstance(n.module, Graph)]
        ):
            names = []
            for node, slot in graph.outputs:
                own = known.get(id(node.module)) or node.module.outputNames
                names.append(graph.paths[node] if len(own) == 1 else f"{graph.paths[node]}.{own[slot]}")
            known[id(graph)] = tuple(names)
        return known[id(self)]

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
        given = [
            s
            for shape in (shapes[0] if len(shapes) == 1 and isinstance(shapes[0], list) else shapes)
            for s in shapesOf(shape)
        ]
        steps = self.steps(len(given))
        known: list[Any] = [None] * steps.count
        unknown: set[int] = set()
        for number, shape in zip(steps.inputs, given, strict=True):
            known[number] = shape
        rows = []
        for step in steps.items:
            numbers = step.args[: step.inputs]
            inshapes = [known[n] for n in numbers]
            fault, result = None, None
            if unknown.isdisjoint(numbers):
                try:
                    result = step.module.dataShapeFrom(*inshapes)
                except ShapeError as error:
                    fault = self.locate(error.faults[0], step, steps)
                except Exception as error:
                    if isAsynchronous(error):
                        raise
                    raise PuregraphError(
                        f"at '{step.path}' ({step.label}): its shape rule failed on {show(inshapes)}: {error}"
                    ) from error
                else:
                    checkRule(result, step)
            if result is None:
                unknown.update(step.outs)
                rows.append(StepShapes(step, inshapes, None, fault))
                continue
            outs = result if isinstance(result, list) else [result]
            for number, shape in zip(step.visible, outs, strict=True):
                known[number] = shape
            rows.append(StepShapes(step, inshapes, outs, None))
        outshapes = [known[n] for n in steps.outputs]
        self.inferredShapes, self.outshapes = given, outshapes
        return rows, outshapes

    def locate(self, fault: Fault, step: GraphStep, steps: Steps) -> Fault:
        entered = set(steps.inputs)
        sources = dict.fromkeys(
            "the graph's input" if n in entered and steps.producer[n] == step.path else f"'{steps.producer[n]}'"
            for n in step.args[: step.inputs]
            if n
        )
        return fault._replace(
            path=f"{step.path}.{fault.path}" if fault.path else step.path,
            module=fault.module or step.label,
            source=fault.source or ", ".join(sources),
        )

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
            wrong = [x for x in data if not isValue(x)]
            if wrong:
                raise DataError(
                    f"{self.title()}: wanted arrays, got {type(wrong[0]).__name__}: {wrong[0]!r:.80}"
                ) from None
            key = tuple([(shapeOf(x), getattr(x, "dtype", type(x))) for x in data])
        if key in self.checked:
            return []
        rows = self.inferShapes([shapeOf(x) for x in data])
        faults = [row.fault for row in rows if row.fault]
        if faults:
            raise ShapeError(*faults)
        dtype = self.dtype
        for number, x in zip(steps.inputs, data, strict=True):
            if not isArray(x):
                continue
            if x.dtype.kind not in "fiub":
                raise DtypeError(f"at '{steps.producer[number]}': wanted numbers, got dtype {x.dtype}")
            if dtype is not None and x.dtype.kind == "f" and x.dtype != dtype:
                raise DtypeError(
                    f"at '{steps.producer[number]}': the graph computes in {dtype}, got {x.dtype}; "
                    f"convert the data with .astype('{dtype}'), or the graph with .calcMode(np.{x.dtype})"
                )
            reader = None if x.dtype.kind == "f" else floatReader(number, steps)
            if reader is not None:
                raise DtypeError(
                    f"at '{reader.path}' ({reader.label}): wanted {dtype}, got {x.dtype}; "
                    f"convert the data with .astype('{dtype}')"
                )
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
        self.last = None
        vars(self)["train"] = train
        for module in self.modules().values():
            module.train = train
        for node in self.nodes:
            if isinstance(node.module, Graph):
                node.module.mode(train)
        return self

    def calcMode(self, mode: Any) -> Any:
        super().calcMode(mode)
        if type(mode) is str and mode in PRECISIONS:
            self.calculate(mode)
        self.checked.clear()
        self.reset()
        return self

    def calculate(self, precision: str) -> None:
        """Have every module inside calculate so."""
        self.precision = precision
        for module in self.modules().values():
            module.precision = precision
        for node in self.nodes:
            if isinstance(node.module, Graph):
                node.module.calculate(precision)

    # Looking ----------------------------------------------------------------------------------------------------------

    def getNodeByName(self, name: str) -> Node:
        """The node of a path such as `stem.conv`: its `data` and `grad` are those of the last pass.

        Raises    GraphError listing names that come near
        """
        for node, path in self.paths.items():
            if path == name:
                return node
        for step in self.steps().items:
            if step.path == name:
                return step.node
        raise GraphError(f"{self.title()} has no node {name!r}; it has {', '.join(nearest(name, self.allNames()))}")

    def allNames(self) -> list[str]:
        return list(dict.fromkeys([*self.paths.values(), *(s.path for s in self.steps().items)]))

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
        steps = self.steps()
        rows = [(s.path, s.module.brief(), ", ".join(self.sources(s, steps))) for s in steps.items]
        wide = [max((len(r[i]) for r in rows), default=0) for i in (0, 1)]
        return "\n".join(
            [repr(self), *(f"  {p:{wide[0]}}  {m:{wide[1]}}  {'<- ' + f if f else ''}".rstrip() for p, m, f in rows)]
        )

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


class Pass(NamedTuple):
    """One forward pass: the steps that ran, all their values, and the modes that the modules were in.

    `saved` tells by number whether inputs, outputs and parameters that gradient rules read were modified since.
    """

    steps: Steps
    values: list[Any]
    modes: list[bool]
    saved: list[tuple[int, Any, Any]]

    def check(self) -> None:
        """Going backward through a pass is right as long as all is as it was then.

        Raises    PuregraphError if the mode of a module has changed since, or what gradient rules read was modified
        """
        names = self.steps.names
        for number, value, before in self.saved:
            if isModified(value, before):
                raise modified(self.steps.producer[number], "", f"'{names[number]}'")
        if list(map(MODE, self.steps.items)) != self.modes:
            for step, train in zip(self.steps.items, self.modes, strict=True):
                checkMode(step.module, train, step.path)


def savedOf(steps: Steps, values: list[Any]) -> list[tuple[int, Any, Any]]:
    """What gradient rules read of what a user can reach, each with what tells whether it is modified later."""
    numbers, stored = steps.saved
    found: list[tuple[int, Any, Any]] = []
    for n in numbers:
        found.append((n, values[n], fingerprint(values[n])))
    for n, module, name in stored:
        param = getattr(module, name)
        if isMarked(param):
            found.append((n, param, param.mark()))
    return found


def areMixed(arrays: list[Any]) -> bool:
    """Whether some arrays lie on a GPU, and some on the host."""
    return len({isDeviceArray(x) for x in arrays if x is not None and hasattr(x, "dtype")}) > 1


def asList(outputs: Any) -> list[Any]:
    """Outputs as a list; `(node, slot)` is one output."""
    if isinstance(outputs, tuple) and len(outputs) == 2 and not isinstance(outputs[1], (Node, tuple)):
        return [outputs]
    return list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]


def onlyGraphs(nodes: Iterable[Node]) -> list[Graph]:
    """The graphs that stand at some nodes."""
    return [node.module for node in nodes if isinstance(node.module, Graph)]


def graphsIn(graph: Graph) -> list[Graph]:
    """The graphs that stand at the nodes of a graph."""
    return onlyGraphs(graph.nodes)


def edgesOf(output: Any) -> list[tuple[Node, int]]:
    """The edges of one output as a user gives it."""
    node, slots = output if isinstance(output, tuple) and len(output) == 2 else (output, None)
    if not isinstance(node, Node):
        raise GraphError(f"an output of a graph must be a Node or (node, slot), got {type(node).__name__}")
    found = node.slotsFrom(slots, node)
    return [(node, slot) for slot in (range(len(node.module.outputNames)) if found is None else found)]


def namesFor(nodes: list[Node]) -> dict[Node, str]:
    """A name for each node: the given one, else by position (`relu`, `relu2`); never from a global counter.

    Raises    GraphError if two nodes were given one name
    """
    given: dict[str, Node] = {}
    paths: dict[Node, str | None] = {}
    for node in nodes:
        name = node.rename or node.module.name
        other = given.get(name) if name else None
        if other is not None and (other.module is not node.module or node.rename):
            raise GraphError(f"two nodes are named '{name}': a {other.label} and a {node.label}; give one another name")
        paths[node] = name if other is None else None
        if name:
            given.setdefault(name, node)
    taken = set(given)
    counts: dict[str, int] = {}
    for node, name in paths.items():
        if name is None:
            base = node.module.name or node.label.lower()
            count = counts.get(base, 1 if base in taken else 0)
            while True:
                count += 1
                name = base if count == 1 else f"{base}{count}"
                if name not in taken:
                    break
            counts[base] = count
            taken.add(name)
            paths[node] = name
    return {node: str(name) for node, name in paths.items()}


def sourceNames(step: GraphStep, steps: Steps) -> list[str]:
    """The names of the values that a step takes as inputs."""
    return [steps.names[n] for n in step.args[: step.inputs] if n]


def checkRule(result: Any, step: GraphStep) -> None:
    """A shape rule gives a tuple, or a list of as many tuples as there are outputs."""
    outs = result if isinstance(result, list) else [result]
    if not all(isinstance(s, tuple) for s in outs) or len(outs) != len(step.visible):
        wanted = "a tuple" if len(step.visible) == 1 else f"a list of {len(step.visible)} tuples"
        raise PuregraphError(f"at '{step.path}' ({step.label}): dataShapeFrom wanted to give {wanted}, gave {result!r}")


def checkResults(rows: list[StepShapes], values: list[Any]) -> None:
    """The outputs of a pass have the shapes that the rules said."""
    for step, _, shapes, _ in rows:
        for number, shape in zip(step.visible, shapes or [], strict=True):
            value = values[number]
            if not isValue(value) or shapeOf(value) != shape:
                found = f"shape {show(shapeOf(value))}" if isArray(value) else type(value).__name__
                raise PuregraphError(
                    f"at '{step.path}' ({step.label}): dataShapeFrom says {show(shape)}, updateData gave {found}; "
                    "one of the two rules is wrong"
                )


def floatReader(number: int, steps: Steps) -> GraphStep | None:
    """The first step that joins an input of the graph with parameters, and so needs their dtype; None if none does."""
    for step in steps.items:
        if number in step.args[: step.inputs] and step.module.params:
            names = step.module.arguments
            where = [names[min(i, len(names) - 1)] for i, n in enumerate(step.args[: step.inputs]) if n == number]
            if not set(where) <= set(step.module.indices):
                return step
    return None


def few(names: Sequence[str], most: int = 4) -> str:
    """The first few names, and how many more there are."""
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" and {rest} more" if rest > 0 else "")


def nearest(name: str, known: list[str], count: int = 6) -> list[str]:
    """The names most like a mistaken one, of many only those that begin or end as it does."""
    import difflib  # only when something is wrong
    from os.path import commonprefix

    if len(known) > 100 or len(name) > 200:
        ends = {n: len(commonprefix([name, n])) + len(commonprefix([name[::-1], n[::-1]])) for n in known}
        known = [n[:200] for n in sorted(ends, key=ends.__getitem__, reverse=True)[:30]]
        name = name[:200]
    return difflib.get_close_matches(name, known, count, 0.3) or known[:count]
