"""Linking: the checks and names of the nodes between a graph's inputs and outputs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from puregraph.core.errors import GraphError, GraphWarning
from puregraph.core.errors.userwarning import warnUser
from puregraph.core.linkednode import nodeInstead
from puregraph.core.traversal import parents
from puregraph.graph.lookup import few
from puregraph.graph.node import Node

if TYPE_CHECKING:
    from puregraph.core.linkednode import Parents


def asList(outputs: Parents) -> list[Any]:
    """Outputs as a list; `(node, slot)` is one output."""
    if isinstance(outputs, tuple) and len(outputs) == 2 and not isinstance(outputs[1], (Node, tuple)):
        return [outputs]
    return list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]


def edgesOf(output: Parents) -> list[tuple[Node, int]]:
    """The edges of one output: a Node or (node, slot)."""
    node, slots = output if isinstance(output, tuple) and len(output) == 2 else (output, None)
    if not isinstance(node, Node):
        hint = nodeInstead(node)
        raise GraphError(f"an output of a graph must be a Node or (node, slot), got {type(node).__name__}{hint}")
    chosen = node.slotsFrom(slots, node)
    return [(node, slot) for slot in (range(len(node.module.outputNames)) if chosen is None else chosen)]


def checkInputs(inputs: list[Node]) -> None:
    """Check that the inputs of a graph are nodes without parents, without repeats.

    Raises    GraphError naming the one that is not
    """
    for node in inputs:
        if not isinstance(node, Node):
            raise GraphError(
                f"an input of a graph must be a Node, got {type(node).__name__}; make one with Input().node()"
            )
        if node.bwds:
            raise GraphError(
                f"input '{node}' ({node.label}) has parents: {', '.join(map(repr, map(str, parents(node))))}"
            )
    if len(set(inputs)) < len(inputs):
        raise GraphError(f"an input is given twice: {', '.join(map(str, inputs))}")


def checkReached(nodes: list[Node], inputs: list[Node]) -> None:
    """Check that every node that takes arguments has parents, or is an input.

    Raises    GraphError naming those that no input reaches
    """
    entered = set(inputs)
    lost = [n for n in nodes if not n.bwds and n not in entered and n.module.arguments]
    if lost:
        raise GraphError(
            f"the outputs need {', '.join(f'{str(n)!r} ({n.label})' for n in lost)}, which no input reaches: "
            "add it to the graph's inputs, or give it parents"
        )


def warnLeftOut(nodes: list[Node], inputs: list[Node], outputs: list[Node]) -> None:
    """Warn once of the first nodes of branches that lead to no output, unless another graph uses them."""
    inside, ends = set(nodes), set(outputs)
    out = [n for n in inputs if n not in inside]
    out += [link.node for n in nodes if n not in ends for link in n.fwds if link.node not in inside]
    out = [n for n in dict.fromkeys(out) if not n.noticed]
    for node in (*nodes, *out):
        node.noticed = True
    if out:
        names = few([f"'{n}' ({n.label})" for n in out], 12)
        warnUser(f"left out, because no output of the graph needs it: {names}", GraphWarning)


def namesFor(nodes: list[Node]) -> dict[Node, str]:
    """A name for each node: its own, or one by position (`relu`, `relu2`); never from a global counter.

    Raises    GraphError if two nodes have the same name
    """
    owners: dict[str, Node] = {}
    paths: dict[Node, str | None] = {}
    for node in nodes:
        name = node.rename or node.module.name
        other = owners.get(name) if name else None
        if other is not None and (other.module is not node.module or node.rename):
            raise GraphError(f"two nodes are named '{name}': a {other.label} and a {node.label}; give one another name")
        paths[node] = name if other is None else None
        if name:
            owners.setdefault(name, node)
    taken = set(owners)
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
