"""ForwardGraph: runs a graph of callables, and records the source of every value."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from puregraph.autodiff.tape.gradmode import enable_grad
from puregraph.autodiff.tape.variable import Variable
from puregraph.compat.analog.argskwargs import ArgsKwargs
from puregraph.compat.analog.passes.callabletape import leaf
from puregraph.compat.analog.passes.graphtape import use_on_tape
from puregraph.compat.analog.passes.nodekinds import Used, use
from puregraph.compat.analog.passes.residuals import ParamGrads, Record, Taken
from puregraph.compat.analog.passes.routing import said
from puregraph.compat.analog.structure.acyclic import AcyclicDirectedGraph
from puregraph.compat.analog.structure.edges import Edge, Port, check_edge_parameters
from puregraph.compat.analog.structure.executionplan import reachable
from puregraph.compat.analog.structure.graphenum import GraphEnum
from puregraph.core.accumulate import shapeOf
from puregraph.core.errors import AutoDiffException, GraphError, ShapeError, addLocation, show
from puregraph.core.late import Late
from puregraph.graph.node import located

if TYPE_CHECKING:
    from collections.abc import Hashable

    from puregraph.compat.analog.backwardgraph import EditableBackwardGraph


class ForwardGraph(AcyclicDirectedGraph):
    """A graph of callables from INPUT to OUTPUT.

        graph = ForwardGraph()
        graph.add_connection(graph.INPUT, Linear(3, 4), np.tanh, graph.OUTPUT)
        y = graph(x)
        dx = graph.backward(dy)

    A node is called with the values of edges to numbered slots, in their order, then with all others in the order of
    their edges; keywords keep their names. A node without incoming edges is called without arguments.
    """

    backward_type = Late("puregraph.compat.analog.backwardgraph", "EditableBackwardGraph")
    _back: Any = None

    # Running ----------------------------------------------------------------------------------------------------------

    def __call__(self, *inputs: Any, is_training: bool = True, **named: object) -> Any:
        """Run on values, or on one list of them; see `calculate`."""
        return self.calculate(*inputs, is_training=is_training, **named)

    def calculate(self, *inputs: Any, is_training: bool = True, **named: object) -> Any:
        """The graph's output: a value, a list of several, or ArgsKwargs where some have names.

        `is_training`    keep what a backward pass needs

        On Variables the graph is recorded on their tape and returns Variables; call `backward` on those. With
        `use_autograd_graph` it makes its own Variables, and the backward graph follows their tape.
        """
        if len(inputs) == 1 and isinstance(inputs[0], (list, tuple)):
            inputs = tuple(inputs[0])
        elif len(inputs) == 1 and isinstance(inputs[0], ArgsKwargs):
            inputs, named = tuple(inputs[0].args), {**inputs[0].kwargs, **named}
        state, arguments = self.graph_state, ArgsKwargs(inputs, named)
        state.ready_for_forward()
        if any(isinstance(v, Variable) for v in arguments.values()):
            return ArgsKwargs.from_args_kwargs_object(self.run_on_tape(arguments))
        if is_training and state.use_autograd_graph:
            with enable_grad():
                arguments = ArgsKwargs(
                    [leaf(v) for v in arguments.args], {name: leaf(v) for name, v in arguments.kwargs.items()}
                )
                records = self._run(self.INPUT, arguments, True, on_tape=True)
            state.is_taped = True
        else:
            records = self._run(self.INPUT, arguments, is_training)
        if is_training:
            self.graph_state.forward_input_output_graph = records  # type: ignore[assignment]
        return ArgsKwargs.from_args_kwargs_object(records[self.OUTPUT].outputs)

    def _pass(self, from_node: Hashable, *args: object, **kwargs: object) -> dict[Hashable, Record]:
        """Run from `from_node` with these values: the inputs and outputs of every node after it."""
        return self._run(self.known(from_node), ArgsKwargs(args, kwargs), True)

    def run_on_tape(self, inputs: ArgsKwargs) -> ArgsKwargs:
        """Run on Variables, as a piece of their tape."""
        return self._run(self.INPUT, inputs, True, on_tape=True)[self.OUTPUT].outputs

    def _run(
        self, start: Hashable, inputs: ArgsKwargs, is_training: bool, on_tape: bool = False
    ) -> dict[Hashable, Record]:
        records: dict[Hashable, Record] = {}
        for rank, (node, edges, finished) in enumerate(self._plan_from(start).steps):
            arguments, taken = (inputs, []) if node == start else self._gather(node, edges, records)
            outputs, pull = self._use(node, arguments, is_training, rank, on_tape)
            records[node] = Record(
                arguments, outputs, taken if is_training else [], pull if is_training else None, rank
            )
            if not is_training:
                for done in finished:
                    if done is not self.OUTPUT:
                        del records[done]
        return records

    def _use(self, node: Hashable, arguments: ArgsKwargs, is_training: bool, rank: int, on_tape: bool) -> Used:
        """Run one node; an exception gains the node's location."""
        if isinstance(node, GraphEnum):
            return arguments, None
        try:
            if on_tape:
                return use_on_tape(node, arguments, self.name_of(node)), None
            return use(node, arguments, is_training, rank)
        except ShapeError as error:
            raise located(error, self.name_of(node), type(getattr(node, "module", node)).__name__) from None
        except (AutoDiffException, GraphError) as error:
            raise type(error)(f"{self.location_of(node)}: {error}") from error
        except Exception as error:
            shapes = [shapeOf(v) if hasattr(v, "dtype") else type(v).__name__ for v in arguments.values()]
            addLocation(error, f"{self.location_of(node)}: given {show(shapes)}")
            raise

    def _gather(
        self, node: Hashable, edges: tuple[Edge, ...], records: dict[Hashable, Record]
    ) -> tuple[ArgsKwargs, list[Taken]]:
        """Assemble a node's call arguments, with the source of each value."""
        positional: list[tuple[int, Any, Any, Edge]] = []
        appended: list[tuple[Any, Any, Edge]] = []
        named: dict[str, tuple[Any, Any, Edge]] = {}
        for edge in edges:
            values = records[edge.source].outputs
            for port, slot in self._routes(edge, values):
                value = values.get(port)
                if slot is None:
                    appended.append((value, port, edge))
                elif isinstance(slot, int):
                    positional.append((slot, value, port, edge))
                elif slot in named:
                    raise GraphError(
                        f"{self.location_of(node)}: {slot!r} comes from both '{self.name_of(named[slot][2].source)}' "
                        f"and '{self.name_of(edge.source)}'"
                    )
                else:
                    named[slot] = value, port, edge
        args = [(value, port, edge) for _, value, port, edge in sorted(positional, key=lambda row: row[0])] + appended
        positions: list[tuple[Port, Any]] = [*enumerate(args), *named.items()]
        taken = [Taken(position, port, edge) for position, (_, port, edge) in positions]
        return ArgsKwargs([row[0] for row in args], {name: row[0] for name, row in named.items()}), taken

    def _routes(self, edge: Edge, values: ArgsKwargs) -> list[tuple[Any, Any]]:
        """For each value that an edge carries: its port at the source, and its slot at the target (None: the next)."""
        if edge.taken is not None:
            if not values.has(edge.taken):
                raise GraphError(
                    f"the edge from '{self.name_of(edge.source)}' to '{self.name_of(edge.target)}' takes "
                    f"{edge.taken!r}, but '{self.name_of(edge.source)}' gave {said(values)}"
                )
            return [(edge.taken, edge.slot)]
        routes: list[tuple[Any, Any]] = []
        if edge.in_arg is True:
            routes += [(i, None) for i in range(len(values.args))]
        if edge.in_kwarg is True:
            routes += [(name, name if edge.out_kwarg is True else None) for name in values.kwargs]
        return routes

    def _feeding(self, inside: set[Any], start: Hashable) -> set[Any]:
        before = reachable(inside, lambda node: (e.source for e in self.incoming[node] if node != start))
        if self.INPUT in before and start is not self.INPUT:
            raise GraphError(
                f"a pass cannot start from '{self.name_of(start)}': a node after it also reads what INPUT gives"
            )
        return before

    # Backward ---------------------------------------------------------------------------------------------------------

    @property
    def backward_graph(self) -> EditableBackwardGraph:
        """The backward graph that inverts this one: made once, and updated when this one is edited."""
        if self._back is None:
            self._back = self.backward_type(self.graph_state).from_forward(self)
        return self._back

    def backward(self, gradient: Any = None, retain_graph: bool = False) -> Any:
        """The gradient of the inputs from that of the outputs, after a forward pass."""
        return self.backward_graph(gradient, retain_graph=retain_graph)

    def use_as_node(self, inputs: ArgsKwargs, is_training: bool, rank: int) -> Used:
        """Run as a node of another graph, which stores the pass."""
        return use_graph(self, self.backward_graph, inputs, is_training, rank)

    # networkx ---------------------------------------------------------------------------------------------------------

    def from_networkx(self, graph: Any) -> ForwardGraph:
        """Take over the nodes and edges of a networkx DiGraph or MultiDiGraph of callables.

        Edges may have `in_arg in_kwarg out_arg out_kwarg`, as in `add_edge`. If INPUT is not among the nodes, it feeds
        every node without an incoming edge (one value per node where there are several). If OUTPUT is not among
        them, every node without an outgoing edge feeds it.

        Raises    GraphError for an undirected graph, or an edge whose parameters do not fit
        """
        if not graph.is_directed():
            raise GraphError("a graph to run wanted directed edges, got an undirected networkx graph")
        self._clear()
        for node in graph.nodes:
            self.add_node(node)
        for source, target, data in graph.edges(data=True):
            try:
                parameters = check_edge_parameters(
                    *[data.get(n) for n in ("in_arg", "in_kwarg", "out_arg", "out_kwarg")]
                )
            except GraphError as error:
                raise GraphError(f"'{self.name_of(source)}' to '{self.name_of(target)}': {error}") from None
            self._append(Edge(source, target, **parameters))
        if self.INPUT not in self.nodes:
            first = [node for node in list(self.nodes) if not self.incoming[node] and node is not self.OUTPUT]
            for position, node in enumerate(first):
                self.add_edge(self.INPUT, node, in_arg=position if len(first) > 1 else None)
        if self.OUTPUT not in self.nodes:
            for node in [node for node in list(self.nodes) if not self.outgoing[node] and node is not self.INPUT]:
                self.add_edge(node, self.OUTPUT)
        return self


def use_graph(
    forward: ForwardGraph, backward: EditableBackwardGraph, inputs: ArgsKwargs, is_training: bool, rank: int
) -> Used:
    """Run a graph as a node. Returns its outputs, and a function that runs its backward graph."""
    records = forward._run(forward.INPUT, inputs, is_training)

    def pull(grads: ArgsKwargs, paramGrads: ParamGrads) -> ArgsKwargs:
        back, params = backward.pull(records, grads)
        for position, (param, grad) in enumerate(params):
            paramGrads.add(id(param), rank, position, param, grad)
        return back

    return records[forward.OUTPUT].outputs, pull
