"""An adapter that gives a backward graph the steps and the last pass of a puregraph Graph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from puregraph.compat.analog.argskwargs import ArgsKwargs
from puregraph.compat.analog.passes.nodekinds import checked
from puregraph.compat.analog.passes.residuals import ParamGrads, Taken
from puregraph.compat.analog.structure.edges import Edge
from puregraph.compat.analog.structure.graphenum import GraphEnum
from puregraph.core.applied import asGrads
from puregraph.core.errors import AutoDiffException
from puregraph.core.param import Param
from puregraph.core.rules import gradientRule, rulesFor
from puregraph.graph import Graph
from puregraph.graph.backward import inputNames, needsOf
from puregraph.graph.lastpass import Pass
from puregraph.graph.steps import ABSENT, GraphStep, Steps

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from puregraph.graph.node import Node


class NoForwardPassError(AutoDiffException, ValueError):
    """There is no forward pass to differentiate, or it has been used up.

    >>> graph = ForwardGraph()
    >>> _ = graph.add_connection(graph.INPUT, np.tanh, graph.OUTPUT)
    >>> try:
    ...     BackwardGraph(graph.graph_state).from_forward(graph)(np.ones(2))
    ... except NoForwardPassError as error:
    ...     print(error)
    No forward pass has been performed yet, ...
    """


class GraphSource:
    """The steps of a Graph: which node made each value, who reads it, and who gets a gradient."""

    def __init__(self, graph: Graph, steps: Steps):
        self.graph, self.steps = graph, steps
        self.index: dict[Hashable, int] = {step.node: i for i, step in enumerate(steps.items)}
        self.maker: dict[int, tuple[Any, int]] = {n: (GraphEnum.INPUT, i) for i, n in enumerate(steps.inputs)}
        for step in steps.items:
            self.maker.update({n: (step.node, slot) for slot, n in enumerate(step.visible)})
        self._key: Any = None
        self.known: list[tuple[bool, ...]] = []
        self._rules: dict[int, Any] = {}

    def edges(self) -> dict[Hashable, list[tuple[int, Any, int]]]:
        """Map each node, and INPUT, to (slot, reader, argument) of every reader of its outputs, in forward order."""
        readers: dict[Hashable, list[tuple[int, Any, int]]] = {GraphEnum.INPUT: [], **{node: [] for node in self.index}}
        for step in self.steps.items:
            for argument, number in enumerate(step.args[: step.inputs]):
                if number != ABSENT:
                    node, slot = self.maker[number]
                    readers[node].append((slot, step.node, argument))
        for position, number in enumerate(self.steps.outputs):
            node, slot = self.maker[number]
            readers[node].append((slot, GraphEnum.OUTPUT, position))
        return readers

    def step(self, node: Any) -> GraphStep:
        return self.steps.items[self.index[node]]

    def input_label(self, node: Hashable, position: int) -> str:
        """The suffix of a node's input in listings; nothing for the only input."""
        if node is GraphEnum.OUTPUT:
            names = [self.steps.names[n] for n in self.steps.outputs]
        elif node in self.index:
            step = self.step(node)
            names = inputNames(step.module, step.inputs)
        else:
            return f"[{position}]"
        return label_in(names, position)

    def output_label(self, node: Hashable, position: int) -> str:
        """The suffix of a node's output in listings; nothing for the only output."""
        if node is GraphEnum.INPUT:
            names = [self.steps.names[n] for n in self.steps.inputs]
        elif node in self.index:
            names = list(self.step(node).module.outputNames)
        else:
            return f"[{position}]"
        return label_in(names, position)

    def needs(self) -> list[tuple[bool, ...]]:
        """Per step: one flag per argument, true if it gets a gradient with the current modules and parameters."""
        steps = self.steps
        stored = [getattr(module, name) for _, module, name in steps.params]
        key = (
            [step.module.isTraining for step in steps.items],
            [(id(param), getattr(param, "trainable", False)) for param in stored],
            rulesFor([step.node for step in steps.items]),
        )
        if self._key != key:
            requires = dict.fromkeys(steps.inputs, True)
            for (number, module, _), param in zip(steps.params, stored):
                requires[number] = module.wants(param)
            flags = []
            for step in steps.items:
                needs = needsOf(step, requires)
                requires.update(dict.fromkeys(step.outs, any(needs)))
                flags.append(needs)
            self._key, self.known = key, flags
            self._rules = {}
        return self.known

    def learned(self, node: Any) -> list[str]:
        """The names of a node's parameters that get a gradient."""
        i = self.index[node]
        step = self.steps.items[i]
        return [name for name, needed in zip(step.module.ruleNames, self.known[i][step.inputs :]) if needed]

    def rule(self, i: int) -> Any:
        """The gradient rule of a step, looked up once."""
        if i not in self._rules:
            step = self.steps.items[i]
            self._rules[i] = gradientRule(step.module, self.known[i], step.node.rule)
        return self._rules[i]


