"""AcyclicDirectedGraph: nodes and labelled edges that can be edited at any time, and the plan made from them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from puregraph.autodiff.analog.edges import Edge, check_edge_parameters, side
from puregraph.autodiff.analog.executionplan import ExecutionPlan, InspectRow, ordered, reachable, steps_of
from puregraph.autodiff.analog.graphdrawing import dot_of, networkx_of, place_in, table
from puregraph.autodiff.analog.graphenum import GraphEnum
from puregraph.autodiff.analog.modelgraphstate import ModelGraphState
from puregraph.autodiff.analog.nodelabels import kind_of, label_of, names_for
from puregraph.errors import GraphError, plural
from puregraph.node import Node


class AcyclicDirectedGraph:
    """A graph of callables: modules, Functions, plain functions, graphs. A node is known by its identity.

    Its plan, a flat list, is made when it is first needed, and again after an edit; `compile(is_static=False)` makes a
    new one for each pass. Nodes may be given by name wherever they stand in the graph already.
    """

    INPUT = GraphEnum.INPUT
    OUTPUT = GraphEnum.OUTPUT
    START, END = GraphEnum.INPUT, GraphEnum.OUTPUT  # where a pass begins and ends

    def __init__(self, graph_state: ModelGraphState | None = None):
        self.graph_state = ModelGraphState() if graph_state is None else graph_state
        self.is_static = True
        self.version = 0
        self._clear()

    def _clear(self) -> None:
        self.nodes: dict[Any, int] = {}
        self.incoming: dict[Any, dict[Edge, None]] = {}
        self.outgoing: dict[Any, dict[Edge, None]] = {}
        self._keys: dict[tuple, Edge] = {}
        self.given_names: dict[Any, str] = {}
        self._names: tuple[int, dict[Any, str], dict[str, Any]] | None = None
        self._plans: dict[Any, ExecutionPlan] = {}
        self._count = 0
        self.version += 1

    # Building ---------------------------------------------------------------------------------------------------------

    @staticmethod
    def check_edge_parameters(
        in_arg: Any = None, in_kwarg: Any = None, out_arg: Any = None, out_kwarg: Any = None
    ) -> dict[str, Any]:
        """The parameters of an edge, completed; see `edges.check_edge_parameters`."""
        return check_edge_parameters(in_arg, in_kwarg, out_arg, out_kwarg)

    def add_node(self, node: Any, name: str | None = None) -> Any:
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
        source: Any,
        target: Any,
        in_arg: Any = None,
        in_kwarg: Any = None,
        out_arg: Any = None,
        out_kwarg: Any = None,
    ) -> AcyclicDirectedGraph:
        """Hand values of `source` to `target`: which (`in_*`), and where in its call (`out_*`).

        An edge that is there already is not doubled. A second edge from the same source to the same slot replaces the
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

    def add_connection(self, *nodes: Any) -> AcyclicDirectedGraph:
        """A chain: everything that a node gives goes to the next one."""
        for source, target in zip(nodes, nodes[1:]):
            self.add_edge(source, target)
        return self

    def _key(self, edge: Edge) -> tuple:
        """What makes two edges one: the same slot of the same target, or all the same."""
        slot = side(edge.out_arg, edge.out_kwarg)
        if edge.given is not None:
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
        """Put an edge in the place of another, among its target's edges too."""
        edges = [new if edge is old else edge for edge in self.incoming[old.target]]
        self._drop(old)
        self.attach(new)
        if new.target is old.target:
            self.incoming[new.target] = dict.fromkeys(edges)

    # Editing ----------------------------------------------------------------------------------------------------------

    def edges_between(self, source: Any, target: Any) -> list[Edge]:
        """The edges from one node to another.

        Raises    GraphError if there is none
        """
        source, target = self.known(source), self.known(target)
        found = [edge for edge in self.outgoing[source] if edge.target == target]
        if not found:
            raise GraphError(f"there is no edge from '{self.name_of(source)}' to '{self.name_of(target)}'")
        return found

    def remove_edge(self, source: Any, target: Any) -> AcyclicDirectedGraph:
        """Remove all edges from one node to another."""
        for edge in self.edges_between(source, target):
            self._drop(edge)
        return self

    def remove_node(self, node: Any) -> AcyclicDirectedGraph:
        """Remove a node with all its edges."""
        node = self.known(node)
        for edge in [*self.incoming[node], *self.outgoing[node]]:
            self._drop(edge)
        del self.nodes[node], self.incoming[node], self.outgoing[node]
        self.given_names.pop(node, None)
        self.version += 1
        return self

    def insert(self, node: Any, source: Any, target: Any) -> AcyclicDirectedGraph:
        """Put a node on the edges from `source` to `target`: it is called with what they carry, and gives it on.

        Raises    GraphError if the node stands in the graph already, or an edge of unknown width is one of several
        """
        edges = self.edges_between(source, target)
        if node in self.nodes:
            raise GraphError(f"'{self.name_of(node)}' stands in the graph already: insert an Occurrence of it")
        if len(edges) > 1 and any(edge.taken is None or edge.given is None for edge in edges):
            raise GraphError(
                f"'{self.name_of(edges[0].source)}' and '{self.name_of(edges[0].target)}' have {len(edges)} edges, "
                "and not all say which value goes where: give them in_arg and out_arg"
            )
        self.add_node(node)
        for place, edge in enumerate(edges):
            before, after = self._halves(edge, node, place)
            self._swap(edge, after)
            self.attach(before)
        return self

    def _halves(self, edge: Edge, node: Any, place: int) -> tuple[Edge, Edge]:
        """The two edges in place of one into which a node is put."""
        if edge.taken is None:
            return edge.moved(target=node), edge.moved(source=node)
        before = edge.moved(target=node, out_arg=place, out_kwarg=None)
        return before, edge.moved(source=node, in_arg=place, in_kwarg=None)

    def replace(self, old: Any, new: Any) -> AcyclicDirectedGraph:
        """Put a node in the place of another: its edges stay."""
        old = self.known(old)
        if new in self.nodes:
            raise GraphError(f"'{self.name_of(new)}' stands in the graph already: use an Occurrence of it")
        self.add_node(new)
        self.nodes[new] = self.nodes[old]
        for edge in list(self.incoming[old]):
            self._drop(edge)
            self.attach(edge.moved(target=new))
        for edge in list(self.outgoing[old]):
            self._swap(edge, edge.moved(source=new))
        return self.remove_node(old)

    # Names ------------------------------------------------------------------------------------------------------------

    def node(self, node: Any) -> Any:
        """A node from its name; anything that is not a text is the node itself."""
        return self.known(node) if isinstance(node, str) else node

    def known(self, node: Any) -> Any:
        """A node of this graph, from itself or its name.

        Raises    GraphError listing the nodes if it is not there
        """
        found = self._named()[1].get(node) if isinstance(node, str) else node
        if found is None or found not in self.nodes:
            names = list(self.names.values())
            more = f" and {len(names) - 8} more" if len(names) > 8 else ""
            said = repr(node) if isinstance(node, str) else f"'{label_of(node)}'"
            raise GraphError(f"the graph has no node {said}; it has {', '.join(names[:8]) or 'none'}{more}")
        return found

    def __contains__(self, node: Any) -> bool:
        return (node in self._named()[1]) if isinstance(node, str) else node in self.nodes

    def __getitem__(self, name: str) -> Any:
        return self.known(name)

    @property
    def names(self) -> dict[Any, str]:
        """Every node's name: the given one, else its module's or function's, numbered where it would stand twice."""
        return self._named()[0]

    def _named(self) -> tuple[dict[Any, str], dict[str, Any]]:
        if self._names is None or self._names[0] != self.version:
            names = names_for(self.nodes, self.given_names)
            self._names = self.version, names, {name: node for node, name in names.items()}
        return self._names[1:]

    def name_of(self, node: Any) -> str:
        """The name of a node as messages give it."""
        return self.names.get(node) or label_of(node)

    def place_of(self, node: Any) -> str:
        """A node as messages give its place: its name and kind."""
        kind = kind_of(node)
        return f"at '{self.name_of(node)}'" + (f" ({kind})" if kind else "")

    # Planning ---------------------------------------------------------------------------------------------------------

    def compile(self, is_static: bool = True) -> Any:
        """Make the plan now, so that what is wrong with the graph is said now.

        `is_static`    keep the plan until the graph is edited; otherwise each pass makes its own

        Raises    GraphError (a ValueError) for a cycle, named in full, or a graph without INPUT or OUTPUT
        """
        self.is_static = is_static
        self._plans.clear()
        self._plan_from(self.START)
        return self

    @property
    def plan(self) -> ExecutionPlan:
        """What a pass does: the same object as long as a static graph is not edited."""
        return self._plan_from(self.START)

    def _plan_from(self, start: Any) -> ExecutionPlan:
        kept = self._plans.get(start)
        if kept is not None and self.is_static and kept.version == self.version:
            return kept
        plan = self._make_plan(start)
        self._plans = {node: p for node, p in self._plans.items() if p.version == self.version}
        self._plans[start] = plan
        return plan

    def _make_plan(self, start: Any) -> ExecutionPlan:
        self._check_ends(start)
        inside = reachable([start], lambda node: (edge.target for edge in self.outgoing[node]))
        inside |= self._feeding(inside, start)
        nodes = {node: self.nodes[node] for node in inside}
        return ExecutionPlan(
            start, self.version, steps_of(ordered(nodes, self.incoming, self.outgoing, self.name_of), self.incoming)
        )

    def _feeding(self, inside: set[Any], start: Any) -> set[Any]:
        """Nodes that run although nothing leads to them from the start: none, or those that others read."""
        return set()

    def _check_ends(self, start: Any) -> None:
        for end in {start: None, self.OUTPUT: None} if start is self.START else [start]:
            if end not in self.nodes:
                raise GraphError(
                    f"{end if isinstance(end, GraphEnum) else self.name_of(end)} doesn't exist in the "
                    f"{self.title()}, which has {plural(len(self.nodes), 'node')}: "
                    f"connect it first, for example add_connection({self.START}, node, {self.END})"
                )

    # Looking ----------------------------------------------------------------------------------------------------------

    @property
    def graph(self) -> Any:
        """This graph, as it is now, as a networkx MultiDiGraph; its edges have `in_arg in_kwarg out_arg out_kwarg`."""
        return networkx_of(self)

    def inspect(self) -> list[InspectRow]:
        """The plan in words: `(step, node, reads, writes)` for each step."""
        names, plan = self.names, self.plan
        running = {step.node for step in plan.steps}
        return [
            InspectRow(
                number, names[step.node], tuple(self._reads(step.edges)), tuple(self._writes(step.node, running))
            )
            for number, step in enumerate(plan.steps)
        ]

    def _reads(self, edges: Iterable[Edge]) -> list[str]:
        """What a step reads, by name."""
        return list(dict.fromkeys(self.names[edge.source] + self.taken_label(edge) for edge in edges))

    def _writes(self, node: Any, running: set[Any]) -> list[str]:
        """What a step gives, and to whom."""
        edges = [edge for edge in self.outgoing[node] if edge.target in running]
        return list(dict.fromkeys(self.names[edge.target] + self.given_label(edge) for edge in edges))

    def taken_label(self, edge: Edge) -> str:
        """Which of its source's values an edge takes; nothing for all of them, or the only one."""
        return place_in(edge.in_arg, edge.in_kwarg)

    def given_label(self, edge: Edge) -> str:
        """Which of its target's slots an edge fills."""
        return place_in(edge.out_arg, edge.out_kwarg)

    def title(self) -> str:
        """What kind of graph it is, under the name that users know."""
        return type(self).__name__.removeprefix("Editable")

    def __str__(self) -> str:
        """The plan as a table, a line each step; of a graph that cannot run, why."""
        try:
            rows = self.inspect()
        except GraphError as error:
            return f"{self!r}\n\n{error}"
        inside = {row.node for row in rows}
        left = [name for name in self.names.values() if name not in inside]
        return table(repr(self), rows, [f"not reached from {self.START}: {', '.join(left)}"] if left else [])

    def __repr__(self) -> str:
        edges = sum(map(len, self.incoming.values()))
        return (
            f"<{self.title()}: {plural(len(self.nodes), 'node')}, {plural(edges, 'edge')}, "
            f"{'static' if self.is_static else 'dynamic'}>"
        )

    def dot(self) -> str:
        """This graph in the language of Graphviz, each edge with its label."""
        return dot_of(self)

    def save(self, path: str | Path) -> Path:
        """Write `dot()` to a file, for `dot -Tsvg`."""
        path = Path(path)
        path.write_text(self.dot(), encoding="utf-8")
        return path
