"""Function.apply: a Function on Variables, as one node of the tape."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from puregraph.autodiff.tape.gradmode import MODE, no_grad
from puregraph.autodiff.tape.recordednodes import AGAIN
from puregraph.autodiff.tape.tapenode import TapeNode
from puregraph.autodiff.tape.variable import (
    Variable,
    adds,
    bare,
    isVariable,
    standIn,
    targetOf,
    typed,
    variable,
    versionOf,
)
from puregraph.core.accumulate import combine, differentiable, isArray, needPlain, shapeOf, zeroLike
from puregraph.core.errors import AutoDiffException, GraphError
from puregraph.core.hooks import HOOKS
from puregraph.graph.function import Context, Function, Keyword, copied, leavesOf, listText, resultText, writeRefusal
from puregraph.graph.module import holdsNode


class FunctionCtx(Context):
    """The context of a Function on Variables, which also notices when a saved value is modified."""

    reference: Any = None  # a weak one: the node holds this context
    versions: tuple = ()

    @property
    def node(self) -> Any:
        """The node of the graph that this context belongs to; None if there is none, or if it was freed."""
        return None if self.reference is None else self.reference()

    def save_for_backward(self, *values: Any) -> None:
        """Keep values for `backward`; `Variable.data` must not be set until then."""
        self.saved = values
        self.versions = tuple(map(versionOf, values))

    @property
    def saved_variables(self) -> tuple:
        """The values saved by `save_for_backward`; an output is the Variable that `apply` returned.

        A text is a copy, whose `grad` may be set: what `backward` returns is its gradient.

        Raises    AutoDiffException if one was modified since, or the graph was freed
        """
        if self.node is not None and self.node.ctx is None:
            raise AutoDiffException(f"{self.node.name()}: {AGAIN}")
        for v, version in zip(self.saved, self.versions):
            if versionOf(v) != version:
                raise AutoDiffException(
                    "a Variable that save_for_backward keeps was modified in place since; make a new one instead"
                )
        linked = [self.linked(v) for v in self.saved]
        return tuple([standIn(v) if isinstance(v, Variable) and not adds(v._value) else v for v in linked])

    def linked(self, value: Any) -> Any:
        """Link a saved output to its node, which did not exist yet when it was saved."""
        if self.node is not None and isinstance(value, Variable) and value.grad_fn is None:
            for number, y in enumerate(self.outputs):
                if y is value:
                    return self.node.output(value, number)
        return value

    def complete(self, grads: Sequence[Any]) -> list[Any]:
        """The gradients of the outputs as `backward` takes them: Variables, or None."""
        if not self.materializes:
            return list(grads)
        return [zeros(y) if g is None else g for g, y in zip(grads, self.outputs)]


class FunctionBackward(TapeNode):
    """The gradient of one use of a Function."""

    __slots__ = ("ctx", "form", "function", "leaves")

    def __init__(
        self,
        function: type[Function],
        ctx: FunctionCtx,
        form: tuple,
        leaves: list[Variable],
        edges: tuple[tuple[TapeNode | None, int], ...],
        count: int,
    ):
        super().__init__((), count)
        self.edges = edges
        self.function, self.ctx, self.form, self.leaves = function, ctx, form, leaves

    def name(self) -> str:
        return f"{self.function.__name__}Backward0"

    def apply(self, *grads: Any) -> Any:
        ctx = self.ctx
        if ctx is None:
            raise AutoDiffException(f"{self.name()}: {AGAIN}")
        variables = [g if g is None else received(g) for g in grads]
        gradients = self.function.gradients(ctx, variables, self.form, isVariable)
        return tuple([self.stored(g, v, i) for i, (g, v) in enumerate(zip(gradients, self.leaves))])

    def stored(self, g: Any, v: Variable, number: int) -> Any:
        """Convert a gradient for the engine: an array in its input's dtype, bare unless recorded; text with its role.

        Raises    AutoDiffException if its shape is not that of its input
        """
        if type(g) is list and g and not isArray(v._value) and all(map(isVariable, g)):  # as in `grad` of a text
            g = combine(g)
        x = g._value if isinstance(g, Variable) else g
        if type(x) is type(v._value) is np.float64:  # the fast path
            return g if MODE.enabled else x
        needPlain(x, self.name())
        if isinstance(x, list) and isArray(v._value):
            raise AutoDiffException(listText(self.function.__name__))
        if g is not None and isArray(v._value) and shapeOf(x) != v.shape:
            raise AutoDiffException(
                f"{self.name()}: wanted a gradient of shape {v.shape} for input {number}, got {shapeOf(x)}"
            )
        return typed(g if MODE.enabled else x, v) if isArray(x) else g

    def output(self, value: Variable, number: int) -> Variable:
        """An output as the Variable that points here, if it can have a gradient."""
        if value is None or not differentiable(value._value):
            return value
        return variable(value._value, self, number, value.role)

    def release(self) -> None:
        self.ctx = self.leaves = self.form = None  # type: ignore[assignment]


def apply(cls: type[Function], *args: Any, **kwargs: Any) -> Any:
    """Run and record the operation on Variables; all other inputs, lists included, are constants.

    Raises    the errors of `forward`; GraphError for nodes; in backward, AutoDiffException if the number of gradients
              differs from the number of inputs
    """
    if not kwargs and all(map(isVariable, args)):
        form, leaves = args, list(args)
        ctx = FunctionCtx(tuple([v._wants for v in leaves]), form)
    else:
        if any(map(holdsNode, (*args, *kwargs.values()))):
            name = cls.__name__
            raise GraphError(f"{name}.apply: wanted Variables and constants, got a Node; use {name}.node in a graph")
        for value in args:
            needPlain(value, f"{cls.__name__}.apply")
        form = (*map(copied, args), *[Keyword(name, copied(value)) for name, value in kwargs.items()])
        parts = [leavesOf(part, isVariable) for part in form]
        leaves = [v for part in parts for v in part]
        ctx = FunctionCtx(tuple([any(v._wants for v in part) for part in parts]), form)
    edges = tuple([targetOf(v) for v in leaves])  # before `forward`, which may write to an input
    before, MODE.enabled = MODE.enabled, False
    try:
        result = cls.call(ctx, args, kwargs)
    except ValueError as error:
        raise writeRefusal(error, f"{cls.__name__}.forward", "an input")  # noqa: B904 - it has its cause
    finally:
        MODE.enabled = before
    ctx.outputs = result if type(result) is tuple else (result,)
    outputs = tuple([wrapped(cls, y) for y in ctx.outputs])
    if HOOKS.look is not None:
        HOOKS.look(cls.__name__, cls, bare(leaves), bare(outputs))
    if MODE.enabled and any(ctx.needs_input_grad):
        node = FunctionBackward(cls, ctx, form, leaves, edges, len(outputs))
        ctx.reference = weakref.ref(node)
        dead = [id(y) for y in ctx.dead]
        live = [id(y) not in dead for y in ctx.outputs]
        outputs = tuple([node.output(y, i) if live[i] else unlinked(y) for i, y in enumerate(outputs)])
    else:
        outputs = tuple(map(unlinked, outputs))
    return outputs if type(result) is tuple else outputs[0]


def received(g: Any) -> Variable:
    """Convert a gradient for `backward`; a text's gradient has its words in `data` and in `grad`."""
    v = g if isinstance(g, Variable) else Variable(g)
    return v if adds(v._value) else standIn(v, v._value)


