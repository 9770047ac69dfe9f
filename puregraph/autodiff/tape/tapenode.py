"""TapeNode and GradientEdge: the backward graph that a tape leaves, as objects to read and walk through."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from puregraph.core.accumulate import combine
from puregraph.core.errors import AutoDiffException
from puregraph.core.late import Late

if TYPE_CHECKING:
    from puregraph.autodiff.tape.variable import Variable
    from puregraph.core.protocols import AnyArray

NOTHING = (
    "Variable does not require grad or does not have a grad_fn: it was made under no_grad, of values that require no "
    "gradient, or by the backward of a Function from what its forward saved between inputs and outputs, which no "
    "second derivative goes through; save inputs or outputs there, and compute the rest again in backward"
)
NUMBERS = itertools.count(1)


class GradientEdge(NamedTuple):
    """The destination of a gradient: a node, and the number of that node's output.

    `node` is None for an input that needs no gradient.

    >>> x = Variable(np.ones(2), requires_grad=True)
    >>> edge = (x * x).grad_fn.next_functions[0]
    >>> edge.node.name(), edge.output_nr
    ('AccumulateGrad', 0)
    """

    node: TapeNode | None
    output_nr: int

    def __repr__(self) -> str:
        return f"({self.node}, {self.output_nr})"


NOWHERE = GradientEdge(None, 0)


class TapeNode:
    """One operation in the backward graph: maps output gradients to input gradients.

    `next_functions`  one GradientEdge per input, in the order of the arguments
    `num_outputs`     number of gradients that `apply` takes
    `sequence_nr`     creation order: an operation has a higher number than everything that it read

    >>> x = Variable(np.ones(2), requires_grad=True)
    >>> node = (x * x).sum().grad_fn
    >>> node.name(), [edge.node.name() for edge in node.next_functions]
    ('SumBackward0', ['MulBackward0'])
    """

    __slots__ = ("__weakref__", "edges", "hooks", "kept", "num_outputs", "sequence_nr")
    locates_errors = False  # True if errors of `apply` already name the node

    def __init__(self, next_functions: Iterable[GradientEdge] = (), num_outputs: int = 1):
        self.edges: tuple[tuple[TapeNode | None, int], ...] = ()  # plain pairs, which are faster than GradientEdges
        self.hooks: dict[int | None, list[Callable]] | None = None
        self.kept: dict[int, list[weakref.ref]] | None = None
        self.num_outputs = num_outputs
        if next_functions:
            self.next_functions = tuple(next_functions)
        self.sequence_nr = next(NUMBERS)

    @property
    def next_functions(self) -> tuple[GradientEdge, ...]:
        """The destinations of the gradients that `apply` returns.

        Raises    TypeError for anything but pairs of a Node (or None) and one of its output numbers
        """
        return tuple([GradientEdge(*edge) for edge in self.edges])

    @next_functions.setter
    def next_functions(self, edges: Sequence[GradientEdge]) -> None:
        self.edges = tuple([checked(edge, self) for edge in edges])

    def name(self) -> str:
        """The name of the operation, as `MulBackward0`."""
        return type(self).__name__

    def apply(self, *grads: Any) -> Any:
        """Compute the input gradients, one per entry of `next_functions`, from the output gradients."""
        raise NotImplementedError("Subclasses should implement this method.")

    def release(self) -> None:
        """Free the values kept from the forward pass; `apply` cannot run again."""

    def register_hook(self, hook: Callable[..., Any]) -> Handle:
        """Call `hook(inputGrads, outputGrads)` after each `apply`; a value that it returns replaces `inputGrads`."""
        return self.hook(None, hook)

    def hook(self, slot: int | None, hook: Callable[..., Any]) -> Handle:
        self.hooks = self.hooks or {}
        hooks = self.hooks.setdefault(slot, [])
        hooks.append(hook)
        return Handle(hooks, hook)

    def keep(self, slot: int, variable: Variable) -> None:
        """Store the gradient of an output in a Variable at the end of each pass, as long as the Variable exists."""
        self.kept = self.kept or {}
        self.kept.setdefault(slot, []).append(weakref.ref(variable))

    draw = Late("puregraph.draw.callablepicture", "drawTape")

    def __str__(self) -> str:
        return f"<{self.name()} object at {id(self):#x}>"

    __repr__ = __str__

    def __reduce__(self) -> tuple:
        raise TypeError(f"{self.name()} belongs to one pass and cannot be copied or pickled; copy the Variable's data")


class Handle:
    """A registered hook; `remove()` unregisters it."""

    def __init__(self, hooks: list[Callable], hook: Callable):
        self.hooks, self.own = hooks, hook

    def remove(self) -> None:
        """Unregister the hook."""
        if self.own in self.hooks:
            self.hooks.remove(self.own)


class LeafAccumulator(TapeNode):
    """The node of a leaf: gives it all contributions, in the order in which its readers ran.

    `variable.receive(contributions)` combines them: arrays are summed in `grad`, texts are collected.

    It holds its Variable, which has only a weak reference to it, so a leaf is freed with the last graph that reads it.
    The Variable keeps the hooks, for the accumulator of the next graph.
    """

    __slots__ = ("variable",)

    def __init__(self, variable: Any):
        super().__init__()
        self.variable = variable
        self.hooks = getattr(variable, "_hooks", None)

    def name(self) -> str:
        return "AccumulateGrad"

    def hook(self, slot: int | None, hook: Callable[..., Any]) -> Handle:
        handle = super().hook(slot, hook)
        self.variable._hooks = self.hooks
        return handle

    def apply(self, *grads: Any) -> Any:
        self.variable.receive([g for g in grads if g is not None])
        return ()


def get_gradient_edge(variable: Variable) -> GradientEdge:
    """The edge along which a Variable's gradient comes: to the node that made it, or to a leaf's accumulator.

    Raises    AutoDiffException for a Variable that does not require a gradient

    >>> x = Variable(np.ones(2), requires_grad=True)
    >>> get_gradient_edge(x * x).node is (x * x).grad_fn, get_gradient_edge(x).output_nr
    (False, 0)
    """
    edge = variable.edge()
    if edge is NOWHERE:
        raise AutoDiffException(NOTHING)
    return edge


def checked(edge: object, owner: TapeNode) -> GradientEdge:
    """An edge, if it is one."""
    node, number = edge if isinstance(edge, tuple) and len(edge) == 2 else (edge, None)
    if not isinstance(node, (TapeNode, type(None))) or type(number) is not int:
        raise TypeError(f"{owner.name()}.next_functions: wanted pairs (Node or None, number), got {edge!r:.80}")
    if node is not None and not 0 <= number < node.num_outputs:
        raise TypeError(f"{owner.name()}.next_functions: {node.name()} has {node.num_outputs} outputs, got {number}")
    return edge if type(edge) is GradientEdge else GradientEdge(node, number)


def total(grads: list[AnyArray], add: Callable[[Any, Any], Any] | None = None) -> Any:
    """Combine contributions, which come last reader first, to one gradient in forward order; None if there is none."""
    return None if not grads else grads[0] if len(grads) == 1 else combine(grads[::-1], add)
