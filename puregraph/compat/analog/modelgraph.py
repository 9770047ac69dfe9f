"""ModelGraph: a forward and a backward graph, and the pass that they share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from puregraph.compat.analog.argskwargs import ArgsKwargs
from puregraph.compat.analog.backwardgraph import EditableBackwardGraph
from puregraph.compat.analog.forwardgraph import ForwardGraph, use_graph
from puregraph.compat.analog.modelgraphstate import ModelGraphState
from puregraph.compat.analog.passes.nodekinds import Used

if TYPE_CHECKING:
    from puregraph.core.protocols import AnyArray


class ModelGraph(ModelGraphState):
    """A forward graph and its backward graph, inverted from it or written by hand. It is a node, too: graphs nest.

    model = ModelGraph()
    model.forward_graph.add_connection(model.INPUT, a, noise, b, model.OUTPUT)
    model.backward_graph.add_connection(model.OUTPUT, b, a, model.INPUT)
    model.compile()
    y = model(x)
    dx = model.backward(dy)
    """

    INPUT, OUTPUT = ForwardGraph.INPUT, ForwardGraph.OUTPUT

    def __init__(self, use_autograd_graph: bool = False, allow_loops: bool = False):
        super().__init__(use_autograd_graph, allow_loops)
        self.forward_graph = ForwardGraph(self)
        self.backward_graph = EditableBackwardGraph(self)

    def compile(self, is_static: bool = True, auto_backward_graph: bool = False) -> ModelGraph:
        """Compile both graphs; `auto_backward_graph` inverts the forward graph first.

        Raises    GraphError (a ValueError) if one cannot run, or if there is no backward graph
        """
        self.forward_graph.compile(is_static)
        if auto_backward_graph:
            self.backward_graph.from_forward(self.forward_graph)
        self.backward_graph.compile(is_static)
        return self

    def __call__(self, *inputs: Any, is_training: bool = True, **named: object) -> AnyArray | float:
        """Run forward."""
        return self.forward_graph(*inputs, is_training=is_training, **named)

    def backward(self, gradient: AnyArray | float | None = None, retain_graph: bool = False) -> Any:
        """The gradient of the inputs from that of the outputs."""
        return self.backward_graph(gradient, retain_graph=retain_graph)

    def run_on_tape(self, inputs: ArgsKwargs) -> ArgsKwargs:
        """Run forward on Variables, as a piece of their tape."""
        return self.forward_graph.run_on_tape(inputs)

    def use_as_node(self, inputs: ArgsKwargs, is_training: bool, rank: int) -> Used:
        """Run as a node of another graph, which stores the pass."""
        return use_graph(self.forward_graph, self.backward_graph, inputs, is_training, rank)

    def __repr__(self) -> str:
        return f"<ModelGraph: {self.forward_graph!r}, {self.backward_graph!r}>"
