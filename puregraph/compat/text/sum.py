"""Sum: any number of texts, each marked as an item, or of numbers."""

from __future__ import annotations

from functools import reduce
from typing import Any

from puregraph.compat.text.add import is_number, plus
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
from puregraph.compat.text.template import tagged
from puregraph.graph.function import Context


class Sum(TextFunction):
    """y = <ITEM>x1</ITEM><ITEM>x2</ITEM>..., or x1 + x2 + ... for numbers; lists element by element.

    Feedback to y goes to every item, in the words of `template`.

    Shapes    a list of texts, of numbers, or of lists of one length -> one of them
    Raises    ValueError for no items or lists of several lengths, TypeError for values of several kinds
    """

    template = "For {role}, as one of several items that stand together: {feedback}"

    @classmethod
    def forward(cls, ctx: Context, x: Any) -> Any:
        """All items as one; its role is that of all."""
        if not isinstance(x, (list, tuple)) or not x:
            raise ValueError(f"Sum: wanted a list of at least one item, got {x!r:.80}")
        ctx.save_for_backward(*[role_of(item, f"item {index}") for index, item in enumerate(x, 1)])
        return said(ctx, deep(together, *map(value_of, x)), roles_of(x))

    @classmethod
    def backward(cls, ctx: Context, grad: Any) -> tuple:
        """Word the feedback once for each item."""
        received = value_of(grad)
        return cls.grads(
            ctx, x=[feedback(ctx, worded(cls.template, received, role), role) for role in ctx.saved_variables]
        )


def together(*items: Any) -> Any:
    """Concatenate texts as items, or sum numbers."""
    if all(isinstance(item, str) for item in items):
        return "".join(tagged("ITEM", item) for item in items)
    if not all(map(is_number, items)):
        refuse("Sum", "texts alone, numbers alone or lists of them", items)
    return reduce(plus, items)
