"""BackwardGraph: the backward pass as a graph that can be made from a forward one, written by hand, and edited."""

from __future__ import annotations

from typing import Any

from puregraph.algebra import combine, isArray, isValue, seedLike, shapeOf
from puregraph.autodiff.accumulate import AccumulateGrad, total
from puregraph.autodiff.acyclic import AcyclicDirectedGraph, kind_of
from puregraph.autodiff.argskwargs import ArgsKwargs, InputOutput
from puregraph.autodiff.edges import Edge, Port, side
from puregraph.autodiff.forwardgraph import ForwardGraph, said
from puregraph.autodiff.graphenum import GraphEnum
from puregraph.autodiff.graphpass import GraphResiduals, GraphSource
from puregraph.autodiff.modelgraphstate import ModelGraphState
from puregraph.autodiff.plan import InspectRow, Plan, reachable
from puregraph.autodiff.residuals import ParamGrads, Residuals
from puregraph.autodiff.uses import call_backward, call_on_gradients, has_backward
from puregraph.errors import AutoDiffException, Fault, GraphError, ShapeError, addPlace, plural, show
from puregraph.graph import Graph
from puregraph.node import Node, placed


class NoForwardPassError(AutoDiffException, ValueError):
    """There is no forward pass to differentiate, or it has been used up."""


