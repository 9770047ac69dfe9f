"""BackwardModule: a gradient that a person chose, which need not be the derivative of anything."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from puregraph.compat.analog.argskwargs import ArgsKwargs
from puregraph.compat.analog.passes.nodekinds import use
from puregraph.core.errors import AutoDiffException

if TYPE_CHECKING:
    from puregraph.core.protocols import AnyArray


class BackwardModule:
    """A node with its own `backward`.

    Around a `layer` it runs that forward and its own `backward` in place of the layer's gradient. Without one it is a
    node of a backward graph only, called with the gradients that reach it.

    A subclass writes `backward(self, *grads)`: one gradient per output in (None where there is none), one per input
    out. Keyword-only arguments `inputs` and `outputs` receive those of the forward pass, as ArgsKwargs.

    >>> class Halved(BackwardModule):
    ...     def backward(self, *grads):
    ...         return [grad / 2 for grad in grads]
    >>> graph = ForwardGraph()
    >>> _ = graph.add_connection(graph.INPUT, Halved(np.tanh), graph.OUTPUT)
    >>> back = BackwardGraph(graph.graph_state).from_forward(graph)
    >>> y = graph(np.zeros(2))
    >>> back(np.ones(2))
    array([0.5, 0.5])
    """

    def __init__(self, layer: Any = None):
        self.layer = layer

    def forward(self, *args: AnyArray | float | None, **kwargs: object) -> Any:
        """The layer's values.

        Raises    AutoDiffException if there is no layer
        """
        if self.layer is None:
            raise AutoDiffException(
                f"{type(self).__name__} has no layer to run forward: give it one, {type(self).__name__}(layer), "
                "or put it into the backward graph only"
            )
        outputs, _ = use(self.layer, ArgsKwargs(args, kwargs), False, 0)
        return ArgsKwargs.from_args_kwargs_object(outputs)

    def backward(self, *grads: Any, **named: object) -> Any:
        """Compute the input gradients from the output gradients."""
        raise NotImplementedError(f"{type(self).__name__} has no gradient: write backward(self, *grads)")

    def get_layer(self) -> Any:
        """The layer that runs forward; None if there is none."""
        return self.layer

    def set_layer(self, layer: Any) -> BackwardModule:
        """Run another layer forward."""
        self.layer = layer
        return self

    def __call__(self, *args: Any, **kwargs: object) -> Any:
        return self.forward(*args, **kwargs)

    @property
    def name(self) -> str | None:
        """The layer's own name, under which this node stands in a graph."""
        return getattr(self.layer, "name", None)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({'' if self.layer is None else repr(self.layer)})"


class BackwardIdentity(BackwardModule):
    """dx = dy: the straight-through gradient, as if the layer were not there.

    Source    the straight-through estimator; Bengio, Léonard, Courville 2013, arXiv:1308.3432
    """

    def backward(self, *grads: Any, **named: object) -> ArgsKwargs:
        return ArgsKwargs(grads, named)


class BackwardUsingForward(BackwardModule):
    """dx = layer(dy): gradients are passed through the layer's forward function, including its random parts.

    >>> BackwardUsingForward(np.negative).backward(np.ones(2))
    array([-1., -1.])
    """

    def backward(self, *grads: Any, **named: object) -> Any:
        return self.forward(*grads, **named)


class BackwardFunction(BackwardModule):
    """dx = f(dy): gradients are passed through any function.

    >>> sign = BackwardFunction(lambda grad: np.clip(grad, -1, 1), layer=np.sign)
    >>> sign.forward(np.array([-2.0, 3.0])), sign.backward(np.array([0.5, 9.0]))
    (array([-1.,  1.]), array([0.5, 1. ]))
    """

    def __init__(self, backward_function: Callable[..., Any], layer: Any = None):
        super().__init__(layer)
        self.backward_function = backward_function

    def backward(self, *grads: Any, **named: object) -> AnyArray | float:
        return self.backward_function(*grads, **named)
