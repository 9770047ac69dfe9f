"""Inverting a forward graph: the nodes and edges of its backward graph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from puregraph.compat.analog.accumulategrad import AccumulateGrad
from puregraph.compat.analog.passes.graphadapter import GraphSource
from puregraph.compat.analog.structure.edges import Edge
from puregraph.compat.analog.structure.executionplan import reachable
from puregraph.compat.analog.structure.graphenum import GraphEnum
from puregraph.core.errors import GraphError

if TYPE_CHECKING:
    from collections.abc import Hashable

    from puregraph.compat.analog.backwardgraph import EditableBackwardGraph


def invert_steps(back: Any, source: GraphSource) -> None:
    """Invert the steps of a puregraph Graph; every edge names its argument and its output."""
    readers = source.edges()
    inside: set[Hashable] = {GraphEnum.OUTPUT}
    entry: dict[Hashable, Any] = {}
    back.add_node(back.OUTPUT)
    for step in reversed(source.steps.items):
        if enter(back, step.node, [slot for slot, reader, _ in readers[step.node] if reader in inside], entry):
            inside.add(step.node)
            back.given_names[step.node] = step.path
    enter(back, back.INPUT, [slot for slot, reader, _ in readers[back.INPUT] if reader in inside], entry)
    for node, first in entry.items():
        for slot, reader, argument in readers[node]:
            if reader in inside:
                back.attach(Edge(reader, first, argument, None, slot, None))


def enter(back: EditableBackwardGraph, node: Hashable, slots: list[int], entry: dict[Hashable, Any]) -> bool:
    """Add a node that is read, and an AccumulateGrad before it if one of its outputs has several readers."""
    if slots:
        entry[node] = back.add_node(AccumulateGrad(node)) if len(set(slots)) < len(slots) else node
        back.add_node(node)
        if entry[node] is not node:
            back.attach(Edge(entry[node], node))
    return bool(slots)


def invert_edges(back: Any, forward: Any) -> None:
    """Invert the edges of a graph of callables; each carries the gradients of the values that moved along it.

    Raises    GraphError if nothing leads to the forward graph's OUTPUT
    """
    if forward.OUTPUT not in forward.nodes:
        raise GraphError(
            f"OUTPUT doesn't exist in the {type(forward).__name__}: connect what gives its output to OUTPUT"
        )
    order = [step.node for step in forward.plan.steps]
    inside = reachable([forward.OUTPUT], lambda node: (edge.source for edge in forward.incoming[node]))
    rank = {node: i for i, node in enumerate(order)}
    inverted = [node for node in reversed(order) if node in inside and node is not back.INPUT]
    for node in inverted + [back.INPUT] * (back.INPUT in inside):
        edges = sorted((e for e in forward.outgoing[node] if e.target in inside), key=lambda e: rank[e.target])
        first = back.add_node(AccumulateGrad(node)) if len(edges) > 1 else node
        back.add_node(node)
        for edge in edges:
            back.attach(Edge(edge.target, first, **edge.reversed_parameters(), forward=edge))
        if first is not node:
            back.attach(Edge(first, node))
    names = forward.names
    back.given_names.update({node: names[node] for node in back.nodes if node in forward.given_names})