class BackwardGraph(AcyclicDirectedGraph):
    """A graph of gradients, from OUTPUT to INPUT.

        bg = BackwardGraph().from_forward(graph)
        bg.compile()
        y = graph(x)
        dx = bg(dy)                                     # parameters' gradients are added to Param.grad

    Its nodes are those of the forward graph, each standing for its gradient rule, and AccumulateGrad where a node has
    several readers. It need not be the forward graph's transpose: it can be written by hand, or edited.

        bg.add_connection(bg.OUTPUT, b, clip, a, bg.INPUT)      # `clip` on gradients; a layer between a and b skipped
        bg.replace(noise, BackwardIdentity())                   # straight through

    What a forward node is handed lines up with its outputs, None where no gradient arrives; several for one output
    are added up in forward order. A node that does not stand in the forward graph is called with the gradients that
    arrive. An edge from one forward node to another carries the gradients of what the one took from the other, unless
    `in_arg` or `in_kwarg` say which.

    Source    AnalogVNN's BackwardGraph
    Raises    GraphError (a ValueError) for a graph that cannot run, NoForwardPassError (a ValueError) without a forward
              pass, AutoDiffException for a node without a gradient
    """

    START, END = GraphEnum.OUTPUT, GraphEnum.INPUT

    def __init__(self, graph_state: ModelGraphState | None = None):
        self.forward_graph: Any = None
        self._stands_for: dict[Any, Any] = {}
        self._source: GraphSource | None = None
        self._followed: tuple[Any, int] | None = None
        self._spent: Any = None
        self._params: ParamGrads | None = None
        self._residuals: Any = None
        super().__init__(graph_state)

    # Building ---------------------------------------------------------------------------------------------------------

    def from_forward(self, forward_graph: Any) -> BackwardGraph:
        """Invert a puregraph Graph, a ForwardGraph, or a networkx DiGraph or MultiDiGraph of callables.

        A networkx graph becomes a ForwardGraph, `self.forward_graph`, which then runs forward. Only what leads to
        OUTPUT has a place here.

        Raises    GraphError if it is none of these, or its OUTPUT is not connected
        """
        if isinstance(forward_graph, Graph):
            self._from_graph(forward_graph)
        elif isinstance(forward_graph, AcyclicDirectedGraph):
            self._from_acyclic(forward_graph)
        elif hasattr(forward_graph, "is_directed") and hasattr(forward_graph, "edges"):
            self._from_acyclic(ForwardGraph(self.graph_state).from_networkx(forward_graph))
        else:
            raise GraphError(
                "from_forward wanted a Graph, a ForwardGraph, or a networkx DiGraph of callables, "
                f"got {type(forward_graph).__name__}"
            )
        return self

    def _restart(self, forward_graph: Any, source: GraphSource | None) -> None:
        self._clear()
        self.forward_graph, self._source = forward_graph, source
        self._stands_for = {}

    def _from_graph(self, graph: Graph, steps: Any = None) -> None:
        """Nodes are those of the steps, under their paths; every edge says which argument it carries, and where."""
        if steps is None:
            steps = graph.last.steps if graph.last is not None else graph.steps()
        source = GraphSource(graph, steps)
        self._restart(graph, source)
        readers = source.edges()
        inside = {GraphEnum.OUTPUT}
        entry: dict[Any, Any] = {}
        self.add_node(self.OUTPUT)
        for step in reversed(steps.items):
            if any(reader in inside for _, reader, _ in readers[step.node]):
                inside.add(step.node)
                self._enter(step.node, readers[step.node], inside, entry)
                self._given_names[step.node] = step.path
        self._enter(self.INPUT, readers[self.INPUT], inside, entry)
        for node in list(entry):
            for slot, reader, argument in readers[node]:
                if reader in inside:
                    self._attach(Edge(reader, entry[node], argument, None, slot, None))
        self._followed = steps, self.version

    def _enter(self, node: Any, readers: list[tuple[int, Any, int]], inside: set[Any], entry: dict[Any, Any]) -> None:
        """Add a node, and an AccumulateGrad before it if one of its outputs has several readers."""
        slots = [slot for slot, reader, _ in readers if reader in inside]
        if not slots:
            return
        entry[node] = node
        if len(set(slots)) < len(slots):
            entry[node] = self.add_node(AccumulateGrad(node))
        self.add_node(node)
        if entry[node] is not node:
            self._attach(Edge(entry[node], node))

    def _from_acyclic(self, forward: AcyclicDirectedGraph) -> None:
        """Each forward edge is turned round; it carries what came along it, wherever that went."""
        if forward.OUTPUT not in forward.nodes:
            raise GraphError(
                f"OUTPUT doesn't exist in the {type(forward).__name__}: connect what gives its output to OUTPUT"
            )
        order = [step.node for step in forward._plan_from(forward.START).steps]
        self.graph_state = forward.graph_state
        self._restart(forward, None)
        inside = reachable([forward.OUTPUT], lambda node: (edge.source for edge in forward.incoming[node]))
        rank = {node: i for i, node in enumerate(order)}
        for node in reversed([node for node in order if node in inside and node is not self.INPUT]):
            self._turn(node, forward, rank, inside)
        if self.INPUT in inside:
            self._turn(self.INPUT, forward, rank, inside)
        names = forward.names
        self._given_names = {node: names[node] for node in self.nodes if node in forward._given_names}
        self._followed = forward.version, self.version

    def _turn(self, node: Any, forward: AcyclicDirectedGraph, rank: dict[Any, int], inside: set[Any]) -> None:
        """Add a node with its readers' edges turned round."""
        edges = sorted((e for e in forward.outgoing[node] if e.target in inside), key=lambda e: rank[e.target])
        entry = self.add_node(AccumulateGrad(node)) if len(edges) > 1 else node
        self.add_node(node)
        for edge in edges:
            self._attach(Edge(edge.target, entry, **edge.reversed_parameters(), forward=edge))
        if entry is not node:
            self._attach(Edge(entry, node))

    def _attach(self, edge: Edge) -> None:
        """Add an edge that is known to be new."""
        self._keys[self._key(edge)] = edge
        self._link(edge)

    def _key(self, edge: Edge) -> tuple:
        """Several edges may lead to one slot, where gradients add up; none is there twice."""
        taken, given = side(edge.in_arg, edge.in_kwarg), side(edge.out_arg, edge.out_kwarg)
        return edge.source, taken, edge.target, given, id(edge.forward)

    def _halves(self, edge: Edge, node: Any, place: int) -> tuple[Edge, Edge]:
        consumer = edge.consumer or edge.source
        if edge.forward is not None:
            return edge.moved(target=node), edge.moved(source=node, consumer=consumer, packed=True)
        before, after = super()._halves(edge, node, place)
        after.consumer = edge.consumer or edge.source
        return before, after

    def insert(self, node: Any, source: Any, target: Any) -> BackwardGraph:
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

    def replace(self, old: Any, new: Any) -> BackwardGraph:
        """Put a gradient of one's own in the place of a node's: a BackwardModule, or any callable on gradients.

        It is handed what the node would have been, lined up with its outputs, and what it gives is taken for the
        gradients of the node's inputs.
        """
        old = self.known(old)
        if isinstance(old, GraphEnum):
            raise GraphError(f"{old} cannot be replaced")
        edges = list(self.outgoing[old])
        name, stands_for = self.names[old], self._stands_for.get(old, old)
        for edge in edges:
            if edge.consumer is None and not isinstance(old, AccumulateGrad):
                self._swap(edge, edge.moved(consumer=old))
        super().replace(old, new)
        if isinstance(stands_for, AccumulateGrad):
            stands_for = stands_for.module
        self._stands_for[new] = stands_for
        self._given_names[new] = f"{name} by {label(new)}"
        self.version += 1
        return self

    # Planning ---------------------------------------------------------------------------------------------------------

    def compile(self, is_static: bool = True) -> BackwardGraph:
        """Make the plan now, so that what is wrong with the graph is said now.

        `is_static`    keep the plan until the graph is edited; otherwise each pass makes its own

        Raises    GraphError (a ValueError) for a graph without OUTPUT, or with a cycle, named in full
        """
        return super().compile(is_static)

    def _plan_from(self, start: Any) -> Plan:
        self._follow()
        return super()._plan_from(start)

    def _check_ends(self, start: Any) -> None:
        if start is self.OUTPUT and not self.nodes:
            raise GraphError(
                "OUTPUT doesn't exist in the backward graph, which is empty: make it with from_forward(graph), "
                "or by hand with add_connection(OUTPUT, node, INPUT)"
            )
        super()._check_ends(start)

    def _follow(self) -> None:
        """Make this graph again if the forward graph that it was made from has been edited since.

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

    # Running ----------------------------------------------------------------------------------------------------------

    def __call__(self, gradient: Any = None, retain_graph: bool = False) -> Any:
        """The gradient of the inputs from that of the outputs.

        `gradient`        one gradient, a list of them, a dictionary or ArgsKwargs where outputs have names; it may be
                          left out where the output is one number, or where the state has a `loss`
        `retain_graph`    keep the forward pass for another call

        Raises    NoForwardPassError before a forward pass, GraphError or ShapeError for a gradient that does not fit
        """
        residuals = self._ready()
        grads = self._implied(residuals) if gradient is None else ArgsKwargs.to_args_kwargs_object(gradient)
        return self._calculate(residuals, grads, retain_graph)

    def calculate(self, *args: Any, retain_graph: bool = False, **kwargs: Any) -> Any:
        """The gradient of the inputs: a value, a list of several, ArgsKwargs where inputs have names.

        One gradient per output, None for one that is not wanted; those of named outputs by name. None without any, or
        where INPUT is not part of this graph. Gradients of parameters are added to `Param.grad`.

        Raises    NoForwardPassError before a forward pass, and for a second call after one, unless the first had
                  `retain_graph=True`; a call that failed does not count
        """
        return self._calculate(self._ready(), ArgsKwargs(args, kwargs), retain_graph)

    def _calculate(self, residuals: Any, grads: ArgsKwargs, retain_graph: bool) -> Any:
        if grads.is_nothing():
            return None
        grads = self._checked(grads, residuals)
        results = self._commit(self.OUTPUT, grads, residuals, False)
        if not retain_graph:
            self._release()
        return ArgsKwargs.from_args_kwargs_object(results[self.INPUT]) if self.INPUT in results else None

    def _pass(self, from_node: Any, *args: Any, **kwargs: Any) -> dict[Any, InputOutput]:
        """The gradients that reach each node from `from_node` on, and those that it gives, when that is handed these.

        A node that no gradient reaches is left out.
        """
        residuals = self._ready()
        arrived: dict[Any, ArgsKwargs] = {}
        start = self.known(from_node)
        results = self._commit(start, ArgsKwargs(args, kwargs), residuals, True, arrived)
        return {node: InputOutput(arrived[node], found) for node, found in results.items() if found is not None}

    def _commit(
        self, start: Any, grads: ArgsKwargs, residuals: Any, keep: bool, arrived: dict[Any, ArgsKwargs] | None = None
    ) -> dict[Any, ArgsKwargs | None]:
        """Run, and when all has succeeded store the parameters' gradients."""
        results, params = self._run(start, grads, residuals, keep, arrived)
        if self.INPUT in self.nodes or self._source is not None:
            results[self.INPUT] = self._reached(results.get(self.INPUT), residuals, bool(params))
        seeds = [g for g in grads.values() if g is not None]
        given = {id(g) for g in seeds}
        for param, new in params:
            param.store(new, 1.0, 1.0, alias=id(new) in given)
            given.add(id(new))
        found = results.get(self.INPUT)
        if found is not None:
            owners = given | {id(g.base) for g in seeds if getattr(g, "base", None) is not None}
            results[self.INPUT] = ArgsKwargs(
                [owned(g, owners) for g in found.args], {name: owned(g, owners) for name, g in found.kwargs.items()}
            )
        return results

    def _reached(self, found: ArgsKwargs | None, residuals: Any, learned: bool) -> ArgsKwargs:
        """The gradients that reached the inputs, None for an input that can have none.

        Raises    AutoDiffException if none can, and no parameter has one either
        """
        inputs = residuals.outputs(self.INPUT)
        found = found or ArgsKwargs()
        result = ArgsKwargs(
            [found.get(i) if can_differ(x) else None for i, x in enumerate(inputs.args)],
            {name: found.get(name) if can_differ(x) else None for name, x in inputs.kwargs.items()},
        )
        if not learned and inputs.values() and not any(map(can_differ, inputs.values())):
            kinds = ", ".join(str(getattr(x, "dtype", type(x).__name__)) for x in inputs.values())
            raise AutoDiffException(
                f"at 'INPUT': no gradient with respect to {kinds}, and no parameter has one: "
                "convert the input to a floating dtype, or read what it indexes from a parameter"
            )
        return result

    def pull(self, records: dict[Any, Any], grads: ArgsKwargs) -> tuple[ArgsKwargs, list[tuple[Any, Any]]]:
        """One backward pass over given records: the gradients of the inputs, and each parameter with its own."""
        results, params = self._run(self.OUTPUT, grads, Residuals(records), False)
        return results.get(self.INPUT) or ArgsKwargs(), params

    def _run(
        self,
        start: Any,
        grads: ArgsKwargs,
        residuals: Any,
        keep: bool,
        arrived: dict[Any, ArgsKwargs] | None = None,
    ) -> tuple[dict[Any, ArgsKwargs | None], list[tuple[Any, Any]]]:
        """The pass itself: what each node gives, and each parameter with its gradient."""
        plan = self._plan_from(start)
        results: dict[Any, ArgsKwargs | None] = {}
        before = self._params, self._residuals
        self._params, self._residuals = ParamGrads(), residuals
        try:
            for node, edges, finished in plan.steps:
                handed = grads if node is start else self._gather(node, edges, results, residuals)
                if handed is None or node is not start and handed.is_nothing():
                    results[node] = None
                else:
                    if arrived is not None:
                        arrived[node] = handed
                    results[node] = self._calculate_gradients(node, InputOutput(handed))
                if not keep:
                    for done in finished:
                        del results[done]
            return results, totals(self._params)
        finally:
            self._params, self._residuals = before

    def _calculate_gradients(self, module: Any, grad_outputs: Any) -> ArgsKwargs:
        """The gradients of a node's inputs from those of its outputs, `grad_outputs.inputs`.

        In this order: an AccumulateGrad adds up; a node with a `backward` of its own is asked; a puregraph Module or
        Function has its rule; a callable of the forward pass is differentiated on its tape; a node of the backward
        graph alone is called with the gradients.

        Raises    AutoDiffException naming the node, and what to write, if none of these is possible
        """
        grads = grad_outputs.inputs if isinstance(grad_outputs, InputOutput) else grad_outputs
        if self._params is None:
            return self._calculate_alone(module, grads)
        if isinstance(module, GraphEnum):
            return grads
        try:
            if isinstance(module, AccumulateGrad):
                return module.grad(grads)
            if module in self._residuals:
                return self._residuals.pull(module, grads, self._params)
            forward = self._stands_for.get(module)
            if forward is not None and forward in self._residuals and has_backward(module):
                record = self._residuals.record(forward)
                inputs, outputs = (record.inputs, record.outputs) if isinstance(record, InputOutput) else record
                return call_backward(module, grads, inputs, outputs)
            if not callable(module) and not isinstance(module, Node) and not has_backward(module):
                raise AutoDiffException(
                    f"'{self.name_of(module)}' has no gradient: it did not run forward and cannot be called; "
                    "put a function on gradients there, or a BackwardModule"
                )
            return call_on_gradients(module, grads)
        except ShapeError as error:
            raise placed(error, self.name_of(module), kind_of(module) or type(module).__name__) from None
        except Exception as error:
            addPlace(error, f"{self.place_of(module)}, backward")
            raise

    def _calculate_alone(self, module: Any, grads: ArgsKwargs) -> ArgsKwargs:
        """One node's gradients outside a pass."""
        self._params, self._residuals = ParamGrads(), self._ready()
        try:
            found = self._calculate_gradients(module, grads)
            for param, new in totals(self._params):
                param.store(new, 1.0, 1.0, alias=any(new is g for g in grads.values()))
            return found
        finally:
            self._params = self._residuals = None

    # Routing ----------------------------------------------------------------------------------------------------------

    def _gather(
        self, node: Any, edges: tuple[Edge, ...], results: dict[Any, ArgsKwargs | None], residuals: Any
    ) -> ArgsKwargs | None:
        """What a node is handed: lined up with the outputs of a forward node, else the arguments of a call."""
        owner = node.module if isinstance(node, AccumulateGrad) else self._stands_for.get(node, node)
        if owner not in residuals:
            return self._arguments(node, edges, results, residuals)
        found: dict[Port, list[tuple[float, int, Any]]] = {}
        for edge in edges:
            values = results[edge.source]
            if values is not None:
                rank = residuals.rank(edge.consumer or edge.source)
                for position, port, g in self._carried(edge, values, residuals, owner):
                    if g is not None:
                        found.setdefault(port, []).append((rank, position, g))
        if not found:
            return None
        outputs = residuals.outputs(owner)
        self._check_ports(node, owner, found, outputs)
        for rows in found.values():
            if len(rows) > 1:
                rows.sort(key=lambda row: row[:2])
        lists: list[Any] = [[g for _, _, g in found.get(port, ())] for port in range(len(outputs.args))]
        named = {name: [g for _, _, g in found.get(name, ())] for name in outputs.kwargs}
        if isinstance(node, AccumulateGrad):
            return ArgsKwargs(lists, named)
        return ArgsKwargs([total(c) for c in lists], {name: total(c) for name, c in named.items()})

    def _check_ports(self, node: Any, owner: Any, found: dict[Port, Any], outputs: ArgsKwargs) -> None:
        """Every gradient belongs to an output, and has its shape."""
        for port, rows in found.items():
            if not outputs.has(port):
                raise GraphError(
                    f"{self.place_of(node)}: got a gradient for output {port!r}, but it gave {said(outputs)} in the "
                    "forward pass: say which gradient is meant with in_arg or in_kwarg of the edge"
                )
            wanted = shapeOf(outputs.get(port))
            for _, _, g in rows:
                if shapeOf(g) != wanted:
                    fault = Fault(f"a gradient of shape {show(wanted)} for output {port!r}", show(shapeOf(g)))
                    raise placed(ShapeError(fault), self.name_of(node), kind_of(owner) or type(node).__name__)

    def _arguments(
        self, node: Any, edges: tuple[Edge, ...], results: dict[Any, ArgsKwargs | None], residuals: Any
    ) -> ArgsKwargs | None:
        """The call of a node that only stands in the backward graph: numbered slots first, then the others in order."""
        numbered: list[tuple[int, Any]] = []
        appended: list[Any] = []
        named: dict[str, Any] = {}
        for edge in edges:
            values = results[edge.source]
            if values is None:
                continue
            if edge.taken is not None and edge.forward is None:
                g = self._one(edge, values)
                if edge.given is None:
                    appended.append(g)
                elif isinstance(edge.given, int):
                    numbered.append((edge.given, g))
                else:
                    named[edge.given] = g
            elif edge.forward is not None and not edge.packed:
                along = residuals.along(edge.consumer or edge.source, edge.forward)
                appended += [values.get(taken.place) for _, taken in along]
            else:
                if edge.in_arg is True:
                    appended += values.args
                if edge.in_kwarg is True:
                    if edge.out_kwarg is True:
                        named.update(values.kwargs)
                    else:
                        appended += values.kwargs.values()
        args = [g for _, g in sorted(numbered, key=lambda row: row[0])] + appended
        return ArgsKwargs(args, named) if args or named else None

    def _one(self, edge: Edge, values: ArgsKwargs) -> Any:
        """The one gradient that an edge takes; None if its source gave no gradients at all."""
        if edge.taken is not None and not values.is_empty() and not values.has(edge.taken):
            raise GraphError(
                f"the edge from '{self.name_of(edge.source)}' to '{self.name_of(edge.target)}' takes gradient "
                f"{edge.taken!r}, but '{self.name_of(edge.source)}' gave {said(values)}"
            )
        return values.get(edge.taken)  # type: ignore[arg-type]

    def _carried(self, edge: Edge, values: ArgsKwargs, residuals: Any, owner: Any) -> list[tuple[int, Port, Any]]:
        """The gradients that an edge brings to a forward node: each with its position at the reader, and its port."""
        if edge.forward is None and edge.taken is not None:
            g = self._one(edge, values)
            position = edge.taken if isinstance(edge.taken, int) else len(values.args)
            return [(position, 0 if edge.given is None else edge.given, g)]
        consumer = edge.consumer or edge.source
        if edge.forward is not None:
            along = residuals.along(consumer, edge.forward)
        else:
            along = residuals.taken_from(consumer, owner)
        if edge.packed:
            if len(along) < len(values.args):
                raise GraphError(
                    f"{self.place_of(edge.source)}: gave {plural(len(values.args), 'gradient')}, "
                    f"took {len(along)} on the way to '{self.name_of(edge.target)}'"
                )
            return [(position, taken.port, values.get(i)) for i, (position, taken) in enumerate(along)]
        if along or edge.forward is not None:
            return [(position, taken.port, values.get(taken.place)) for position, taken in along]
        rows: list[tuple[int, Port, Any]] = []
        if edge.in_arg is True:
            rows += [(i, i, g) for i, g in enumerate(values.args)]
        if edge.in_kwarg is True:
            keeps = edge.out_kwarg is True
            rows += [(len(rows) + i, k if keeps else i, g) for i, (k, g) in enumerate(values.kwargs.items())]
        return rows

    # The forward pass -------------------------------------------------------------------------------------------------

    def _ready(self) -> Any:
        """The forward pass that is differentiated.

        Raises    NoForwardPassError if there is none, or it was used up
        """
        self._follow()
        if self._source is not None:
            return self._graph_pass(self._source)
        records = self.graph_state.forward_input_output_graph
        if records is None:
            raise NoForwardPassError(
                "No forward pass has been performed yet, or a backward pass has used it up: "
                "run the forward graph, with is_training=True; call with retain_graph=True to use a pass again"
            )
        return Residuals(records)  # type: ignore[arg-type]

    def _graph_pass(self, source: GraphSource) -> GraphResiduals:
        graph = source.graph
        last = graph.last
        if last is None:
            raise NoForwardPassError(f"No forward pass has been performed yet: call {graph.title()} on data first")
        if last.modes is self._spent:
            raise NoForwardPassError(
                f"A backward pass has used up the forward pass of {graph.title()}: call that again, "
                "or the backward graph with retain_graph=True"
            )
        if any(step.module.train is not train for step, train in zip(last.steps.items, last.modes)):
            raise NoForwardPassError(
                f"modes of {graph.title()} have changed since the forward pass: call that again first"
            )
        return GraphResiduals(source, last)

    def _release(self) -> None:
        """Let go of the forward pass."""
        if self._source is not None:
            self._spent = self._source.graph.last.modes
        else:
            self.graph_state.ready_for_forward()

    def _implied(self, residuals: Any) -> Any:
        """The gradient that is meant where none is given: 1 for an output that is one number."""
        outputs = residuals.outputs(self.OUTPUT)
        values = outputs.values()
        if len(values) != 1 or isArray(values[0]) and values[0].size != 1:
            shapes = [show(shapeOf(v)) for v in values]
            raise GraphError(
                f"the gradient of the output can be left out only where that is one number, and it is "
                f"{' and '.join(shapes) or 'nothing'}: give one for each"
            )
        one = [seedLike(v) for v in values]
        return ArgsKwargs(one) if outputs.args else ArgsKwargs(kwargs=dict(zip(outputs.kwargs, one)))

    def _checked(self, grads: ArgsKwargs, residuals: Any) -> ArgsKwargs:
        """One gradient per output, of its shape."""
        outputs = residuals.outputs(self.OUTPUT)
        unknown = [name for name in grads.kwargs if name not in outputs.kwargs]
        if unknown or len(grads.args) != len(outputs.args):
            got = f"{len(grads.args)}" + (f" and {', '.join(grads.kwargs)} by name" if grads.kwargs else "")
            raise GraphError(f"at 'OUTPUT': wanted a gradient (or None) for each of {said(outputs)}, got {got}")
        for port, g in [*enumerate(grads.args), *grads.kwargs.items()]:
            wanted = shapeOf(outputs.get(port))
            if g is not None and shapeOf(g) != wanted:
                fault = Fault(f"a gradient of shape {show(wanted)} for output {port!r}", show(shapeOf(g)))
                raise placed(ShapeError(fault), "OUTPUT", type(self).__name__)
        return ArgsKwargs(grads.args, {name: grads.kwargs.get(name) for name in outputs.kwargs})

    # Looking ----------------------------------------------------------------------------------------------------------

    def inspect(self) -> list[InspectRow]:
        """The plan in words: `(step, node, reads, writes)`; what is read and written are gradients."""
        if self._source is not None:
            self._follow()
            self._source.needs()
        return super().inspect()

    def _writes(self, node: Any, running: set[Any]) -> list[str]:
        return super()._writes(node, running) + self._learned(node)

    def _learned(self, node: Any) -> list[str]:
        """The parameters that a node has gradients for."""
        if self._source is not None and node in self._source.index:
            i = self._source.index[node]
            step, needs = self._source.steps.items[i], self._source.known[i]
            wanted = zip(step.module.ruleNames, needs[step.inputs :])
            return [f"{self.names[node]}.{name}.grad" for name, needed in wanted if needed]
        module = getattr(node, "module", node)
        if isinstance(node, AccumulateGrad) or not hasattr(module, "wants") or node in self._stands_for:
            return []
        if self.forward_graph is not None and node not in self.forward_graph.nodes:
            return []
        found = zip(module.ruleNames, module.ruleParams())
        return [f"{self.names[node]}.{name}.grad" for name, param in found if module.wants(param)]


def label(node: Any) -> str:
    """What a replacement is called."""
    return getattr(node, "__name__", None) or type(node).__name__


def owned(g: Any, given: set[int]) -> Any:
    """A gradient in an array of its own: copied if it is one that the caller gave, or lies in one."""
    shared = id(g) in given or id(getattr(g, "base", None)) in given
    return g.copy() if shared and isArray(g) else g


def can_differ(value: Any) -> bool:
    """Whether a value can have a gradient: floating numbers can, and whatever else can be accumulated."""
    if isArray(value):
        return value.dtype.kind in "fc"
    return isinstance(value, float) or not isinstance(value, (int, type(None))) and isValue(value)


def totals(params: ParamGrads) -> list[tuple[Any, Any]]:
    """Each parameter with the sum of its gradients, in forward order; parameters that are one array count as one."""
    found: dict[int, tuple[Any, Any]] = {}
    for rows in params.found.values():
        rows.sort(key=lambda row: row[:2])
    for _, rows in sorted(params.found.items()):
        param, new = rows[0][2], combine([row[3] for row in rows])
        old = found.get(id(param))
        found[id(param)] = param, new if old is None else old[1] + new
    return list(found.values())


ForwardGraph.backward_type = BackwardGraph
