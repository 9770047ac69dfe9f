"""ModelNodes: the order of a model's nodes, and the names of its weights and constants."""

from __future__ import annotations

from typing import Any

from puregraph.onnx.protowalk import eachNode, graphsOf, readsOf

NORMED = ("x", "scale", "bias", "mean", "var")
ROLES = {  # names of an operator's inputs
    **dict.fromkeys(("Gemm", "MatMul", "Conv", "ConvTranspose"), ("x", "W", "b")),
    **dict.fromkeys(("RNN", "GRU", "LSTM"), ("x", "W", "R", "b", "lengths", "h", "c", "p")),
    **dict.fromkeys(("BatchNormalization", "LayerNormalization", "InstanceNormalization"), NORMED),
}


def ordered(nodes: list[Any], outputs: list[str]) -> list[Any]:
    """The nodes that lead to the outputs, in topological order, following the order of inputs."""
    makers = {name: node for node in nodes for name in node.output if name}
    order: list[Any] = []
    seen: set[int] = set()
    stack: list[tuple[str, bool]] = [(name, False) for name in reversed(outputs)]
    while stack:
        name, isReady = stack.pop()
        node = makers.get(name)
        if node is None or id(node) in seen:
            continue
        if isReady:
            seen.add(id(node))
            order.append(node)
        else:
            stack.append((name, True))
            stack += [(i, False) for i in reversed(readsOf(node))]
    return order


def renamed(nodes: list[Any], weights: set[str], outputs: set[str]) -> dict[str, str]:
    """Name constants and weights after the first node that reads them, so that a model that is read and written again
    keeps its names; returns the new name of each old one."""
    inside = list(eachNode(nodes))
    graphs = [graph for node in inside for graph in graphsOf(node)]
    fixed = {node.output[0]: node for node in inside if node.op_type == "Constant"}
    kept = outputs | {info.name for graph in graphs for info in graph.output}
    newNames: dict[str, str] = {}
    for node in inside:
        for i, name in enumerate(node.input):
            if name not in newNames and name not in kept and (name in fixed or name in weights):
                roles = ROLES.get(node.op_type, ())
                newNames[name] = f"{roles[i] if i < len(roles) else i}@{node.name}"
    for node in inside:
        for ends in (node.input, node.output):
            for i, name in enumerate(ends):
                ends[i] = newNames.get(name, name)
        if node.op_type == "Constant":
            node.name = node.output[0]
    return newNames
