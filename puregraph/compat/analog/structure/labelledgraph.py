"""LabelledGraph: nodes known by identity or name, and edges that say which value goes where."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from puregraph.compat.analog.structure.edges import Edge, check_edge_parameters, side
from puregraph.compat.analog.structure.graphenum import GraphEnum
from puregraph.compat.analog.structure.nodelabels import kind_of, label_of, names_for
from puregraph.core.errors import GraphError
from puregraph.graph.node import Node

if TYPE_CHECKING:
    from collections.abc import Hashable


class LabelledGraph:
    """Nodes and labelled edges; each edit raises `version`. A node that stands here may be given by its name."""

    INPUT = GraphEnum.INPUT
    OUTPUT = GraphEnum.OUTPUT
    START, END = GraphEnum.INPUT, GraphEnum.OUTPUT  # where a pass begins and ends

    def __init__(self) -> None:
        self.version = 0
        self._clear()

    def _clear(self) -> None:
        self.nodes: dict[Hashable, int] = {}
        self.incoming: dict[Hashable, dict[Edge, None]] = {}
        self.outgoing: dict[Hashable, dict[Edge, None]] = {}
        self._keys: dict[tuple, Edge] = {}
        self.given_names: dict[Hashable, str] = {}
        self._names: tuple[int, dict[Hashable, str], dict[str, Any]] | None = None
        self._count = 0
        self.version += 1

    # Edges ------------------------------------------------------------------------------------------------------------

    @staticmethod
    def check_edge_parameters(
        in_arg: Any = None, in_kwarg: Any = None, out_arg: Any = None, out_kwarg: Any = None
    ) -> dict[str, Any]:
        """The parameters of an edge, completed; see `edges.check_edge_parameters`."""
        return check_edge_parameters(in_arg, in_kwarg, out_arg, out_kwarg)

    def add_node(self, node: Hashable, name: str | None = None) -> Any:
        """Add a node that has no edge yet, if it is not there; `name` is what it is called here.

        Raises    GraphError if it cannot be called
        """
        try:
            known = node in self.nodes
        except TypeError:
            raise GraphError(
                f"a node is known by its hash, and {type(node).__name__} has none: put it into an Occurrence"
            ) from None
        if not known:
            if not (callable(node) or isinstance(node, (GraphEnum, Node)) or hasattr(node, "backward")):
                raise GraphError(
                    f"a node wanted something to call (a module, a Function, a function, a graph), got {node!r:.80}"
                )
            self._count += 1
            self.nodes[node] = self._count
            self.incoming[node], self.outgoing[node] = {}, {}
            self.version += 1
        if name is not None:
            self.given_names[node] = name
            self.version += 1
        return node

    def add_edge(
        self,
        source: Hashable,
        target: Hashable,
        in_arg: Any = None,
        in_kwarg: Any = None,
        out_arg: Any = None,
        out_kwarg: Any = None,
    ) -> Any:
        """Add an edge that passes values of `source`, selected by `in_*`, to arguments of `target`, `out_*`.

        An existing edge is not added again. A second edge from the same source to the same slot replaces the
        first.

        Raises    GraphError for parameters that do not fit together, or a slot that another node fills
        """
        parameters = check_edge_parameters(in_arg, in_kwarg, out_arg, out_kwarg)
        source, target = self.node(source), self.node(target)
        if target is self.START or source is self.END:
            raise GraphError(
                f"an edge from '{self.name_of(source)}' to '{self.name_of(target)}': "
                f"nothing goes into {self.START}, and nothing comes out of {self.END}"
            )
        self._append(Edge(self.add_node(source), self.add_node(target), **parameters))
        return self

    def add_connection(self, *nodes: Any) -> Any:
        """A chain: everything that a node gives goes to the next one."""
        for source, target in zip(nodes, nodes[1:]):
            self.add_edge(source, target)
        return self

    def _key(self, edge: Edge) -> tuple:
        """The identity of an edge: its target's slot, or both ends where it fills no single slot."""
        slot = side(edge.out_arg, edge.out_kwarg)
        if edge.slot is not None:
            return edge.target, slot
        return edge.source, side(edge.in_arg, edge.in_kwarg), edge.target, slot

    def _append(self, edge: Edge) -> None:
        """Add an edge, in place of the one that it replaces."""
        key = self._key(edge)
        old = self._keys.get(key)
        if old is not None:
            if old.source != edge.source:
                raise GraphError(
                    f"'{self.name_of(edge.target)}' gets {side(edge.out_arg, edge.out_kwarg)} from "
                    f"'{self.name_of(old.source)}' already, and not from '{self.name_of(edge.source)}' too"
                )
            if old.label == edge.label:
                return
            self._drop(old)
        self.attach(edge)

    def attach(self, edge: Edge) -> None:
        """Add an edge that is known to be new."""
        self._keys[self._key(edge)] = edge
        self._link(edge)

    def _link(self, edge: Edge) -> None:
        self.incoming[edge.target][edge] = None
        self.outgoing[edge.source][edge] = None
        self.version += 1

    def _drop(self, edge: Edge) -> None:
        del self.incoming[edge.target][edge]
        del self.outgoing[edge.source][edge]
        if self._keys.get(self._key(edge)) is edge:
            del self._keys[self._key(edge)]
        self.version += 1

    def _swap(self, old: Edge, new: Edge) -> None:
        """Replace an edge by another, among its target's edges too."""
        edges = [new if edge is old else edge for edge in self.incoming[old.target]]
        self._drop(old)
        self.attach(new)
        if new.target is old.target:
            self.incoming[new.target] = dict.fromkeys(edges)

    # Names ------------------------------------------------------------------------------------------------------------

    def node(self, node: Any) -> Any:
        """A node from its name; anything that is not a text is the node itself."""
        return self.known(node) if isinstance(node, str) else node

    def known(self, node: Hashable) -> Any:
        """Look up a node of this graph, by itself or by its name.

        Raises    GraphError listing the nodes if it is not there
        """
        match = self._named()[1].get(node) if isinstance(node, str) else node
        if match is None or match not in self.nodes:
            names = list(self.names.values())
            more = f" and {len(names) - 8} more" if len(names) > 8 else ""
            said = repr(node) if isinstance(node, str) else f"'{label_of(node)}'"
            raise GraphError(f"the graph has no node {said}; it has {', '.join(names[:8]) or 'none'}{more}")
        return match

    def __contains__(self, node: Hashable) -> bool:
        return (node in self._named()[1]) if isinstance(node, str) else node in self.nodes

    def __getitem__(self, name: str) -> Node:
        return self.known(name)

    @property
    def names(self) -> dict[Hashable, str]:
        """Every node's name: the given one, else its module's or function's, numbered where it would stand twice."""
        return self._named()[0]

    def _named(self) -> tuple[dict[Hashable, str], dict[str, Any]]:
        if self._names is None or self._names[0] != self.version:
            names = names_for(self.nodes, self.given_names)
            self._names = self.version, names, {name: node for node, name in names.items()}
        return self._names[1:]

    def name_of(self, node: Hashable) -> str:
        """The name of a node as messages give it."""
        return self.names.get(node) or label_of(node)

    def location_of(self, node: Hashable) -> str:
        """The location of a node as messages give it: its name and kind."""
        kind = kind_of(node)
        return f"at '{self.name_of(node)}'" + (f" ({kind})" if kind else "")
