"""Add: two texts concatenated, two numbers, or two lists element by element."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from puregraph.autodiff.tape.recording import TEXT_OPERATORS
from puregraph.compat.text.function import (
    TextFunction,
    deep,
    feedback,
    refuse,
    role_of,
    roles_of,
    said,
    value_of,
    worded,
)
from puregraph.core.accumulate import isArray, shapeOf
from puregraph.graph.function import Context

if TYPE_CHECKING:
    from puregraph.autodiff.tape.variable import Variable


class Add(TextFunction):
    """z = x + y: texts are concatenated, numbers added, lists added element by element.

    Feedback to z goes to x and to y, in the words of `template`, which names the role of the one that it goes to.
    `+` is this operation where either operand is a Variable of text.

    Shapes    x, y texts, numbers or lists of one length -> z the same
    Raises    TypeError for values of two kinds, ValueError for lists of two lengths
    """

    template = "For {role}, as one of two parts that stand together: {feedback}"

    @classmethod
    def forward(cls, ctx: Context, x: Any, y: Any) -> Any:
        """The sum; its role is that of both."""
        ctx.save_for_backward(role_of(x, "the first part"), role_of(y, "the second part"))
        return said(ctx, deep(plus, value_of(x), value_of(y)), roles_of((x, y)))

    @classmethod
    def backward(cls, ctx: Context, grad: Any) -> tuple:
        """Word the feedback once for each input."""
        received = value_of(grad)
        x, y = [feedback(ctx, worded(cls.template, received, role), role) for role in ctx.saved_variables]
        return cls.grads(ctx, x=x, y=y)


def plus(a: Any, b: Any) -> Any:
    """The sum of two texts or two numbers."""
    if not (isinstance(a, str) and isinstance(b, str) or is_number(a) and is_number(b) and shapeOf(a) == shapeOf(b)):
        refuse("Add", "two texts, two numbers or two lists of them", (a, b))
    return a + b


def is_number(value: object) -> bool:
    """True for a number or an array."""
    return isinstance(value, (int, float)) or isArray(value)


def add(x: Any, y: Any) -> Variable:
    """x + y"""
    return Add.apply(x, y)


TEXT_OPERATORS["add"] = add
