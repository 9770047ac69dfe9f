"""Symbolic: evaluate integer formulas of shapes with symbolic sizes, ahead of any data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from puregraph.core.dim import Dim, most
from puregraph.core.shape import asValue
from puregraph.ops.formula.expr import Term

if TYPE_CHECKING:
    from puregraph.core.protocols import AnyArray

EXACT = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "neg": np.negative,
    "//": np.floor_divide,
    "%": np.remainder,
}


class UnknownError(Exception):
    """The elements depend on the values of symbols."""


def symbolicValue(root: Term, values: dict[str, AnyArray]) -> AnyArray | None:
    """The elements of a formula, from its variables' arrays of ints and Dims; None if unknown."""
    try:
        return asValue(evaluate(root, values))
    except (UnknownError, ArithmeticError):
        return None


def evaluate(root: Term, values: dict[str, AnyArray]) -> Any:
    """Compute the elements of one term.

    Raises    UnknownError if they depend on the values of symbols
    """
    if root.op == "name" and root.value in values:
        return values[root.value]
    if root.op == "number" and type(root.value) is int:
        return root.value
    if root.op not in EXACT and root.op not in ("==", "where"):
        raise UnknownError(root.op)
    operands = [evaluate(argument, values) for argument in root.args]
    if root.op in EXACT:
        return EXACT[root.op](*operands)
    return np.where(*operands) if root.op == "where" else np.asarray(EQUAL(*operands), bool)


def areEqual(a: Dim, b: AnyArray) -> bool:
    """True if two sizes are equal for all values of their symbols.

    Raises    UnknownError if that depends on the values
    """
    difference = a - b
    if isinstance(difference, Dim) and not (most(difference) < 0 or most(-difference) < 0):
        raise UnknownError(difference)
    return not isinstance(difference, Dim) and difference == 0


EQUAL = np.frompyfunc(areEqual, 2, 1)
