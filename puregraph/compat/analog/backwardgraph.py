"""EditableBackwardGraph: a backward pass that is made from a forward graph, or written by hand, and edited."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from puregraph.compat.analog.argskwargs import ArgsKwargs, InputOutput
from puregraph.compat.analog.invertedgraph import InvertedGraph
from puregraph.compat.analog.modelgraphstate import ModelGraphState
from puregraph.compat.analog.passes.backwardpass import BackwardPass
from puregraph.compat.analog.passes.callabletape import back_along_tape, loss_seeds
from puregraph.compat.analog.passes.cotangents import checked_seeds, implied_seeds
from puregraph.compat.analog.passes.graphadapter import NoForwardPassError, graph_pass
from puregraph.compat.analog.passes.residuals import Residuals
from puregraph.core.errors import GraphError

if TYPE_CHECKING:
    from collections.abc import Hashable

    from puregraph.core.protocols import AnyArray


class EditableBackwardGraph(InvertedGraph):
    """A graph of gradients, from OUTPUT to INPUT.

        bg = BackwardGraph().from_forward(graph)
        bg.compile()
        y = graph(x)
        dx = bg(dy)                                     # parameters' gradients are added to Param.grad

    Its nodes are those of the forward graph, each with its gradient rule, and AccumulateGrad where a node has several
    readers. It need not be the forward graph's transpose: it can be written by hand, or edited.

        bg.add_connection(bg.OUTPUT, b, clip, a, bg.INPUT)      # `clip` on gradients; a layer between a and b skipped
        bg.replace(noise, BackwardIdentity())                   # straight through

    A forward node receives one gradient per output, None where no gradient arrives; several gradients of one output are
    added in forward order. A node that is not in the forward graph is called with the gradients that arrive. An edge
    between two forward nodes carries the gradients of the values that one took from the other, unless `in_arg` or
    `in_kwarg` select others.

    Source    AnalogVNN's BackwardGraph
    Raises    GraphError (a ValueError) for a graph that cannot run, NoForwardPassError (a ValueError) without a forward
              pass, AutoDiffException for a node without a gradient
    """

    def __init__(self, graph_state: ModelGraphState | None = None):
        self._spent: Any = None
        self._now: BackwardPass | None = None
        super().__init__(graph_state)

    # Running ----------------------------------------------------------------------------------------------------------

    def __call__(self, gradient: Any = None, retain_graph: bool = False) -> Any:
        """Compute the input gradients from the output gradient.

        `gradient`        one gradient, a list of them, a dictionary or ArgsKwargs where outputs have names; it may be
                          left out where the output is one number, or where the state has a `loss`
        `retain_graph`    keep the forward pass for another call

        Raises    NoForwardPassError before a forward pass, GraphError or ShapeError for a gradient that does not fit
        """
        residuals = self._ready()
        seeds = None if gradient is None else ArgsKwargs.to_args_kwargs_object(gradient)
        return self._calculate(residuals, seeds, retain_graph)

    def calculate(self, *args: AnyArray, retain_graph: bool = False, **kwargs: object) -> AnyArray | None:
        """The gradient of the inputs: a value, a list of several, ArgsKwargs where inputs have names.

        Pass one gradient per output: by name for named outputs, None for an output without one. Returns None if no
        gradient was passed, or if INPUT is not part of this graph. Parameter gradients are added to `Param.grad`.

        Raises    NoForwardPassError before a forward pass, and for a second call after one, unless the first had
                  `retain_graph=True`; a call that failed does not count
        """
        return self._calculate(self._ready(), ArgsKwargs(args, kwargs), retain_graph)

    def _calculate(self, residuals: Any, grads: ArgsKwargs | None, retain_graph: bool) -> Any:
        outputs, loss = residuals.outputs(self.OUTPUT), self.graph_state.loss
        if grads is not None and grads.is_nothing():
            return None
        result: ArgsKwargs | None
        if self._source is None and self.graph_state.is_taped:
            result = back_along_tape(residuals.outputs(self.INPUT), outputs, grads, loss, retain_graph)
        else:
            if grads is None:
                grads = implied_seeds(outputs) if loss is None else loss_seeds(loss, self.graph_state.leaves)
            grads = checked_seeds(grads, outputs)
            result = self._commit(self.OUTPUT, grads, residuals).results.get(self.INPUT)
        if not retain_graph:
            self._release()
        return None if result is None else ArgsKwargs.from_args_kwargs_object(result)

    def _pass(self, from_node: Hashable, *args: AnyArray | float, **kwargs: object) -> dict[Hashable, InputOutput]:
        """Run backward from `from_node` with these gradients: the incoming and outgoing gradients of each node.

        Nodes that no gradient reaches are left out.
        """
        finished = self._commit(self.known(from_node), ArgsKwargs(args, kwargs), self._ready(), True)
        return {
            n: InputOutput(finished.arrived[n], grads) for n, grads in finished.results.items() if grads is not None
        }

    def pull(
        self, records: dict[Hashable, Any], grads: ArgsKwargs
    ) -> tuple[ArgsKwargs, list[tuple[Hashable, Hashable]]]:
        """Run one backward pass over these records: the input gradients, and (parameter, gradient) pairs."""
        finished = self._run(self.OUTPUT, grads, Residuals(records))
        return finished.results.get(self.INPUT) or ArgsKwargs(), finished.params.totals()

    def _run(self, start: Hashable, grads: ArgsKwargs, residuals: Any, keep: bool = False) -> BackwardPass:
        """Run one pass that starts at this node with these gradients; `keep` stores every node's gradients."""
        before, self._now = self._now, BackwardPass(self, residuals, keep)
        try:
            return self._now.run(self._plan_from(start), grads)
        finally:
            self._now = before

    def _commit(self, start: Hashable, grads: ArgsKwargs, residuals: Any, keep: bool = False) -> BackwardPass:
        """Run, and when all has succeeded store the parameters' gradients."""
        if self._source is None and self.graph_state.is_taped:
            raise GraphError(
                "the forward pass was recorded on one tape (use_autograd_graph), which goes back as a whole: "
                "call the backward graph, or run forward without that"
            )
        one = self._run(start, grads, residuals, keep)
        if self.INPUT in self.nodes or self._source is not None:
            one.reach_inputs()
        one.store(grads)
        return one

    def _calculate_gradients(self, module: Any, grad_outputs: Any) -> ArgsKwargs:
        """Compute a node's input gradients from its output gradients, `grad_outputs.inputs`; also works outside a pass.

        Raises    AutoDiffException naming the node, and what to write, if it has none
        """
        grads = grad_outputs.inputs if isinstance(grad_outputs, InputOutput) else grad_outputs
        if self._now is not None:
            return self._now.gradients(module, grads)
        single = BackwardPass(self, self._ready())
        result = single.gradients(module, grads)
        single.store(grads)
        return result

    # The forward pass -------------------------------------------------------------------------------------------------

    def _ready(self) -> Any:
        """Return the forward pass to differentiate.

        Raises    NoForwardPassError if there is none, or it was used up
        """
        self._follow()
        if self._source is not None:
            return graph_pass(self._source, self._spent)
        records = self.graph_state.forward_input_output_graph
        if records is None:
            raise NoForwardPassError(
                "No forward pass has been performed yet, or a backward pass has used it up: "
                "run the forward graph, with is_training=True; call with retain_graph=True to use a pass again"
            )
        return Residuals(records)  # type: ignore[arg-type]

    def _release(self) -> None:
        """Mark the forward pass as used up, or free it."""
        if self._source is not None:
            self._spent = self._source.graph.last.modes
        else:
            self.graph_state.ready_for_forward()
