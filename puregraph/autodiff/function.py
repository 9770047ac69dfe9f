"""Function.apply: a Function on Variables, as one node of the tape."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from puregraph.algebra import isArray
from puregraph.autodiff.graph import Node
from puregraph.autodiff.mode import MODE, no_grad
from puregraph.autodiff.variable import AGAIN, Variable, bare, differentiable
from puregraph.errors import AutoDiffException
from puregraph.function import Context, Function, Keyword, copied, leavesOf
from puregraph.watch import WATCH


class FunctionCtx(Context):
    """The context of a Function on Variables: also notices when a value that it keeps is modified."""

    node: Any = None
    versions: tuple = ()

    def save_for_backward(self, *values: Any) -> None:
        """Keep values for `backward`; `Variable.data` must not be set until then."""
        self.saved = values
        self.versions = tuple([getattr(v, "_version", 0) for v in values])

    @property
    def saved_variables(self) -> tuple:
        """What `save_for_backward` kept; an output as the Variable that `apply` returned.

        Raises    AutoDiffException if one was modified since, or the graph was freed
        """
        if self.node is not None and self.node.ctx is None:
            raise AutoDiffException(f"{self.node.name()}: {AGAIN}")
        for v, version in zip(self.saved, self.versions):
            if isinstance(v, Variable) and v._version != version:
                raise AutoDiffException(
                    "a Variable that save_for_backward keeps was modified in place since; make a new one instead"
                )
        return tuple([self.linked(v) for v in self.saved])

    def linked(self, value: Any) -> Any:
        """A kept output with its place in the graph, which it did not have yet when it was kept."""
        if self.node is not None and isinstance(value, Variable) and value.grad_fn is None:
            for number, y in enumerate(self.outputs):
                if y is value:
                    return self.node.output(value, number)
        return value


class FunctionBackward(Node):
    """The gradient of one use of a Function."""

    __slots__ = ("ctx", "form", "function")

    def __init__(self, function: type[Function], ctx: FunctionCtx, form: tuple, leaves: list[Variable], count: int):
        edges = tuple([v.edge() for v in leaves])
        super().__init__((), count)
        self.edges = edges
        self.function, self.ctx, self.form = function, ctx, form

    def name(self) -> str:
        return f"{self.function.__name__}Backward0"

    def apply(self, *grads: Any) -> Any:
        ctx = self.ctx
        if ctx is None:
            raise AutoDiffException(f"{self.name()}: {AGAIN}")
        given = [g if g is None or isinstance(g, Variable) else Variable(g) for g in grads]
        found = self.function.gradients(ctx, given, self.form, isVariable)
        return tuple([g if MODE.enabled else stored(g) for g in found])

    def output(self, value: Variable, number: int) -> Variable:
        """An output as the Variable that points here."""
        new = Variable(value.data, value.role)
        new.grad_fn, new.output_nr, new.requires_grad = self, number, True
        return new

    def release(self) -> None:
        self.ctx = None  # type: ignore[assignment]


def isVariable(value: Any) -> bool:
    """Whether a value is a leaf of a Function's inputs."""
    return isinstance(value, Variable)


def stored(grad: Any) -> Any:
    """A gradient as the engine carries it: the bare array of a Variable, and text with its role."""
    return grad.data if isinstance(grad, Variable) and isArray(grad.data) else grad


def apply(cls: type[Function], *args: Any, **kwargs: Any) -> Any:
    """The operation on Variables, recorded; what is no Variable among the inputs, lists included, is a constant.

    Raises    what `forward` raises; AutoDiffException, in backward, for another number of gradients than inputs
    """
    form = (*map(copied, args), *[Keyword(name, copied(value)) for name, value in kwargs.items()])
    leaves = leavesOf(form, isVariable)
    ctx = FunctionCtx(tuple([any(v.requires_grad for v in leavesOf(part, isVariable)) for part in form]), form)
    with no_grad():
        result = cls.call(ctx, args, kwargs)
    outputs = tuple([wrapped(y) for y in (result if type(result) is tuple else (result,))])
    ctx.outputs = outputs
    if WATCH.look is not None:
        WATCH.look(cls.__name__, cls, bare(leaves), bare(outputs))
    if MODE.enabled and any(ctx.needs_input_grad):
        node = FunctionBackward(cls, ctx, form, leaves, len(outputs))
        ctx.node = node
        dead = [id(y) for y in ctx.dead]
        outputs = tuple(
            [
                node.output(y, i) if isVariable(y) and id(y) not in dead and differentiable(y.data) else y
                for i, y in enumerate(outputs)
            ]
        )
    return outputs if type(result) is tuple else outputs[0]


def wrapped(value: Any) -> Any:
    """What `forward` returned as a Variable; None stays None."""
    return value if value is None or isinstance(value, Variable) else Variable(value)


def once_differentiable(backward: Callable[..., Any]) -> Callable[..., Any]:
    """For a `backward` that leaves numpy: trying to differentiate its gradients again is an error."""

    @functools.wraps(backward)
    def once(ctx: Context, *grads: Any) -> Any:
        with no_grad():
            found = backward(ctx, *grads)
        if not MODE.enabled:
            return found
        return tuple([Once.apply(g, *grads) for g in (found if type(found) is tuple else (found,))])

    return once


class Once(Function):
    """A gradient that cannot be differentiated again."""

    @staticmethod
    def forward(ctx: Context, g: Any, *grads: Any) -> Any:
        return g

    @staticmethod
    def backward(ctx: Context, *grads: Any) -> Any:
        raise AutoDiffException("this gradient comes from a Function that is marked once_differentiable")


Function.apply = classmethod(apply)  # type: ignore[assignment]
