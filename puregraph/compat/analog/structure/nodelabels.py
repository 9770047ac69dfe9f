"""Names of a graph's nodes in listings and messages."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from puregraph.compat.analog.accumulategrad import AccumulateGrad
from puregraph.compat.analog.occurrence import Occurrence
from puregraph.compat.analog.structure.graphenum import GraphEnum
from puregraph.graph.module import Module
from puregraph.graph.node import Node

if TYPE_CHECKING:
    from collections.abc import Hashable


def names_for(nodes: Iterable[Hashable], chosen: dict[Hashable, str]) -> dict[Hashable, str]:
    """A name for each node: from `chosen`, else its default name, numbered where it would repeat."""
    names: dict[Hashable, str] = {}
    taken = {chosen[node] for node in nodes if node in chosen}
    counts: dict[str, int] = {}
    for node in sorted(nodes, key=lambda node: isinstance(node, AccumulateGrad)):  # named last
        name = chosen.get(node)
        if name is None:
            base = f"AccumulateGrad({of(node, names)})" if isinstance(node, AccumulateGrad) else label_of(node)
            name = base
            while name in taken:
                counts[base] = counts.get(base, 1) + 1
                name = f"{base}{counts[base]}"
            taken.add(name)
        names[node] = name
    return names


def of(node: AccumulateGrad, names: dict[Hashable, str]) -> str:
    """The name of the node whose gradients come together."""
    return names.get(node.module) or label_of(node.module)


def label_of(node: Hashable) -> str:
    """The default name of a node: its `name`, else its kind."""
    if isinstance(node, GraphEnum):
        return node.value
    if isinstance(node, Node):
        return node.name
    if isinstance(node, Occurrence):
        return node.name or label_of(node.module)
    if isinstance(node, AccumulateGrad):
        return f"AccumulateGrad({label_of(node.module)})"
    name = getattr(node, "name", None)
    if isinstance(name, str) and name:
        return name
    if isinstance(node, Module):
        return type(node).__name__.lower()
    kind = getattr(node, "__name__", None) or type(node).__name__
    return "lambda" if kind == "<lambda>" else kind


def kind_of(node: Hashable) -> str:
    """The kind of a node as messages give it; nothing where its name says it."""
    if isinstance(node, (Node, Occurrence)):
        return kind_of(node.module)
    if isinstance(node, (GraphEnum, AccumulateGrad)):
        return ""
    if isinstance(node, type):
        return "Function"
    return "function" if hasattr(node, "__name__") else type(node).__name__
