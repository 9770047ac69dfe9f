"""ModelGraphState: the values that a forward pass stores for the backward pass."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from puregraph.compat.analog.argskwargs import ArgsKwargs, InputOutput
from puregraph.compat.analog.passes.callabletape import leaf
from puregraph.compat.analog.structure.graphenum import GraphEnum
from puregraph.core.errors import GraphError

if TYPE_CHECKING:
    from collections.abc import Hashable

    from puregraph.autodiff.tape.variable import Variable


class ModelGraphState:
    """The values of the last forward pass, shared by a ForwardGraph and its BackwardGraph.

    `use_autograd_graph`            record the whole pass on one tape; the backward graph, however edited, is that tape
    `forward_input_output_graph`    what went into every node and came out, until the backward pass has used it

    Raises    GraphError for `allow_loops=True`: a graph that runs in a fixed order has none

    >>> graph = ForwardGraph()
    >>> _ = graph.add_connection(graph.INPUT, np.tanh, graph.OUTPUT)
    >>> graph.graph_state.ready_for_backward(), graph(np.zeros(2)).shape, graph.graph_state.ready_for_backward()
    (False, (2,), True)
    """

    def __init__(self, use_autograd_graph: bool = False, allow_loops: bool = False):
        if allow_loops:
            raise GraphError(
                "graphs have no loops: unroll them, with an Occurrence of the module for each time that it runs"
            )
        self.use_autograd_graph = use_autograd_graph
        self.allow_loops = allow_loops
        self.forward_input_output_graph: dict[Hashable, InputOutput] | None = None
        self.is_taped = False
        self._loss: Any = None
        self._leaves: ArgsKwargs | None = None

    def ready_for_forward(self) -> None:
        """Forget the last pass."""
        self.forward_input_output_graph = None
        self.is_taped = False
        self._loss = self._leaves = None

    def ready_for_backward(self) -> bool:
        """True if a forward pass is waiting for its backward pass."""
        return self.forward_input_output_graph is not None

    @property
    def inputs(self) -> Any:
        """The values that entered the last forward pass, as ArgsKwargs; None before one."""
        return self._side(GraphEnum.INPUT)

    @property
    def outputs(self) -> ArgsKwargs | None:
        """The values that left the last forward pass, as ArgsKwargs; None before one."""
        return self._side(GraphEnum.OUTPUT)

    def _side(self, node: GraphEnum) -> ArgsKwargs | None:
        records = self.forward_input_output_graph
        return None if records is None or node not in records else records[node].outputs

    @property
    def leaves(self) -> Any:
        """The outputs of the last forward pass as Variables to compute a `loss` from; None without one."""
        outputs = self.outputs
        if self._leaves is None and outputs is not None:
            named = {name: leaf(v) for name, v in outputs.kwargs.items()}
            self._leaves = outputs if self.is_taped else ArgsKwargs([leaf(v) for v in outputs.args], named)
        return self._leaves

    @property
    def loss(self) -> Variable | None:
        """A Variable computed from `leaves`, the outputs: the next call of the backward graph starts from it."""
        return self._loss

    @loss.setter
    def loss(self, loss: Variable) -> None:
        self._loss = loss

    def set_loss(self, loss: Variable) -> ModelGraphState:
        """The same, as a method that can be chained."""
        self.loss = loss
        return self
