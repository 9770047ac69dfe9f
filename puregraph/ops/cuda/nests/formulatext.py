"""Formulas as CUDA C: each a statement on named values of one type, whatever the storage type."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from puregraph.ops.cuda.runtime.preprocess import STORED, read
from puregraph.ops.formula import Formula
from puregraph.ops.formula.expr import Term, leaf, rebuild, term
from puregraph.ops.formula.formula import cudaFrom, formulaOf, preambleFrom
from puregraph.ops.formula.loopnest import INTEGERS

MIN_DIVISOR = 2.0**-120  # divisors from here to its inverse have a float32 inverse
WHOLE = frozenset(STORED[dtype.name] for dtype in INTEGERS.values())  # the types of integers


def statement(formula: Formula, to: str, T: str) -> str:
    """The declaration of a variable, and the block that computes it from others of its type."""
    body = cudaFrom([multiplied(formula) if T == "float" else formula], [to], T, T in WHOLE).replace("\n", " ")
    return f"{T} {to}; {{ {body} }}" if "; " in body[:-1] else f"const {T} {body}"


@lru_cache(maxsize=4096)
def multiplied(formula: Formula) -> Formula:
    """The formula with products in place of quotients by constants, which take a GPU ten times as long."""

    def build(op: str, *args: Term) -> Term:
        if op == "/" and args[1].op == "number" and MIN_DIVISOR <= abs(args[1].value) <= 1 / MIN_DIVISOR:
            return term("*", args[0], leaf(1 / args[1].value))
        return term(op, *args)

    return formulaOf(rebuild(formula.term, {}, build))


def preamble(formulas: Iterable[Formula], T: str) -> str:
    """The functions that statements call and CUDA lacks."""
    return read("integers.h") if T in WHOLE else preambleFrom(list(formulas), T)
