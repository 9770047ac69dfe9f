"""EditableBackwardGraph: a backward pass that is made from a forward graph, or written by hand, and edited."""

from __future__ import annotations

from typing import Any

from puregraph.autodiff.analog.accumulategrad import AccumulateGrad
from puregraph.autodiff.analog.acyclic import AcyclicDirectedGraph
from puregraph.autodiff.analog.argskwargs import ArgsKwargs, InputOutput
from puregraph.autodiff.analog.edges import Edge, side
from puregraph.autodiff.analog.executionplan import ExecutionPlan, InspectRow
from puregraph.autodiff.analog.forwardgraph import ForwardGraph
from puregraph.autodiff.analog.graphenum import GraphEnum
from puregraph.autodiff.analog.modelgraphstate import ModelGraphState
from puregraph.autodiff.analog.nodelabels import kind_of, label_of
from puregraph.autodiff.analog.passes.callabletape import back_along_tape, loss_seeds
from puregraph.autodiff.analog.passes.cotangents import can_differ, checked_seeds, implied_seeds, owned
from puregraph.autodiff.analog.passes.graphadapter import GraphResiduals, GraphSource
from puregraph.autodiff.analog.passes.nodekinds import call_backward, call_on_gradients, has_backward
from puregraph.autodiff.analog.passes.residuals import ParamGrads, Residuals
from puregraph.autodiff.analog.passes.reversal import turn_edges, turn_steps
from puregraph.autodiff.analog.passes.routing import Routing
from puregraph.errors import AutoDiffException, GraphError, ShapeError, addPlace
from puregraph.graph import Graph
from puregraph.node import Node, located


class NoForwardPassError(AutoDiffException, ValueError):
    """There is no forward pass to differentiate, or it has been used up."""


