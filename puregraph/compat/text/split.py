"""Split: a text in parts."""

from __future__ import annotations

from typing import Any

from puregraph.compat.text.function import TextFunction, feedback, is_empty, on_tape, refuse, role_of, said, value_of
from puregraph.compat.text.template import tagged
from puregraph.core.errors import DataError
from puregraph.graph.function import Context


class Split(TextFunction):
    """y1, y2, ... = x.split(sep, maxsplit). A list of texts gives lists; rows with fewer parts are filled with "".

    The feedback to x lists the feedback to its parts as items, in order: <ITEM>feedback to y1</ITEM>...

    A node of a graph has a fixed number of outputs: there a subclass names them, `outputNames = ("subject", "body")`.

    Shapes    a text, or a list of texts -> a tuple with one entry per part
    Raises    TypeError if x is not a text; DataError in a graph if the numbers of parts and `outputNames` differ

    >>> from puregraph.autodiff import Variable
    >>> line = Variable("Dear Ada; come at noon", requires_grad=True, role="a letter")
    >>> [part.data for part in Split.apply(line, "; ")]
    ['Dear Ada', 'come at noon']
    """

    @classmethod
    def forward(cls, ctx: Context, x: Any, sep: Any = None, maxsplit: int = -1) -> tuple:
        """Split the text. The role of each part names its number and its source."""
        value, role = value_of(x), role_of(x)
        rows = value if isinstance(value, list) else [value]
        if not all(isinstance(row, str) for row in rows):
            refuse("Split", "a text or a list of texts", rows)
        fragments = [row.split(value_of(sep), maxsplit) for row in rows]
        count = max(map(len, fragments), default=0)
        columns = [[row[i] if i < len(row) else "" for row in fragments] for i in range(count)]
        parts = [column if isinstance(value, list) else column[0] for column in columns]
        ctx.save_for_backward(len(rows) if isinstance(value, list) else None, role_of(x, "the whole"))
        if not on_tape(ctx) and len(parts) != len(cls.outputNames):
            raise DataError(
                f"{cls.__name__}: the text has {len(parts)} parts, the node {len(cls.outputNames)} outputs; "
                "name them in a subclass, outputNames = (...), or set maxsplit"
            )
        of = f" of {role}" if role else ""
        return tuple([said(ctx, part, f"split part {i}{of}") for i, part in enumerate(parts)])

    @classmethod
    def backward(cls, ctx: Context, *grads: Any) -> tuple:
        """Return the feedback to all parts, as items."""
        rows, role = ctx.saved_variables
        received = [value_of(g) for g in grads]
        if all(map(is_empty, received)):
            combined: Any = "" if rows is None else [""] * rows
        elif rows is None:
            combined = items(received)
        else:
            combined = [items([g[row] if isinstance(g, list) else g for g in received]) for row in range(rows)]
        return cls.grads(ctx, x=feedback(ctx, combined, role))


def items(texts: list[Any]) -> str:
    """Texts concatenated, each as an item."""
    return "".join(tagged("ITEM", text) for text in texts)
