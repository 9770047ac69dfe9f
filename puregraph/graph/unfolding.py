"""Unfolding: a graph, with the graphs inside it, as one flat list of steps; and its inputs and outputs by name."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from puregraph.core.errors import GraphError, plural
from puregraph.core.traversal import postorder
from puregraph.graph.input import Input
from puregraph.graph.module import Inputs
from puregraph.graph.node import Node
from puregraph.graph.steps import ABSENT, Steps

if TYPE_CHECKING:
    from typing import Any

    from puregraph.graph.nodegraph import NodeGraph


def onlyGraphs(nodes: Iterable[Node]) -> list[Any]:
    """Return the graphs among the modules of nodes."""
    return [node.module for node in nodes if node.module.isGraph]


def graphsIn(graph: Any) -> list[NodeGraph]:
    """Return the graphs among the modules of a graph's nodes."""
    return onlyGraphs(graph.nodes)


def nestedVersions(graph: Any) -> tuple:
    """The versions of all nested graphs, without repeats; they identify the source of a graph's steps."""
    versions: dict[int, int] = {}
    waiting = [graph]
    while waiting:
        for inner in graphsIn(waiting.pop()):
            if id(inner) not in versions:
                versions[id(inner)] = inner.version
                waiting.append(inner)
    return tuple(versions.items())


def unfold(graph: Any, sizes: list[int]) -> Steps:
    """The flat list of a graph's steps, when each input node takes as many values as `sizes` say."""
    flat = Steps()
    value = {}
    sizeOf = dict(zip(graph.inputs, sizes, strict=True))
    for node in graph.inputs:
        value[node] = flat.addInputs(graph.paths.get(node, node.name), inputNames(graph, node, sizeOf[node]))
    for node, path in graph.paths.items():
        if node in sizeOf:
            args = value[node] + (ABSENT,) * (len(node.module.arguments) - sizeOf[node])
        else:
            args = tuple(ABSENT if e is None else value[e[0]][e[1]] for e in node.sources)
        if node.module.isGraph:
            value[node] = flat.unfold(node.module.steps(len(args)), path, args)
            flat.shown.append((node, value[node]))
        elif isinstance(node.module, Input):
            value[node] = args
            flat.shown.append((node, args))
            if node.module.isDeclared:
                flat.declare(path, node, args)
        else:
            handed = {name: value[edge[0]][edge[1]] for name, edge in node.handed.items()}
            value[node] = flat.add(path, node, args, handed)
    flat.outputs = [value[node][slot] for node, slot in graph.outputs]
    return flat


def inputNames(graph: Any, node: Node, count: int) -> list[str]:
    """The names of the values that enter at an input node."""
    path, names = graph.paths.get(node, node.name), node.module.arguments
    if isinstance(node.module, Input):
        return [path]
    if node.module.isGraph:
        inner = node.module.steps(count)
        return [f"{path}.{inner.names[n]}" for n in inner.inputs]
    return [f"{path}.{names[i] if i < len(names) else i}" for i in range(count)]


def inputCounts(graph: Any, count: int | None) -> list[int]:
    """Divide `count` values among the input nodes; extra values go to optional inputs."""
    specs = [n.module.inputSpec for n in graph.inputs]
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
        f"{graph.title()}: wanted {plural(sum(sizes), 'input')} ({', '.join(graph.arguments)}), got {count}"
    )


def inputSpecOf(root: Any) -> Inputs:
    """The inputs of a graph: its input nodes' inputs, under their paths."""
    known: dict[int, Inputs] = {}
    for graph in postorder([root], lambda graph: onlyGraphs(graph.inputs)):
        names, variadic = [], False
        for node in graph.inputs:
            spec = known.get(id(node.module)) or node.module.inputSpec
            variadic = variadic or spec.variadic
            path = graph.paths.get(node, node.name)
            required = [n for n in spec.names if n not in spec.optional]
            names += [path] if len(required) == 1 else [f"{path}.{n}" for n in required]
        known[id(graph)] = Inputs(tuple(names), (), variadic)
    return known[id(root)]


def outputNamesOf(root: Any) -> tuple[str, ...]:
    """The names of a graph's outputs: the paths of their nodes."""
    known: dict[int, tuple[str, ...]] = {}
    for graph in postorder([root], lambda graph: onlyGraphs(n for n, _ in graph.outputs)):
        names = []
        for node, slot in graph.outputs:
            inner = known.get(id(node.module)) or node.module.outputNames
            names.append(graph.paths[node] if len(inner) == 1 else f"{graph.paths[node]}.{inner[slot]}")
        known[id(graph)] = tuple(names)
    return known[id(root)]
