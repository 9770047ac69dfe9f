"""BackwardPass: one pass of a backward graph on the tape's engine, each node of the graph as a node of a tape."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from puregraph.autodiff.tape.engine import run
from puregraph.autodiff.tape.gradmode import MODE
from puregraph.autodiff.tape.tapenode import GradientEdge, TapeNode
from puregraph.compat.analog.accumulategrad import AccumulateGrad
from puregraph.compat.analog.argskwargs import ArgsKwargs, InputOutput
from puregraph.compat.analog.passes.cotangents import can_differ, owned
from puregraph.compat.analog.passes.nodekinds import call_backward, call_on_gradients, has_backward
from puregraph.compat.analog.passes.residuals import ParamGrads
from puregraph.compat.analog.passes.routing import Routing
from puregraph.compat.analog.structure.edges import Edge
from puregraph.compat.analog.structure.executionplan import ExecutionPlan
from puregraph.compat.analog.structure.graphenum import GraphEnum
from puregraph.compat.analog.structure.nodelabels import kind_of
from puregraph.core.errors import AutoDiffException, GraphError, ShapeError, addLocation
from puregraph.graph.node import Node, located

if TYPE_CHECKING:
    from collections.abc import Hashable

    from puregraph.compat.analog.backwardgraph import EditableBackwardGraph


class PassNode(TapeNode):
    """A node of a backward graph in one pass: output i receives what the source of its i-th edge gave, as one value."""

    __slots__ = ("incoming", "node", "one")
    locates_errors = True

    def __init__(self, one: BackwardPass, node: Hashable, incoming: tuple[Edge, ...]):
        super().__init__((), max(1, len(incoming)))
        self.one, self.node, self.incoming = one, node, incoming

    def name(self) -> str:
        return self.one.graph.name_of(self.node)

    def apply(self, *grads: ArgsKwargs) -> Any:
        return (self.one.step(self.node, self.incoming, grads),) * len(self.edges)


class BackwardPass:
    """One backward pass: its graph, the gradients so far, and every node's incoming and outgoing gradients if kept."""

    def __init__(self, graph: EditableBackwardGraph, residuals: Any, keep: bool = False):
        self.graph, self.residuals, self.keep = graph, residuals, keep
        self.params = ParamGrads()
        self.routing = Routing(residuals, graph._owner_of, graph.name_of)
        self.start: Hashable = None
        self.results: dict[Hashable, ArgsKwargs | None] = {}
        self.arrived: dict[Hashable, ArgsKwargs] = {}

    def run(self, plan: ExecutionPlan, grads: ArgsKwargs) -> BackwardPass:
        """Run a plan, whose first node is given `grads`."""
        self.start = plan.start
        steps = {
            node: PassNode(self, node, () if node == plan.start else edges) for node, edges, _ in reversed(plan.steps)
        }
        readers: dict[Hashable, list[tuple[TapeNode, int]]] = {node: [] for node in steps}
        for step in steps.values():
            for i, edge in enumerate(step.incoming):
                readers[edge.source].append((step, i))
        for node, step in steps.items():
            step.edges = tuple(readers[node])
        seeds = [(GradientEdge(steps[plan.start], 0), grads)]
        run(seeds, retain_graph=True, create_graph=MODE.enabled)
        return self

    def step(self, node: Hashable, edges: tuple[Edge, ...], grads: tuple) -> ArgsKwargs | None:
        """Compute a node's gradients from its sources' gradients; None if no gradient reaches it."""
        if node == self.start:
            arriving = grads[0]
        else:
            arriving = self.routing.gathered(node, edges, {edge.source: g for edge, g in zip(edges, grads)})
            if arriving is None or arriving.is_nothing():
                return None
        result = self.graph._calculate_gradients(node, InputOutput(arriving))
        if self.keep:
            self.arrived[node] = arriving
        if self.keep or node is GraphEnum.INPUT:
            self.results[node] = result
        return result

    def gradients(self, module: Any, grads: ArgsKwargs) -> ArgsKwargs:
        """Compute a node's input gradients from its output gradients.

        The first that applies: an AccumulateGrad adds; a node's own `backward` is called; a puregraph Module or
        Function uses its gradient rule; a callable of the forward pass is differentiated on its tape; a node that only
        the backward graph has is called with the gradients.

        Raises    AutoDiffException naming the node, and what to write, if none of these is possible
        """
        graph = self.graph
        if isinstance(module, GraphEnum):
            return grads
        try:
            if isinstance(module, AccumulateGrad):
                return module.grad(grads)
            if module in self.residuals:
                return self.residuals.pull(module, grads, self.params)
            forward = graph._stands_for.get(module)
            if forward is not None and forward in self.residuals and has_backward(module):
                record = self.residuals.record(forward)
                inputs, outputs = (record.inputs, record.outputs) if isinstance(record, InputOutput) else record
                return call_backward(module, grads, inputs, outputs)
            if not callable(module) and not isinstance(module, Node) and not has_backward(module):
                raise AutoDiffException(
                    "it did not run forward and cannot be called: "
                    "put a function on gradients there, a BackwardModule, or a node of the forward graph"
                )
            return call_on_gradients(module, grads)
        except ShapeError as error:
            raise located(error, graph.name_of(module), kind_of(module) or type(module).__name__) from None
        except (AutoDiffException, GraphError) as error:
            raise type(error)(f"{graph.location_of(module)}, backward: {error}") from error
        except Exception as error:
            addLocation(error, f"{graph.location_of(module)}, backward")
            raise

    def reach_inputs(self) -> None:
        """Order the gradients at INPUT like the inputs, None for an input that can have no gradient.

        Raises    AutoDiffException if no input can have a gradient and no parameter has one
        """
        inputs = self.residuals.outputs(GraphEnum.INPUT)
        gradients = self.results.get(GraphEnum.INPUT) or ArgsKwargs()
        self.results[GraphEnum.INPUT] = ArgsKwargs(
            [gradients.get(i) if can_differ(x) else None for i, x in enumerate(inputs.args)],
            {name: gradients.get(name) if can_differ(x) else None for name, x in inputs.kwargs.items()},
        )
        if not self.params.found and inputs.values() and not any(map(can_differ, inputs.values())):
            kinds = ", ".join(str(getattr(x, "dtype", type(x).__name__)) for x in inputs.values())
            raise AutoDiffException(
                f"at 'INPUT': no gradient with respect to {kinds}, and no parameter has one: "
                "convert the input to a floating dtype, or read what it indexes from a parameter"
            )

    def store(self, grads: ArgsKwargs) -> None:
        """Add the parameter gradients to `Param.grad`; copy input gradients that share memory with these."""
        seeds = [g for g in grads.values() if g is not None]
        taken = {id(g) for g in seeds}
        for param, new in self.params.totals():
            param.store(new, 1.0, 1.0, alias=id(new) in taken)
            taken.add(id(new))
        inputGrads = self.results.get(GraphEnum.INPUT)
        if inputGrads is not None:
            owners = taken | {id(g.base) for g in seeds if getattr(g, "base", None) is not None}
            self.results[GraphEnum.INPUT] = ArgsKwargs(
                [owned(g, owners) for g in inputGrads.args],
                {name: owned(g, owners) for name, g in inputGrads.kwargs.items()},
            )
