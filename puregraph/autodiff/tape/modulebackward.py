"""Modules and Graphs on Variables: each use is one node of the tape, with the gradient rule that a graph would use."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np

from puregraph.autodiff.tape.gradmode import MODE, enable_grad
from puregraph.autodiff.tape.recordednodes import AGAIN
from puregraph.autodiff.tape.recording import RECORDERS
from puregraph.autodiff.tape.tapenode import LeafAccumulator, TapeNode
from puregraph.autodiff.tape.variable import Variable, bare, made, versionOf
from puregraph.core.accumulate import combine, differentiable, needPlain, shapeOf
from puregraph.core.applied import asGrads, checkMode, checkSaved, isMarked
from puregraph.core.errors import AutoDiffException, Fault, GraphError, ShapeError, addLocation, show
from puregraph.core.hooks import HOOKS
from puregraph.core.param import Param
from puregraph.core.rules import gradientRule, readBy
from puregraph.graph import Graph
from puregraph.graph.function import FunctionCall
from puregraph.graph.module import Module
from puregraph.graph.node import located, refuseLarge
from puregraph.graph.rulecalls import forwardCall, gradientCall
from puregraph.graph.steps import ABSENT


class ParamTarget:
    """Adds gradients from a tape to `Param.grad`, as for leaves."""

    def __init__(self, param: Param):
        self.param = weakref.ref(param)
        self._hooks: Any = None

    def receive(self, contributions: list[Any]) -> None:
        param = self.param()
        if param is not None and contributions:
            param.store(bare(combine(contributions)), momentum=1.0, alias=True)


LEAVES: weakref.WeakKeyDictionary[Param, LeafAccumulator] = weakref.WeakKeyDictionary()


def parameter(param: Param) -> Variable:
    """A Param as a leaf: shares its data, and passes add to its `grad`. For `grad(loss, parameter(net["fc"].W))`.

    >>> from puregraph import Linear
    >>> net = Linear(3, 1)
    >>> loss = net(Variable(np.ones((2, 3)))).sum()
    >>> grad(loss, parameter(net.W))[0].shape
    (3, 1)
    """
    return leafOver(param, param.data)


def leafOver(param: Param, array: Any) -> Variable:
    """A leaf with the gradient of a Param."""
    v = Variable(array)
    v._wants, v._leaf = True, weakref.ref(leafOf(param))
    return v


def leafOf(param: Param) -> LeafAccumulator:
    """The leaf that receives a Param's gradient."""
    leaf = LEAVES.get(param)
    if leaf is None:
        leaf = LEAVES[param] = LeafAccumulator(ParamTarget(param))
    return leaf


class ModuleBackward(TapeNode):
    """The gradient of one use of a module, by the rule that `rules.gradientRule` finds for it."""

    __slots__ = (
        *("inputs", "module", "needs", "outputs", "params", "path", "rule", "saved", "train", "values", "versions"),
    )

    def __init__(self, module: Module, inputs: list[Any], values: list[Any], outputs: tuple, rule: Any, path: str):
        self.params = module.ruleParams()
        ends: list[Any] = [v.edge() if isinstance(v, Variable) and v.requires_grad else None for v in inputs]
        ends += [(leafOf(p), 0) if isinstance(p, Param) else None for p in self.params]
        free = module.needs(values[: len(inputs)])
        self.needs = tuple([n and end is not None for n, end in zip(free, ends)])
        edges = [end for end, n in zip(ends, self.needs) if n and end is not None]
        reads, names = readBy(module, rule), module.ruleNames
        named = [(n, p) for n, p in zip(names, self.params) if isMarked(p) and (reads is None or n in reads)]
        self.saved = [(name, param, param.mark()) for name, param in named if param is not None]
        super().__init__((), len(module.outputNames))
        self.edges = tuple(edges)
        self.module, self.inputs, self.values, self.outputs = module, inputs, values, outputs
        self.rule, self.path, self.train = rule, path, module.isTraining
        self.versions = list(map(versionOf, inputs))

    def name(self) -> str:
        return f"{type(self.module).__name__}Backward0"

    def apply(self, *grads: Any) -> Any:
        if self.outputs is None:
            raise AutoDiffException(f"{self.name()}: {AGAIN}")
        if list(map(versionOf, self.inputs)) != self.versions:
            raise AutoDiffException(f"{self.name()}: an input was modified in place since; make a new Variable instead")
        checkMode(self.module, self.train, self.path)
        checkSaved(self.module, self.saved, self.path)
        values, outputs = self.values, self.outputs
        gradients = [g._value if isinstance(g, Variable) else g for g in grads]
        if MODE.enabled:
            values, outputs = self.recorded()
            gradients = [g if g is None or isinstance(g, Variable) else Variable(g) for g in grads]
        rule = gradientRule(self.module, self.needs, self.rule)
        try:
            seeds = gradients if len(gradients) > 1 else gradients[0]
            results = gradientCall(self.module, rule, self.needs, seeds, [*values, *outputs])
        except Exception as error:
            addLocation(error, f"at '{self.path}' ({type(self.module).__name__}), backward")
            if MODE.enabled and isinstance(error, TypeError):
                raise AutoDiffException(f"{self.name()}: its rule cannot be recorded: {error}") from error
            raise
        results = asGrads(results, len(values), type(self.module).__name__)
        for i, (g, needed) in enumerate(zip(results, self.needs)):
            if needed and g is not None and shapeOf(g) != shapeOf(self.values[i]):
                wanted = f"its gradient rule to give shape {show(shapeOf(self.values[i]))} for argument {i}"
                raise located(ShapeError(Fault(wanted, show(shapeOf(g)))), self.path, type(self.module).__name__)
        return tuple([g for g, n in zip(results, self.needs) if n])

    def recorded(self) -> tuple[list[Any], tuple]:
        """Return arguments and outputs as Variables of the graph, for a gradient that will be differentiated again.

        Floating hidden outputs depend on the arguments, too, so they are recomputed and recorded. That does not update
        running states, because rules do not write into Variables. AutoDiffException if they differ, as random ones do.
        """
        module = self.module
        params = [
            leafOver(p, x) if isinstance(p, Param) else None if x is None else Variable(x)
            for p, x in zip(self.params, self.values[len(self.inputs) :])
        ]
        values = [*self.inputs, *params]
        count = len(module.outputNames)
        visible = made(self.outputs[:count], self)
        hidden = self.outputs[count:]
        if any(differentiable(h) and hasattr(h, "dtype") for h in hidden):
            with enable_grad():
                again = module.updateData(*values)[count:]
            for name, h, value in zip(module.hidden, hidden, again):
                if differentiable(h) and not isClose(bare(value), h):
                    raise AutoDiffException(
                        f"{self.name()}: no second derivative, because the hidden output '{name}' differs when it is "
                        "computed again, as random values do: keep the random bits in it as integers"
                    )
            hidden = tuple([value if differentiable(h) else h for h, value in zip(hidden, again)])
        return values, (*visible, *hidden)

    def release(self) -> None:
        self.inputs = self.values = self.outputs = None  # type: ignore[assignment]


