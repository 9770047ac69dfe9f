"""Scalars: formulas of one number as functions of plain Python, which take a tenth of the time that numpy takes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from puregraph.ops.formula.expr import Term
from puregraph.ops.formula.optable import OPERATORS

Plain = Callable[[float], float]
FUNCTIONS: dict[str, Callable[..., float]] = {
    **OPERATORS,
    "sqrt": math.sqrt,
    "exp": math.exp,
    "log": math.log,
    "minimum": min,
    "maximum": max,
}


def plain(term: Term) -> Plain | None:
    """Return a term as a function of its only name; None if the term has a function that is not in FUNCTIONS."""
    if term.op == "name":
        return lambda x: x
    if term.op == "number":
        number = float(term.value)
        return lambda x: number
    function: Any = FUNCTIONS.get(term.op)
    parts = [plain(a) for a in term.args]
    if function is None or None in parts:
        return None
    if len(parts) == 1:
        (a,) = parts
        return lambda x: function(a(x))  # type: ignore[misc]
    a, b = parts
    return lambda x: function(a(x), b(x))  # type: ignore[misc]
