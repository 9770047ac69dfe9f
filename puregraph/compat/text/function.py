"""The base of operations on text: inputs by name, roles, and values that are lists."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

from puregraph.autodiff.tape.functionapply import FunctionCtx
from puregraph.autodiff.tape.variable import Variable
from puregraph.compat.text.template import fill
from puregraph.core.errors import AutoDiffException
from puregraph.graph.function import Context, Function, Keyword


class TextFunction(Function):
    """An operation on text. On a tape it takes and returns Variables with roles, in a graph the bare values.

    `forward` and `backward` are class methods, so that a subclass can change the templates that they use.

    Shapes    a text, a number or a list of them is one value, of shape ()

    >>> class Upper(TextFunction):
    ...     @classmethod
    ...     def forward(cls, ctx, x):
    ...         return str(x).upper()
    >>> Upper.apply("quiet")
    Variable('QUIET')
    """

    @classmethod
    def dataShapeFrom(cls, *shapes: Any) -> Any:
        """Return the shape of a single text for each output."""
        return [()] * len(cls.outputNames) if len(cls.outputNames) > 1 else ()

    @classmethod
    def given(cls, ctx: Context) -> dict[str, Any]:
        """Return the inputs by the names of the arguments of `forward`."""
        return dict(zip(cls.names(ctx), [part.value if type(part) is Keyword else part for part in ctx.form]))

    @classmethod
    def names(cls, ctx: Context) -> list[str]:
        """The name of each input, in the order in which they were given."""
        own: Any = cls
        names = parameters(own)
        return [part.name if type(part) is Keyword else names[index] for index, part in enumerate(ctx.form)]

    @classmethod
    def needs(cls, ctx: Context, name: str) -> bool:
        """True if an input needs a gradient."""
        return dict(zip(cls.names(ctx), ctx.needs_input_grad)).get(name, False)

    @classmethod
    def grads(cls, ctx: Context, **grads: Any) -> tuple:
        """Gradients by the names of inputs as `backward` returns them: one per input, None for those not named."""
        return tuple([grads.get(name) for name in cls.names(ctx)])


@cache
def parameters(cls: Any) -> list[str]:
    """The names of the inputs of `forward`, without the context."""
    return list(inspect.signature(cls.forward).parameters)[1:]


def value_of(x: Any) -> Any:
    """Return the value of a Variable; other values are returned as they are."""
    return x.data if isinstance(x, Variable) else x


def role_of(x: Any, otherwise: str = "") -> str:
    """Return the role of a Variable, or `otherwise` if it has none."""
    return getattr(x, "role", "") or otherwise


def roles_of(xs: Iterable[object]) -> str:
    """Join the roles of several inputs with `and`; inputs without a role are left out."""
    return " and ".join(filter(None, map(role_of, xs)))


def on_tape(ctx: Context) -> bool:
    """True if an operation works on Variables; in a graph it works on bare values."""
    return isinstance(ctx, FunctionCtx)


def said(ctx: Context, data: Any, role: str) -> Variable:
    """A value as an operation returns it: with its role on a tape, bare in a graph."""
    return Variable(data, role=role) if on_tape(ctx) else data


def feedback(ctx: Context, data: Any, role: str) -> Any:
    """A gradient as an operation returns it, named after its role."""
    return said(ctx, data, f"feedback to {role}")


def deep(function: Callable[..., Any], *values: Any) -> Any:
    """Apply a function to values, or element by element to lists.

    Raises    ValueError for lists of different lengths
    """
    if not all(isinstance(v, list) for v in values):
        return function(*values)
    if len({len(v) for v in values}) > 1:
        raise ValueError(f"wanted lists of one length, got lengths {', '.join(str(len(v)) for v in values)}")
    return [deep(function, *row) for row in zip(*values)]


def worded(template: str, grad: Any, role: str) -> Any:
    """Fill feedback into a template, element by element; numbers and empty feedback are returned unchanged."""
    return deep(lambda g: fill(template, {"role": role, "feedback": g}) if isinstance(g, str) and g else g, grad)


def flatten(value: object) -> list[Any]:
    """Return the leaves of nested lists; a value that is not a list is the only leaf."""
    return [leaf for element in value for leaf in flatten(element)] if isinstance(value, (list, tuple)) else [value]


def is_empty(grad: Any) -> bool:
    """True if all feedback is empty."""
    return all(isinstance(g, str) and not g for g in flatten(grad))


def refuse(what: str, wanted: str, values: Iterable[object]) -> None:
    """Raise the error for values that do not go together."""
    raise TypeError(f"{what}: wanted {wanted}, got {', '.join(type(v).__name__ for v in values)}")


def need_text(answer: object) -> str:
    """Return a model's answer, after checking that it is a text.

    Raises    AutoDiffException for anything but a text
    """
    if not isinstance(answer, str):
        raise AutoDiffException(f"a model client must return a text, got {type(answer).__name__}: {answer!r:.80}")
    return answer