class EditableBackwardGraph(AcyclicDirectedGraph):
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

    def from_forward(self, forward_graph: Any) -> EditableBackwardGraph:
        """Invert a puregraph Graph, a ForwardGraph, or a networkx DiGraph or MultiDiGraph of callables.

        A networkx graph becomes a ForwardGraph, `self.forward_graph`, which then runs forward. Only what leads to
        OUTPUT has a place here.

        Raises    GraphError if it is none of these, or its OUTPUT is not connected
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
            turn_steps(self, source)
            self._followed = source.steps, self.version
        else:
            self.graph_state = forward_graph.graph_state
            turn_edges(self, forward_graph)
            self._followed = forward_graph.version, self.version
        return self

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

    def insert(self, node: Any, source: Any, target: Any) -> EditableBackwardGraph:
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

    def replace(self, old: Any, new: Any) -> EditableBackwardGraph:
        """Put a gradient of one's own in the place of a node's: a BackwardModule, or any callable on gradients.

        It is handed what the node would have been, lined up with its outputs, and what it gives is taken for the
        gradients of the node's inputs.
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

    def compile(self, is_static: bool = True) -> EditableBackwardGraph:
        """Make the plan now, so that what is wrong with the graph is said now.

        `is_static`    keep the plan until the graph is edited; otherwise each pass makes its own

        Raises    GraphError (a ValueError) for a graph without OUTPUT, or with a cycle, named in full
        """
        return super().compile(is_static)

    def _plan_from(self, start: Any) -> ExecutionPlan:
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
        given = None if gradient is None else ArgsKwargs.to_args_kwargs_object(gradient)
        return self._calculate(residuals, given, retain_graph)

    def calculate(self, *args: Any, retain_graph: bool = False, **kwargs: Any) -> Any:
        """The gradient of the inputs: a value, a list of several, ArgsKwargs where inputs have names.

        One gradient per output, None for one that is not wanted; those of named outputs by name. None without any, or
        where INPUT is not part of this graph. Gradients of parameters are added to `Param.grad`.

        Raises    NoForwardPassError before a forward pass, and for a second call after one, unless the first had
                  `retain_graph=True`; a call that failed does not count
        """
        return self._calculate(self._ready(), ArgsKwargs(args, kwargs), retain_graph)

    def _calculate(self, residuals: Any, grads: ArgsKwargs | None, retain_graph: bool) -> Any:
        outputs, loss = residuals.outputs(self.OUTPUT), self.graph_state.loss
        if grads is not None and grads.is_nothing():
            return None
        found: ArgsKwargs | None
        if self._source is None and self.graph_state.is_taped:
            found = back_along_tape(residuals.outputs(self.INPUT), outputs, grads, loss, retain_graph)
        else:
            if grads is None:
                grads = implied_seeds(outputs) if loss is None else loss_seeds(loss, self.graph_state.leaves)
            grads = checked_seeds(grads, outputs)
            found = self._commit(self.OUTPUT, grads, residuals, False).get(self.INPUT)
        if not retain_graph:
            self._release()
        return None if found is None else ArgsKwargs.from_args_kwargs_object(found)

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
        if self._source is None and self.graph_state.is_taped:
            raise GraphError(
                "the forward pass was recorded on one tape (use_autograd_graph), which goes back as a whole: "
                "call the backward graph, or run forward without that"
            )
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
        routing = Routing(residuals, self._owner_of, self.name_of)
        results: dict[Any, ArgsKwargs | None] = {}
        before = self._params, self._residuals
        self._params, self._residuals = ParamGrads(), residuals
        try:
            for node, edges, finished in plan.steps:
                handed = grads if node == start else routing.handed(node, edges, results)
                if handed is None or node != start and handed.is_nothing():
                    results[node] = None
                else:
                    if arrived is not None:
                        arrived[node] = handed
                    results[node] = self._calculate_gradients(node, InputOutput(handed))
                if not keep:
                    for done in finished:
                        del results[done]
            return results, self._params.totals()
        finally:
            self._params, self._residuals = before

    def _owner_of(self, node: Any) -> Any:
        """The forward node whose outputs the gradients that reach a node belong to."""
        return node.module if isinstance(node, AccumulateGrad) else self._stands_for.get(node, node)

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
                    "it did not run forward and cannot be called: "
                    "put a function on gradients there, a BackwardModule, or a node of the forward graph"
                )
            return call_on_gradients(module, grads)
        except ShapeError as error:
            raise located(error, self.name_of(module), kind_of(module) or type(module).__name__) from None
        except (AutoDiffException, GraphError) as error:
            raise type(error)(f"{self.place_of(module)}, backward: {error}") from error
        except Exception as error:
            addPlace(error, f"{self.place_of(module)}, backward")
            raise

    def _calculate_alone(self, module: Any, grads: ArgsKwargs) -> ArgsKwargs:
        """One node's gradients outside a pass."""
        self._params, self._residuals = ParamGrads(), self._ready()
        try:
            found = self._calculate_gradients(module, grads)
            for param, new in self._params.totals():
                param.store(new, 1.0, 1.0, alias=any(new is g for g in grads.values()))
            return found
        finally:
            self._params = self._residuals = None

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
        last.check()
        return GraphResiduals(source, last)

    def _release(self) -> None:
        """Let go of the forward pass."""
        if self._source is not None:
            self._spent = self._source.graph.last.modes
        else:
            self.graph_state.ready_for_forward()

    # Looking ----------------------------------------------------------------------------------------------------------

    def inspect(self) -> list[InspectRow]:
        """The plan in words: `(step, node, reads, writes)`; what is read and written are gradients."""
        if self._source is not None:
            self._follow()
            self._source.needs()
        return super().inspect()

    def taken_label(self, edge: Edge) -> str:
        consumer = edge.consumer or edge.source
        if self._source is not None and consumer is edge.source and isinstance(edge.taken, int):
            return self._source.input_label(edge.source, edge.taken)
        return super().taken_label(edge)

    def given_label(self, edge: Edge) -> str:
        owner = self._owner_of(edge.target)
        if self._source is not None and isinstance(edge.given, int):
            return self._source.output_label(owner, edge.given)
        return super().given_label(edge)

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


ForwardGraph.backward_type = EditableBackwardGraph
