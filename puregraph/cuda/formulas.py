"""Formulas as CUDA C: each a statement on named numbers of one type, whatever they are stored as."""

from __future__ import annotations

from collections.abc import Iterable

from puregraph.formula import Formula, cudaFrom, preambleFrom


def statement(formula: Formula, to: str, T: str) -> str:
    """The declaration of a number, and the block that computes it of others of its type."""
    body = cudaFrom([formula], [to], T).replace("\n", " ")
    return f"{T} {to}; {{ {body} }}" if "; " in body[:-1] else f"const {T} {body}"


def preamble(formulas: Iterable[Formula], T: str) -> str:
    """The functions that statements call and CUDA lacks."""
    return preambleFrom(list(formulas), T)