def isClose(value: Any, wanted: Any) -> bool:
    """Whether two arrays are equal up to the rounding of 16 bits, of the largest value."""
    return bool(np.allclose(value, wanted, 0, 1e-2 * float(np.abs(wanted).max(initial=0)), equal_nan=True))


def use(module: Module, inputs: list[Any], rule: Any = None, path: str = "") -> tuple:
    """Run a module on Variables and arrays, recorded: its visible outputs."""
    if isinstance(module, FunctionCall):
        arguments, keywords = module.bound(inputs)
        result = module.function.apply(*arguments, **keywords)
        return result if type(result) is tuple else (result,)
    path = path or module.name or type(module).__name__.lower()
    plain = [bare(v) for v in inputs]
    for x in plain:
        needPlain(x, path)
    shapes = [None if x is None else shapeOf(x) for x in plain]
    try:
        module.dataShapeFrom(*shapes)
        values = [*plain, *module.ruleValues()]
        if HOOKS.enter is not None:
            HOOKS.enter(module)
        result = forwardCall(module, values, len(plain))
        if HOOKS.look is not None:
            HOOKS.look(path, module, values, result if type(result) is tuple else (result,))
    except ShapeError as error:
        raise located(error, path, type(module).__name__) from None
    except Exception as error:
        refuseLarge(error, module, plain, path, type(module).__name__)
        addLocation(error, f"at '{path}' ({type(module).__name__}): given {show(shapes)}")
        raise
    outputs = result if type(result) is tuple else (result,)
    visible = outputs[: len(module.outputNames)]
    if not MODE.enabled:
        return made(visible, None)
    node = ModuleBackward(module, inputs, values, outputs, rule, path)
    return made(visible, node if any(node.needs) else None)


def record_module(module: Module, arguments: tuple, options: dict[str, Any]) -> Any:
    """Call a module or Graph on Variables and record it."""
    inputs = list(arguments)
    if len(inputs) == 1 and isinstance(inputs[0], (list, tuple)):
        inputs = list(inputs[0])
    outputs = run_graph(module, inputs) if isinstance(module, Graph) else use(module, filled(module, inputs))
    return outputs[0] if len(outputs) == 1 else list(outputs)


def filled(module: Module, inputs: list[Any]) -> list[Any]:
    """One value per input of a module, None for an omitted optional input."""
    spec = module.inputSpec
    required = len(spec.names) - len(spec.optional)
    if not spec.variadic and not required <= len(inputs) <= len(spec.names):
        raise GraphError(f"{type(module).__name__}: wanted {', '.join(spec.names)}, got {len(inputs)} inputs")
    return inputs if spec.variadic else inputs + [None] * (len(spec.names) - len(inputs))


def run_graph(graph: Graph, variables: list[Any]) -> tuple:
    """Run the steps of a graph on Variables; each step records one node."""
    steps = graph.steps(len(variables))
    graph.checkData([bare(v) for v in variables], steps)
    values: list[Any] = [None] * steps.count
    for number, v in zip(steps.inputs, variables):
        values[number] = v
    for step in steps.items:
        inputs = [None if n == ABSENT else values[n] for n in step.args[: step.inputs]]
        for number, y in zip(step.visible, use(step.module, inputs, step.node.rule, step.path)):
            values[number] = y
    return tuple([values[n] for n in steps.outputs])


RECORDERS[Module] = record_module
