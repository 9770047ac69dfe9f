"""SubgraphReader: graphs in attributes of nodes: read where they stand, or as Graphs that a module runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from puregraph.errors import GraphError, quote
from puregraph.graph import Graph
from puregraph.graph.input import Input
from puregraph.onnx.graphbuilder import GraphBuilder
from puregraph.onnx.modules.control.ifelse import If
from puregraph.onnx.onnxvalue import OnnxValue
from puregraph.onnx.protowalk import freeNames, usesOf

DEEPEST = 40  # graphs and functions in one another


class SubgraphReader:
    """Reads If for the reader of a model, whose names, nodes and faults it uses."""

    def __init__(self, reader: Any):
        self.reader = reader

    def read(self, scope: Any, proto: Any, given: list[Any], path: str) -> Any:
        """The outputs of a node with graphs in its attributes; None where something in one of them cannot be read."""
        if scope.depth >= DEEPEST:
            raise GraphError(f"more than {DEEPEST} graphs in one another")
        return getattr(self, proto.op_type.lower() + "Node")(scope, proto, given, path)

    def ifNode(self, scope: Any, proto: Any, given: list[Any], path: str) -> Any:
        """The outputs of the branch of an If whose condition is known, or of an If of both."""
        branches = {a.name: a.g for a in proto.attribute}
        numbers = None if given[0] is None else given[0].numbers
        if numbers is not None and numbers.size == 1:
            return self.inlined(scope, branches["then_branch" if numbers.item() else "else_branch"], path)
        names = self.captured(scope, *branches.values())
        graphs, misfits = self.fitting(scope, [branches["then_branch"], branches["else_branch"]], names)
        if None in graphs and not misfits:
            return None
        return self.added(If(*graphs, "; ".join(misfits)), [given[0], *(scope.values[name] for name in names)], path)

    def fitting(self, scope: Any, branches: list[Any], names: list[str]) -> tuple[list[Graph | None], list[str]]:
        """The graphs of two branches; None, and why, for one that does not fit shapes that the other one fits."""
        faults, graphs = self.reader.faults, []
        before, failures = len(faults), self.reader.failures
        for branch in branches:
            graphs.append(self.graph(scope, branch, names, []))
        new = faults[before:]
        isMisfit = self.reader.failures - failures == len(new) and all(fault.isMisfit for fault in new)
        if graphs.count(None) != 1 or not isMisfit:
            return graphs, []
        del faults[before:]
        return graphs, [fault.text for fault in new]

    def added(self, module: Any, values: list[Any], path: str) -> list[OnnxValue]:
        """The outputs of a module, named after the node of the file."""
        builder = self.reader.builder
        builder.begin(path)
        found = builder.add(module, values, isComputed=False)
        builder.end(found)
        return found

    def inlined(self, scope: Any, graph: Any, path: str) -> list[OnnxValue] | None:
        """The outputs of a graph that is read where it stands."""
        inner = scope._replace(values=dict(scope.values), path=f"{path}:", depth=scope.depth + 1)
        return self.outputs(inner, graph)

    def outputs(self, inner: Any, graph: Any) -> list[OnnxValue] | None:
        """The outputs of a graph in a scope of its own; None where something in it cannot be read."""
        reader = self.reader
        before, reader.uses = reader.uses, usesOf(graph.node)
        for tensor in graph.initializer:
            reader.initialize(inner, tensor)
        reader.uses = before
        faults = reader.failures
        reader.nodes(inner, graph.node, [info.name for info in graph.output])
        if reader.failures != faults:
            return None
        return [reader.output(inner, info.name) for info in graph.output]

    def captured(self, scope: Any, *graphs: Any) -> list[str]:
        """The names that graphs read from outside and that become inputs: not those of constants, which are inside.

        Raises    GraphError for a name that nothing outside gives
        """
        found = dict.fromkeys(name for graph in graphs for name in freeNames(graph))
        for name in found:
            if name not in scope.values:
                raise GraphError(f"reads {quote(name)}, which no node before it gives")
        return [name for name in found if not isInside(scope.values[name])]

    def graph(self, scope: Any, graph: Any, captured: list[str], own: list[OnnxValue]) -> Graph | None:
        """A Graph of its own inputs, of which `own` says what is known, and of captured values; None where it cannot
        be read."""
        reader = self.reader
        values = {name: inside(scope.values[name]) for name in freeNames(graph) if isInside(scope.values[name])}
        given = [*zip([info.name for info in graph.input], own), *((name, scope.values[name]) for name in captured)]
        with builderOf(reader) as builder:
            inputs = []
            for name, value in given:
                node = Input(name=builder.fresh(name)).node()
                values[name] = OnnxValue(name, value.shape, value.dtype, edge=(node, 0))
                inputs.append(node)
            found = self.outputs(scope._replace(values=values, path="", depth=scope.depth + 1), graph)
            return None if found is None else builder.graph(inputs, found, None)


@contextmanager
def builderOf(reader: Any) -> Iterator[GraphBuilder]:
    """Have the reader make nodes of another graph."""
    before = reader.builder
    reader.builder = GraphBuilder(before.trainable)
    try:
        yield reader.builder
    finally:
        reader.builder = before


def isInside(value: OnnxValue) -> bool:
    """Whether a value from outside is known to a graph itself, and so is no input of it."""
    return value.array is not None and not value.isShared


def inside(value: OnnxValue) -> OnnxValue:
    """A known value, for another graph."""
    found = OnnxValue(value.name, value.shape, value.dtype, array=value.array)
    found.isWeight = value.isWeight
    return found
