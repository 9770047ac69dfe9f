"""Formulas: their functions, expressions, how they run, and nests of them in one pass over memory."""

from puregraph.ops.formula.formula import Formula

__all__ = ["Formula"]