def zeros(y: Any) -> Variable | None:
    """The gradient of an output that nothing depends on; None if it is no Variable and cannot have one."""
    return Variable(zeroLike(bare(y))) if isinstance(y, Variable) or differentiable(y) else None


def wrapped(function: type[Function], value: Any) -> Any:
    """Wrap a result of `forward` as a Variable; None stays None, and a list may only hold texts."""
    if isinstance(value, list) and any(isVariable(item) or isArray(item) for item in value):
        raise AutoDiffException(resultText(function.__name__, value))
    return value if value is None or isinstance(value, Variable) else Variable(value)


def unlinked(value: Any) -> Any:
    """Return an output without its node, so that no gradient passes through it."""
    return variable(value._value, role=value.role) if isinstance(value, Variable) and value._wants else value


def once_differentiable(backward: Callable[..., Any]) -> Callable[..., Any]:
    """Mark a `backward` that leaves numpy: differentiating its gradients again raises an error.

    >>> class Doubled(Function):
    ...     @staticmethod
    ...     def forward(ctx, x):
    ...         return 2 * x
    ...     @staticmethod
    ...     @once_differentiable
    ...     def backward(ctx, grad):
    ...         return 2 * grad
    >>> x = Variable(np.ones(2), requires_grad=True)
    >>> Doubled.apply(x).sum().backward()
    >>> x.grad
    array([2., 2.])
    """

    @functools.wraps(backward)
    def once(ctx: Context, *grads: Any) -> Any:
        with no_grad():
            gradients = backward(ctx, *grads)
        if not MODE.enabled or not isinstance(ctx, FunctionCtx):
            return gradients
        node = OnceBackward(ctx.node, grads)
        many = gradients if type(gradients) is tuple else (gradients,)
        return tuple([g if g is None else variable(bare(g), node) for g in many])

    return once


class OnceBackward(TapeNode):
    """The node of a gradient that cannot be differentiated again; `apply` raises an error."""

    __slots__ = ("function",)

    def __init__(self, of: FunctionBackward, grads: Sequence[Any]):
        edges = (*of.edges, *(targetOf(g) for g in grads if isVariable(g)))
        super().__init__()
        self.edges, self.function = edges, of.function.__name__

    def apply(self, *grads: Any) -> Any:
        raise AutoDiffException(f"{self.function}.backward is marked once_differentiable: its gradients have none")


applied = classmethod(apply)
