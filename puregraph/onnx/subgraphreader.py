"""SubgraphReader: read graphs in attributes of nodes, inlined, or as Graphs that a module runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from puregraph.core.errors import GraphError, quote
from puregraph.core.shape import normalAxis
from puregraph.graph import Graph
from puregraph.graph.input import Input
from puregraph.modules import Concat
from puregraph.modules.control.ifelse import If
from puregraph.modules.control.loop import Loop
from puregraph.modules.control.scan import Scan
from puregraph.modules.reshaping import Unsqueeze
from puregraph.onnx.graphbuilder import GraphBuilder, dimsFrom
from puregraph.onnx.onnxsequence import OnnxSequence, flattened, regrouped, structureOf
from puregraph.onnx.onnxvalue import OnnxValue
from puregraph.onnx.protowalk import freeNames, usesOf

DEEPEST = 40  # maximum nesting of graphs and functions
FOREVER = np.iinfo(np.int64).max


class SubgraphReader:
    """Reads If, Loop, Scan and SequenceMap for the reader of a model, whose names, nodes and faults it uses."""

    def __init__(self, reader: Any):
        self.reader = reader
        self.structure: list[int | None] = []  # the lengths of sequences among the outputs read last

    def read(self, scope: Any, proto: Any, inputs: list[Any], path: str) -> Any:
        """The outputs of a node with graphs in its attributes; None if a graph has nodes that cannot be read."""
        if scope.depth >= DEEPEST:
            raise GraphError(f"wanted graphs nested at most {DEEPEST} deep, got more")
        return getattr(self, proto.op_type.lower() + "Node")(scope, proto, inputs, path)

    def ifNode(self, scope: Any, proto: Any, inputs: list[Any], path: str) -> Any:
        """The outputs of an If: of one branch if the condition is known, else of an If module with both."""
        branches = {name: graphOf(proto, name) for name in ("then_branch", "else_branch")}
        if not inputs or inputs[0] is None:
            raise GraphError("wanted a condition, got none")
        numbers = inputs[0].numbers
        if numbers is not None and numbers.size == 1:
            return self.inlined(scope, branches["then_branch" if numbers.item() else "else_branch"], path)
        names = self.captured(scope, *branches.values())
        graphs, misfits = self.fitting(scope, [branches["then_branch"], branches["else_branch"]], names)
        if None in graphs and not misfits:
            return None
        values = [inputs[0], *flattened([scope.values[name] for name in names])]
        outputs = self.added(If(graphs[0], graphs[1], "; ".join(misfits)), values, path)
        return regrouped(outputs, self.structure)

    def fitting(self, scope: Any, branches: list[Any], names: list[str]) -> tuple[list[Graph | None], list[str]]:
        """The graphs of two branches, and faults; if the shapes fit only one, the other is None, with its faults."""
        faults, graphs, structures = self.reader.faults, [], []
        before, failures = len(faults), self.reader.failures
        for branch in branches:
            graphs.append(self.graph(scope, branch, names, []))
            structures.append(self.structure)
        new = faults[before:]
        isMisfit = self.reader.failures - failures == len(new) and all(fault.isMisfit for fault in new)
        if None not in graphs and structures[0] != structures[1]:
            raise GraphError("its branches return sequences of different lengths")
        if graphs.count(None) != 1 or not isMisfit:
            return graphs, []
        del faults[before:]
        return graphs, [fault.text for fault in new]

    def added(self, module: Any, values: list[Any], path: str) -> list[OnnxValue]:
        """The outputs of a module, named after the node of the file."""
        builder = self.reader.builder
        builder.begin(path)
        outputs = builder.add(module, values, isComputed=False)
        builder.end(outputs)
        return outputs

    def inlined(self, scope: Any, graph: Any, path: str) -> list[OnnxValue] | None:
        """The outputs of a graph whose nodes are added to the current graph."""
        inner = scope._replace(values=dict(scope.values), path=f"{path}:", depth=scope.depth + 1)
        return self.outputs(inner, graph)

    def outputs(self, inner: Any, graph: Any) -> list[OnnxValue] | None:
        """The outputs of a graph in its own scope; None if it has nodes that cannot be read."""
        reader = self.reader
        before, reader.uses = reader.uses, usesOf(graph.node, reader.names)
        for tensor in graph.initializer:
            reader.initialize(inner, tensor)
        reader.uses = before
        faults = reader.failures
        reader.nodes(inner, graph.node, [info.name for info in graph.output])
        if reader.failures != faults:
            return None
        values = [reader.output(inner, info.name) for info in graph.output]
        for info, value in zip(graph.output, values):
            if value is None:
                raise GraphError(f"its graph returns {quote(info.name)}, an optional value that is absent")
        return values

    def captured(self, scope: Any, *graphs: Any) -> list[str]:
        """The outside names that become inputs of inner graphs, except constants, which are copied, and absent values.

        Raises    GraphError for a name that is not defined outside
        """
        names = dict.fromkeys(name for graph in graphs for name in freeNames(graph, self.reader.names))
        for name in names:
            if name not in scope.values:
                raise GraphError(f"reads {quote(name)}, which no earlier node computes")
        return [name for name in names if scope.values[name] is not None and not isInside(scope.values[name])]

    def graph(self, scope: Any, graph: Any, captured: list[str], ownInputs: list[OnnxValue]) -> Graph | None:
        """The Graph of an inner graph, with inputs like `ownInputs` and captured values; None if it cannot be read."""
        return self.graphAndOutputs(scope, graph, captured, ownInputs)[0]

    def graphAndOutputs(
        self, scope: Any, graph: Any, captured: list[str], ownInputs: list[OnnxValue]
    ) -> tuple[Any, Any]:
        """The Graph of an inner graph, see `graph`, and the values of its outputs; two None if unreadable."""
        reader = self.reader
        free = freeNames(graph, reader.names)
        outer = {name: scope.values[name] for name in free}
        values = {n: inside(v) if v is not None else None for n, v in outer.items() if v is None or isInside(v)}
        entries = [
            *zip([info.name for info in graph.input], ownInputs),
            *((name, scope.values[name]) for name in captured),
        ]
        with builderOf(reader) as builder:
            inputs: list[Any] = []
            for name, value in entries:
                entered = []
                for item in flattened([value]):
                    builder.budget.spend("nodes")
                    inputs.append(Input(name=builder.fresh(name)).node())
                    entered.append(OnnxValue(name, item.shape, item.dtype, edge=(inputs[-1], 0)))
                values[name] = regrouped(entered, structureOf([value]))[0]
            outputs = self.outputs(scope._replace(values=values, path="", depth=scope.depth + 1), graph)
            if outputs is None:
                return None, None
            self.structure = structureOf(outputs)
            return builder.graph(inputs, flattened(outputs), None), outputs

    def sequencemapNode(self, scope: Any, proto: Any, inputs: list[Any], path: str) -> Any:
        """The outputs of a graph applied to every element of a sequence, as sequences."""
        body = graphOf(proto, "body")
        if not inputs or not isinstance(inputs[0], OnnxSequence):
            raise GraphError("wanted a sequence of known length, got something else")
        names = [info.name for info in body.input]
        rows: list[list[OnnxValue]] = []
        for i in range(len(inputs[0].items)):
            row = [v.items[i] if isinstance(v, OnnxSequence) else v for v in inputs]
            outputs = self.outputs(self.run(scope, dict(zip(names, row)), path, i), body)
            if outputs is None:
                return None
            rows.append(outputs)
        return [OnnxSequence([row[k] for row in rows]) for k in range(len(body.output))]

    def run(self, scope: Any, values: dict[str, Any], path: str, i: int) -> Any:
        """The scope for run i of an unrolled graph."""
        self.reader.budget.spend("nodes")
        return scope._replace(values={**scope.values, **values}, path=f"{path}:{i}:", depth=scope.depth + 1)

    # Loops ------------------------------------------------------------------------------------------------------------

    def loopNode(self, scope: Any, proto: Any, inputs: list[Any], path: str) -> Any:
        """The outputs of a Loop; without a count, the largest integer is the limit."""
        body = graphOf(proto, "body")
        padded: list[Any] = [*inputs, *[None] * (2 - len(inputs))]
        count, condition, carried = padded[0], padded[1], padded[2:]
        needAll(carried)
        count = OnnxValue.of(f"{path}:count", np.array(FOREVER)) if count is None else count
        condition = OnnxValue.of(f"{path}:condition", np.array(True)) if condition is None else condition
        ranks = [rankOf(info) for info in body.input[:2]]
        counters = [OnnxValue("", (1,) * rank, np.dtype(kind)) for rank, kind in zip(ranks, ("int64", "bool"))]
        names = self.captured(scope, body)
        outside = [scope.values[name] for name in names]
        isCarried = any(isinstance(v, OnnxSequence) for v in carried)
        if isCarried or count.numbers is not None and any(isinstance(v, OnnxSequence) for v in outside):
            return self.unrolled(scope, body, count, condition, carried, path)
        graph = self.repeated(scope, body, names, counters, carried, [], 1)
        values = [count, condition, *carried, *flattened(outside)]
        return None if graph is None else self.added(self.loop(graph, len(carried), ranks), values, path)

    def loop(self, graph: Graph, carried: int, ranks: list[int]) -> Loop:
        """A Loop that runs as often as the user allows."""
        most = self.reader.mostRuns
        return Loop(graph, carried, ranks) if most is None else Loop(graph, carried, ranks, most)

    def unrolled(self, scope: Any, body: Any, count: Any, condition: Any, carried: list[Any], path: str) -> Any:
        """The outputs of an unrolled Loop: for loops that carry or read sequences, whose lengths change.

        Raises    GraphError if the number of runs depends on the data
        """
        names, rows, i = [info.name for info in body.input], [], 0
        if count.numbers is None:
            raise GraphError("carries a sequence, and its number of runs is known only with the data")
        while i < int(count.numbers.item()):
            if condition.numbers is None:
                raise GraphError("carries a sequence, and the condition that ends it is known only with the data")
            if not condition.numbers.all():
                break
            turn = OnnxValue.of("", np.full((1,) * rankOf(body.input[0]), i))
            outputs = self.outputs(self.run(scope, dict(zip(names, [turn, condition, *carried])), path, i), body)
            if outputs is None:
                return None
            condition, carried, i = outputs[0], outputs[1 : 1 + len(carried)], i + 1
            rows.append(outputs[1 + len(carried) :])
        stacks = []
        for column in zip(*rows):
            wide = [self.added(Unsqueeze((0,)), [row], path)[0] for row in column]
            stacks.append(self.added(Concat(0), wide, path)[0])
        if not rows and len(body.output) > 1 + len(carried):
            raise GraphError("never runs, so the shape of its stacked outputs is not known")
        return [*carried, *stacks]

    def scanNode(self, scope: Any, proto: Any, values: list[Any], path: str) -> Any:
        """The outputs of a Scan; in opset 8 it runs once per sample of a batch."""
        attributes = {a.name: a for a in proto.attribute}
        body, count = graphOf(proto, "body"), attributes["num_scan_inputs"].i
        isBatched = scope.opsets.get("", 0) < 9
        if isBatched:
            if values and values[0] is not None:
                raise GraphError("lengths of sequences cannot be read; all of one length can")
            values = values[1:]
        needAll(values)
        states = len(values) - count
        if not 0 < count <= len(values) or len(body.input) != len(values) or len(body.output) < states:
            raise GraphError(f"a body of {len(body.input)} inputs and {len(body.output)} outputs does not fit")
        stacks = len(body.output) - states

        def option(name: str, length: int) -> list[int]:
            return list(attributes[name].ints) if name in attributes else [0] * length

        directions = "directions" if isBatched else "scan_input_directions"
        ins = list(zip(option("scan_input_axes", count), option(directions, count)))
        outs = list(zip(option("scan_output_axes", stacks), option("scan_output_directions", stacks)))
        samples = [without(v, 0) for v in values] if isBatched else values
        slices = [without(v, axis) for v, (axis, _) in zip(samples[states:], ins)]
        names = self.captured(scope, body)
        graph = self.repeated(scope, body, names, [], samples[:states], slices, 0)
        if graph is None:
            return None
        module = Scan(graph, states, ins, outs)
        if isBatched:
            inputs = [Input(name=node.rename or node.module.name).node() for node in graph.inputs]
            module = Scan(Graph(inputs, module.node(*inputs)), 0, [(0, 0)] * len(values), [(0, 0)] * len(body.output))
        return self.added(module, [*values, *flattened([scope.values[name] for name in names])], path)

    def repeated(
        self, scope: Any, body: Any, names: list[str], before: Any, carried: Any, slices: Any, answers: int
    ) -> Graph | None:
        """The Graph of a body, with symbols for the sizes of carried values that change from run to run."""
        known = [OnnxValue(v.name, None if v.shape is None else tuple(v.shape), v.dtype) for v in carried]
        while True:
            graph, outs = self.graphAndOutputs(scope, body, names, [*before, *known, *slices])
            if graph is None:
                return None
            shapes = [settledShape(v, out) for v, out in zip(known, outs[answers:])]
            if shapes == [v.shape for v in known]:
                return graph
            for value, shape in zip(known, shapes):
                value.shape = shape


def graphOf(proto: Any, name: str) -> Any:
    """The graph in an attribute of a node.

    Raises    GraphError if there is none
    """
    graph = next((a.g for a in proto.attribute if a.name == name and a.HasField("g")), None)
    if graph is None:
        raise GraphError(f"wanted a graph as its attribute {name}, got none")
    return graph


@contextmanager
def builderOf(reader: Any) -> Iterator[GraphBuilder]:
    """Make the reader add nodes to another graph."""
    before = reader.builder
    reader.builder = GraphBuilder(before.budget, before.trainable)
    try:
        yield reader.builder
    finally:
        reader.builder = before


def needAll(values: list[Any]) -> None:
    """Check that no value is left out.

    Raises    GraphError where one is
    """
    if None in values:
        raise GraphError("wanted a value for each input of its body, one is left out")


def isInside(value: OnnxValue) -> bool:
    """True if an inner graph gets a copy of an outside value as a constant, not as an input."""
    return value.array is not None and not value.isShared


def inside(value: OnnxValue) -> OnnxValue:
    """A copy of a constant, for another graph."""
    copied = OnnxValue(value.name, value.shape, value.dtype, array=value.array)
    copied.isWeight = value.isWeight
    return copied


def settledShape(value: OnnxValue, after: OnnxValue) -> Any:
    """A carried value's shape with a symbol for each size that a run changes; None if a run changes its rank."""
    if value.shape is None or after.shape is None or len(value.shape) != len(after.shape):
        return None
    name = f"{value.name or 'value'}_carried"
    names = dimsFrom([None] * len(value.shape), name)
    return tuple(n if n in (m, symbol) else symbol for n, m, symbol in zip(value.shape, after.shape, names))


def without(value: OnnxValue, axis: int) -> OnnxValue:
    """A value with the shape and dtype of a slice of another one, without an axis."""
    shape = value.shape and tuple(value.shape)
    if shape:
        axis = normalAxis(axis, len(shape))
        shape = shape[:axis] + shape[axis + 1 :]
    return OnnxValue(value.name, shape, value.dtype)


def rankOf(info: Any) -> int:
    """The number of axes that a graph declares for an input of one element."""
    return len(info.type.tensor_type.shape.dim) if info.type.tensor_type.HasField("shape") else 0
