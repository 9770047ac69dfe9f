"""ProtoWalk: names that the nodes of a file read, including nodes of graphs in their attributes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

Names = dict[tuple[str, int], tuple[Any, list[str]]]  # cache: by kind and id, a graph, kept alive, and its names
EMPTY: Mapping[str, str] = MappingProxyType({})
GRAPHS = (0, 5, 10)  # attribute types that may hold graphs: none, GRAPH, GRAPHS
RECURRENT = ("LSTM", "GRU", "RNN")
LAYERS = {
    *"Gemm MatMul Conv ConvTranspose BatchNormalization LayerNormalization InstanceNormalization".split(),
    *RECURRENT,
}


def needed(protos: Any, outputs: list[str], known: Names | None = None) -> list[Any]:
    """The nodes that lead to the outputs, in their order."""
    wanted, nodes = set(outputs), []
    for proto in reversed(protos):
        if wanted.intersection(filter(None, proto.output)):
            nodes.append(proto)
            wanted.update(readsOf(proto, known))
    return nodes[::-1]


def readsOf(proto: Any, known: Names | None = None) -> list[str]:
    """The names that a node reads, including those that graphs in its attributes read from outside."""
    names = [name for name in proto.input if name]
    for graph in graphsOf(proto):
        names += readsIn(graph, {} if known is None else known)
    return names


def readsIn(graph: Any, known: Names) -> list[str]:
    """The names that a graph's nodes and outputs read; computed once."""
    if ("reads", id(graph)) not in known:
        names = [info.name for info in graph.output]
        for inner in graph.node:
            names += readsOf(inner, known)
        known["reads", id(graph)] = graph, names
    return known["reads", id(graph)][1]


def usesOf(protos: Any, known: Names | None = None, aliases: Any = EMPTY) -> dict[str, list[Any]]:
    """The readers of each value: for each the layer that has it as a weight, else None."""
    uses: dict[str, list[Any]] = {}
    for proto in protos:
        layer, first = layerOf(proto, aliases), proto.input[:1]
        for name in readsOf(proto, known):
            uses.setdefault(aliases.get(name, name), []).append(layer if name not in first else None)
    return uses


def layerOf(proto: Any, aliases: Any = EMPTY) -> Any:
    """A node's operator, weights and attributes, equal at all positions of one layer; None for other operators."""
    if proto.op_type not in LAYERS:
        return None
    attributes = b"".join(sorted(a.SerializeToString(deterministic=True) for a in proto.attribute))
    isRecurrent = proto.op_type in RECURRENT  # their initial states are not weights, and outputs may be left out
    weights = [aliases.get(name, name) for name in proto.input[1 : 4 if isRecurrent else None]]
    return proto.op_type, (*weights, *(map(bool, proto.output) if isRecurrent else ())), attributes


def graphsOf(proto: Any) -> list[Any]:
    """The graphs in the attributes of a node. The oldest files do not say which type an attribute has."""
    return [g for a in proto.attribute if a.type in GRAPHS for g in (*([a.g] if a.HasField("g") else ()), *a.graphs)]


def freeNames(graph: Any, known: Names) -> list[str]:
    """The names that a graph reads from outside, in order; computed once."""
    if ("free", id(graph)) not in known:
        known["free", id(graph)] = graph, namesFromOutside(graph, known)
    return known["free", id(graph)][1]


def namesFromOutside(graph: Any, known: Names) -> list[str]:
    """The names that a graph's nodes read from outside."""
    outputs = [info.name for info in graph.output]
    innerNames = {*(info.name for info in graph.input), *(tensor.name for tensor in graph.initializer)}
    outsideNames: dict[str, None] = {}
    for proto in needed(graph.node, outputs, known):
        names = [name for name in proto.input if name]
        names += [name for inner in graphsOf(proto) for name in freeNames(inner, known)]
        outsideNames.update(dict.fromkeys(name for name in names if name not in innerNames))
        innerNames.update(proto.output)
    outsideNames.update(dict.fromkeys(name for name in outputs if name not in innerNames))
    return list(outsideNames)


def eachNode(nodes: Any) -> Iterator[Any]:
    """All nodes, each before the nodes of the graphs in its attributes."""
    for node in nodes:
        yield node
        for graph in graphsOf(node):
            yield from eachNode(graph.node)


def countNodes(model: Any) -> int:
    """The number of nodes in a model, including functions and graphs in attributes."""
    bodies = [model.graph.node, *(function.node for function in model.functions)]
    return sum(1 for nodes in bodies for _ in eachNode(nodes))
