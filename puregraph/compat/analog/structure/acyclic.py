"""AcyclicDirectedGraph: nodes and labelled edges that can be edited at any time, and the plan made from them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from puregraph.compat.analog.modelgraphstate import ModelGraphState
from puregraph.compat.analog.structure.edges import Edge
from puregraph.compat.analog.structure.executionplan import ExecutionPlan, InspectRow, ordered, reachable, steps_of
from puregraph.compat.analog.structure.graphdrawing import dot_of, networkx_of, table, value_label
from puregraph.compat.analog.structure.graphenum import GraphEnum
from puregraph.compat.analog.structure.labelledgraph import LabelledGraph
from puregraph.core.errors import GraphError, plural
from puregraph.core.late import Late

if TYPE_CHECKING:
    from collections.abc import Hashable


class AcyclicDirectedGraph(LabelledGraph):
    """A graph of callables: modules, Functions, plain functions, graphs. A node is known by its identity.

    Its plan, a flat list, is made when it is first needed, and again after an edit; `compile(is_static=False)` makes a
    new one for each pass. A node that is in the graph may also be passed by its name.

    >>> graph = ForwardGraph()                             # a graph that runs is one of its subclasses
    >>> _ = graph.add_connection(graph.INPUT, np.tanh, np.negative, graph.OUTPUT)
    >>> _ = graph.remove_node(np.negative)
    >>> _ = graph.add_connection(np.tanh, graph.OUTPUT)
    >>> isinstance(graph, AcyclicDirectedGraph), graph(np.zeros(1))
    (True, array([0.]))
    """

    def __init__(self, graph_state: ModelGraphState | None = None):
        self.graph_state = ModelGraphState() if graph_state is None else graph_state
        self.is_static = True
        self._plans: dict[Hashable, ExecutionPlan] = {}
        super().__init__()

    # Editing ----------------------------------------------------------------------------------------------------------

    def edges_between(self, source: Hashable, target: Hashable) -> list[Edge]:
        """The edges from one node to another.

        Raises    GraphError if there is none
        """
        source, target = self.known(source), self.known(target)
        edges = [edge for edge in self.outgoing[source] if edge.target == target]
        if not edges:
            raise GraphError(f"there is no edge from '{self.name_of(source)}' to '{self.name_of(target)}'")
        return edges

    def remove_edge(self, source: Hashable, target: Hashable) -> AcyclicDirectedGraph:
        """Remove all edges from one node to another."""
        for edge in self.edges_between(source, target):
            self._drop(edge)
        return self

    def remove_node(self, node: Hashable) -> AcyclicDirectedGraph:
        """Remove a node with all its edges."""
        node = self.known(node)
        for edge in [*self.incoming[node], *self.outgoing[node]]:
            self._drop(edge)
        del self.nodes[node], self.incoming[node], self.outgoing[node]
        self.given_names.pop(node, None)
        self.version += 1
        return self

    def insert(self, node: Hashable, source: Hashable, target: Hashable) -> AcyclicDirectedGraph:
        """Put a node on the edges from `source` to `target`: it is called with what they carry, and gives it on.

        Raises    GraphError if the node stands in the graph already, or an edge of unknown width is one of several
        """
        edges = self.edges_between(source, target)
        if node in self.nodes:
            raise GraphError(f"'{self.name_of(node)}' stands in the graph already: insert an Occurrence of it")
        if len(edges) > 1 and any(edge.taken is None or edge.slot is None for edge in edges):
            raise GraphError(
                f"'{self.name_of(edges[0].source)}' and '{self.name_of(edges[0].target)}' have {len(edges)} edges, "
                "and not all say which value goes where: give them in_arg and out_arg"
            )
        self.add_node(node)
        for position, edge in enumerate(edges):
            before, after = self._halves(edge, node, position)
            self._swap(edge, after)
            self.attach(before)
        return self

    def _halves(self, edge: Edge, node: Hashable, position: int) -> tuple[Edge, Edge]:
        """Return the two edges that replace an edge when a node is inserted."""
        if edge.taken is None:
            return edge.moved(target=node), edge.moved(source=node)
        before = edge.moved(target=node, out_arg=position, out_kwarg=None)
        return before, edge.moved(source=node, in_arg=position, in_kwarg=None)

    def replace(self, old: Hashable, new: Any) -> AcyclicDirectedGraph:
        """Replace a node by another: its edges stay."""
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

    # Planning ---------------------------------------------------------------------------------------------------------

    def compile(self, is_static: bool = True) -> AcyclicDirectedGraph | None:
        """Make the plan now, so that errors in the graph are reported now.

        `is_static`    keep the plan until the graph is edited; otherwise each pass makes its own

        Raises    GraphError (a ValueError) for a cycle, named in full, or a graph without INPUT or OUTPUT
        """
        self.is_static = is_static
        self._plans.clear()
        self._plan_from(self.START)
        return self

    @property
    def plan(self) -> ExecutionPlan:
        """The steps of a pass: the same object as long as a static graph is not edited."""
        return self._plan_from(self.START)

    def _plan_from(self, start: Hashable) -> ExecutionPlan:
        kept = self._plans.get(start)
        if kept is not None and self.is_static and kept.version == self.version:
            return kept
        plan = self._make_plan(start)
        self._plans = {node: p for node, p in self._plans.items() if p.version == self.version}
        self._plans[start] = plan
        return plan

    def _make_plan(self, start: Hashable) -> ExecutionPlan:
        self._check_ends(start)
        inside = reachable([start], lambda node: (edge.target for edge in self.outgoing[node]))
        inside |= self._feeding(inside, start)
        nodes = {node: self.nodes[node] for node in inside}
        return ExecutionPlan(
            start, self.version, steps_of(ordered(nodes, self.incoming, self.outgoing, self.name_of), self.incoming)
        )

    def _feeding(self, inside: set[Hashable], start: Hashable) -> set[Hashable]:
        """Return nodes that run although they are not reachable from the start; none by default."""
        return set()

    def _check_ends(self, start: Hashable) -> None:
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
        """The names of the values that a step reads."""
        return list(dict.fromkeys(self.names[edge.source] + self.taken_label(edge) for edge in edges))

    def _writes(self, node: Hashable, running: set[Hashable]) -> list[str]:
        """The names of the nodes that a step's results go to."""
        edges = [edge for edge in self.outgoing[node] if edge.target in running]
        return list(dict.fromkeys(self.names[edge.target] + self.given_label(edge) for edge in edges))

    def taken_label(self, edge: Edge) -> str:
        """The suffix of the source's value that an edge takes; nothing for all values, or the only one."""
        return value_label(edge.in_arg, edge.in_kwarg)

    def given_label(self, edge: Edge) -> str:
        """The suffix of the target's slot that an edge fills."""
        return value_label(edge.out_arg, edge.out_kwarg)

    def title(self) -> str:
        """The kind of graph, under its public name."""
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

    draw = Late("puregraph.draw.callablepicture", "drawCallables")

    def _repr_html_(self) -> str:
        return self.draw()._repr_html_()

    def dot(self) -> str:
        """This graph in the language of Graphviz, each edge with its label."""
        return dot_of(self)

    def save(self, path: str | Path) -> Path:
        """Write `dot()` to a file, for `dot -Tsvg`."""
        path = Path(path)
        path.write_text(self.dot(), encoding="utf-8")
        return path

    def render(self, filename: str | Path = "graph", directory: str | Path | None = None, format: str = "") -> Path:
        """Draw this graph into a file and return its path: in `format`, by default that of the path's suffix, or svg.

        `format`    svg, png, html or dot

        Raises    ArgumentError for another format

        >>> from tempfile import mkdtemp
        >>> graph = ForwardGraph()
        >>> _ = graph.add_connection(graph.INPUT, np.tanh, graph.OUTPUT)
        >>> graph.render("net", mkdtemp(), format="dot").name
        'net.dot'
        """
        path = Path(directory or "") / filename
        if format or not path.suffix:
            path = path.with_name(f"{path.name}.{format or 'svg'}")
        path.parent.mkdir(parents=True, exist_ok=True)
        self.draw(path)
        return path