class GraphResiduals:
    """A Graph's forward pass, in the form that its backward graph reads."""

    def __init__(self, source: GraphSource, last: Pass):
        self.source, self.values = source, last.values
        self.needs = source.needs()

    def __contains__(self, node: Hashable) -> bool:
        return isinstance(node, GraphEnum) or node in self.source.index

    def rank(self, node: Hashable) -> float:
        if node is GraphEnum.OUTPUT:
            return len(self.source.steps.items)
        return self.source.index.get(node, float("inf"))

    def _numbers(self, node: Hashable) -> Sequence[int]:
        steps = self.source.steps
        if isinstance(node, GraphEnum):
            return steps.inputs if node is GraphEnum.INPUT else steps.outputs
        return self.source.step(node).visible

    def outputs(self, node: Hashable) -> ArgsKwargs:
        return ArgsKwargs([self.values[n] for n in self._numbers(node)])

    @property
    def inputs(self) -> ArgsKwargs:
        return self.outputs(GraphEnum.INPUT)

    def along(self, consumer: Any, edge: Edge) -> list[tuple[int, Taken]]:
        """Return an empty list, because every edge of an inverted Graph names its argument."""
        return []

    def taken_from(self, consumer: Hashable, source: Hashable) -> list[tuple[int, Taken]]:
        """The arguments that one node takes from another; for an edge added without a position or name."""
        steps = self.source.steps
        if consumer is GraphEnum.OUTPUT:
            numbers: Any = steps.outputs
        elif consumer in self.source.index:
            step = self.source.step(consumer)
            numbers = step.args[: step.inputs]
        else:
            return []
        made = [self.source.maker.get(n) for n in numbers]
        edge: Any = None
        return [
            (i, Taken(i, origin[1], edge))
            for i, origin in enumerate(made)
            if origin is not None and origin[0] is source
        ]

    def record(self, node: Node) -> Any:
        """Inputs and outputs of a node in the forward pass."""
        if isinstance(node, GraphEnum):
            return None
        step = self.source.step(node)
        return ArgsKwargs([self.values[n] for n in step.args[: step.inputs]]), self.outputs(node)

    def pull(self, node: Node, grads: ArgsKwargs, params: ParamGrads) -> ArgsKwargs:
        i = self.source.index[node]
        step, needs = self.source.steps.items[i], self.needs[i]
        if not any(needs):
            return ArgsKwargs()
        rule = self.source.rule(i)
        arguments = [self.values[n] for n in step.args]
        grad = grads.args[0] if len(step.visible) == 1 else list(grads.args)
        result = asGrads(rule(grad, *arguments, *[self.values[n] for n in step.outs]), len(needs), step.label)
        new = checked(result, needs, arguments)
        for argument in range(step.inputs, len(step.args)):
            if needs[argument]:
                number = step.args[argument]
                param = getattr(step.module, step.module.ruleNames[argument - step.inputs])
                if isinstance(param, Param):
                    params.add(number, i, argument, param, new[argument])
        return ArgsKwargs(new[: step.inputs])


def graph_pass(source: GraphSource, spent: Any) -> GraphResiduals:
    """Return the last pass of a Graph, if it can be differentiated; `spent` are the modes of a used-up pass.

    Raises    NoForwardPassError if it cannot
    """
    graph, last = source.graph, source.graph.last
    if last is None:
        raise NoForwardPassError(f"No forward pass has been performed yet: call {graph.title()} on data first")
    if last.modes is spent:
        raise NoForwardPassError(
            f"A backward pass has used up the forward pass of {graph.title()}: call that again, "
            "or the backward graph with retain_graph=True"
        )
    if any(step.module.isTraining is not train for step, train in zip(last.steps.items, last.modes)):
        raise NoForwardPassError(f"modes of {graph.title()} have changed since the forward pass: call that again first")
    last.check()
    return GraphResiduals(source, last)


def label_in(names: list[str], position: int) -> str:
    """The suffix for one of several values: its name, or its position where names repeat; nothing for the only one."""
    if len(names) < 2:
        return ""
    return f"[{position}]" if names.count(names[position]) > 1 else f".{names[position]}"
