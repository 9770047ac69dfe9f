"""InvertedGraph: the nodes and edges of a backward graph, made from a forward graph and edited."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from puregraph.compat.analog.accumulategrad import AccumulateGrad
from puregraph.compat.analog.forwardgraph import ForwardGraph
from puregraph.compat.analog.modelgraphstate import ModelGraphState
from puregraph.compat.analog.passes.graphadapter import GraphSource
from puregraph.compat.analog.passes.reversal import invert_edges, invert_steps
from puregraph.compat.analog.structure.acyclic import AcyclicDirectedGraph
from puregraph.compat.analog.structure.edges import Edge, side
from puregraph.compat.analog.structure.executionplan import ExecutionPlan, InspectRow
from puregraph.compat.analog.structure.graphenum import GraphEnum
from puregraph.compat.analog.structure.nodelabels import label_of
from puregraph.core.errors import GraphError
from puregraph.graph import Graph

if TYPE_CHECKING:
    from collections.abc import Hashable


class InvertedGraph(AcyclicDirectedGraph):
    """A graph from OUTPUT to INPUT, whose edges may name the forward edge that they reverse."""

    START, END = GraphEnum.OUTPUT, GraphEnum.INPUT

    def __init__(self, graph_state: ModelGraphState | None = None):
        self.forward_graph: Any = None
        self._stands_for: dict[Hashable, Any] = {}
        self._source: GraphSource | None = None
        self._followed: tuple[Hashable, int] | None = None
        super().__init__(graph_state)

    # Building ---------------------------------------------------------------------------------------------------------

    def from_forward(self, forward_graph: Any) -> Any:
        """Invert a puregraph Graph, a ForwardGraph, or a networkx DiGraph or MultiDiGraph of callables.

        A networkx graph becomes a ForwardGraph, `self.forward_graph`, which then runs forward. Only nodes that lead to
        OUTPUT are inverted.

        Raises    GraphError for any other type, or an OUTPUT that is not connected
        """
        source = None
        if isinstance(forward_graph, Graph):
            last = forward_graph.last
            source = GraphSource(forward_graph, last.steps if last is not None else forward_graph.steps())
        elif not isinstance(forward_graph, ForwardGraph):
            if not hasattr(forward_graph, "is_directed"):
                raise GraphError(
                    "from_forward wanted a Graph, a ForwardGraph, or a networkx DiGraph of callables, "
                    f"got {type(forward_graph).__name__}"
                )
            forward_graph = ForwardGraph(self.graph_state).from_networkx(forward_graph)
        self._clear()
        self._stands_for = {}
        self.forward_graph, self._source = forward_graph, source
        if source is not None:
            invert_steps(self, source)
            self._followed = source.steps, self.version
        else:
            self.graph_state = forward_graph.graph_state
            invert_edges(self, forward_graph)
            self._followed = forward_graph.version, self.version
        return self

    def _key(self, edge: Edge) -> tuple:
        """The identity of an edge. Several edges may share a slot, where gradients add up; no edge is kept twice."""
        port, slot = side(edge.in_arg, edge.in_kwarg), side(edge.out_arg, edge.out_kwarg)
        return edge.source, port, edge.target, slot, id(edge.forward)

    def _halves(self, edge: Edge, node: Hashable, position: int) -> tuple[Edge, Edge]:
        consumer = edge.reader
        if edge.forward is not None:
            return edge.moved(target=node), edge.moved(source=node, consumer=consumer, packed=True)
        before, after = super()._halves(edge, node, position)
        after.consumer = edge.reader
        return before, after

    def insert(self, node: Hashable, source: Hashable, target: Hashable) -> Any:
        """Put a node on the edges from `source` to `target`: it is called with the gradients that they carry.

        `source` may be an AccumulateGrad or a node; a forward node's fan-in has the name `AccumulateGrad(node)`.
        """
        edges = self.edges_between(source, target)
        if len(edges) > 1 and any(edge.forward is not None for edge in edges):
            raise GraphError(
                f"'{self.name_of(edges[0].source)}' hands '{self.name_of(edges[0].target)}' gradients along "
                f"{len(edges)} edges: insert the node behind its AccumulateGrad, or replace the node that gives them"
            )
        super().insert(node, source, target)
        return self

    def replace(self, old: Hashable, new: Any) -> Any:
        """Replace the gradient rule of a node by another: a BackwardModule, or any callable on gradients.

        It is called with the gradients that the node would receive, one per output, and returns the gradients of the
        node's inputs.
        """
        old = self.known(old)
        if isinstance(old, GraphEnum):
            raise GraphError(f"{old} cannot be replaced")
        edges = list(self.outgoing[old])
        name, stands_for = self.names[old], self._owner_of(old)
        for edge in edges:
            if edge.consumer is None and not isinstance(old, AccumulateGrad):
                self._swap(edge, edge.moved(consumer=old))
        super().replace(old, new)
        self._stands_for[new] = stands_for
        self.given_names[new] = f"{name} by {label_of(new)}"
        self.version += 1
        return self

    # Planning ---------------------------------------------------------------------------------------------------------

    def _plan_from(self, start: Hashable) -> ExecutionPlan:
        self._follow()
        return super()._plan_from(start)

    def _check_ends(self, start: Hashable) -> None:
        if start is self.OUTPUT and not self.nodes:
            raise GraphError(
                "OUTPUT doesn't exist in the backward graph, which is empty: make it with from_forward(graph), "
                "or by hand with add_connection(OUTPUT, node, INPUT)"
            )
        super()._check_ends(start)

    def _follow(self) -> None:
        """Rebuild this graph if the forward graph was edited since `from_forward`.

        Raises    GraphError if this one was edited too
        """
        if self._followed is None:
            return
        made_from, own = self._followed
        if self._source is not None:
            graph = self.forward_graph
            now = graph.last.steps if graph.last is not None else graph.steps()
        else:
            now = self.forward_graph.version
        if now is made_from or now == made_from:
            return
        if self.version != own:
            raise GraphError(
                "the forward graph has been edited after from_forward, and so has this backward graph: "
                "call from_forward again, and edit its result"
            )
        self.from_forward(self.forward_graph)

    # Looking ----------------------------------------------------------------------------------------------------------

    def inspect(self) -> list[InspectRow]:
        """List the plan: `(step, node, reads, writes)` per step, where reads and writes are gradients."""
        if self._source is not None:
            self._follow()
            self._source.needs()
        return super().inspect()

    def taken_label(self, edge: Edge) -> str:
        consumer = edge.reader
        if self._source is not None and consumer is edge.source and isinstance(edge.taken, int):
            return self._source.input_label(edge.source, edge.taken)
        return super().taken_label(edge)

    def given_label(self, edge: Edge) -> str:
        owner = self._owner_of(edge.target)
        if self._source is not None and isinstance(edge.slot, int):
            return self._source.output_label(owner, edge.slot)
        return super().given_label(edge)

    def _owner_of(self, node: Hashable) -> Any:
        """The forward node whose outputs the gradients that reach a node belong to."""
        return node.module if isinstance(node, AccumulateGrad) else self._stands_for.get(node, node)

    def _writes(self, node: Hashable, running: set[Hashable]) -> list[str]:
        return super()._writes(node, running) + self._learned(node)

    def _learned(self, node: Any) -> list[str]:
        """The parameters that a node has gradients for."""
        if self._source is not None and node in self._source.index:
            return [f"{self.names[node]}.{name}.grad" for name in self._source.learned(node)]
        module = getattr(node, "module", node)
        if isinstance(node, AccumulateGrad) or not hasattr(module, "wants") or node in self._stands_for:
            return []
        if self.forward_graph is not None and node not in self.forward_graph.nodes:
            return []
        params = zip(module.ruleNames, module.ruleParams())
        return [f"{self.names[node]}.{name}.grad" for name, param in params if module.wants(param)]
