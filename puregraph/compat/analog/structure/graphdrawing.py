"""A graph of callables as a table, or for Graphviz or networkx."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from puregraph.compat.analog.accumulategrad import AccumulateGrad
from puregraph.compat.analog.structure.edges import side
from puregraph.compat.analog.structure.executionplan import InspectRow
from puregraph.compat.analog.structure.graphenum import GraphEnum

if TYPE_CHECKING:
    from puregraph.compat.analog.structure.acyclic import AcyclicDirectedGraph


def table(head: str, rows: list[InspectRow], notes: list[str]) -> str:
    """A plan in columns, a line each step."""
    cells = [("step", "node", "reads", "writes")]
    cells += [(str(r.step), r.node, ", ".join(r.reads) or "-", ", ".join(r.writes) or "-") for r in rows]
    wide = [max(map(len, column)) for column in zip(*cells)]
    lines = [f"{s:>{wide[0]}}  {n:{wide[1]}}  {r:{wide[2]}}  {w}".rstrip() for s, n, r, w in cells]
    rule = "-" * (sum(wide) + 2 * len(wide) - 2)
    return "\n".join([head, "", lines[0], rule, *lines[1:], *(["", *notes] if notes else [])])


def value_label(arg: Any, kwarg: Any) -> str:
    """The suffix for one of a node's values in listings; nothing for all of them."""
    text = side(arg, kwarg)
    return "" if text in ("*", "[]", "{}") else text


def dot_of(graph: AcyclicDirectedGraph) -> str:
    """A graph in the language of Graphviz, each edge with its label."""
    names = graph.names
    number = {node: f"n{i}" for i, node in enumerate(graph.nodes)}
    lines = [f"digraph {type(graph).__name__} {{", "  node [shape=box, style=rounded];"]
    for node, key in number.items():
        shape = ", shape=ellipse" if isinstance(node, (GraphEnum, AccumulateGrad)) else ""
        lines.append(f"  {key} [label={quoted(names[node])}{shape}];")
    for edges in graph.outgoing.values():
        for edge in edges:
            isLabelled = graph.taken_label(edge) or graph.given_label(edge)
            label = f" [label={quoted(edge.label)}]" if isLabelled else ""
            lines.append(f"  {number[edge.source]} -> {number[edge.target]}{label};")
    return "\n".join([*lines, "}"]) + "\n"


def quoted(text: str) -> str:
    """A text in the language of Graphviz."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def networkx_of(graph: AcyclicDirectedGraph) -> Any:
    """A graph as a networkx MultiDiGraph; nodes have a `name`, edges the four parameters.

    Raises    ImportError with the install command, if networkx is not installed
    """
    try:
        import networkx  # for display only
    except ImportError as error:
        raise ImportError("a networkx graph needs networkx: pip install puregraph[networkx]") from error
    digraph = networkx.MultiDiGraph()
    for node, name in graph.names.items():
        digraph.add_node(node, name=name)
    for edges in graph.outgoing.values():
        for edge in edges:
            digraph.add_edge(edge.source, edge.target, label=edge.label, **edge.parameters)
    return digraph
