"""Parsing: convert texts to Python syntax trees, in one thread at a time."""

from __future__ import annotations

import ast

from puregraph.core.base.mutex import Mutex

PARSING = Mutex()


def syntaxTree(text: str, mode: str = "exec") -> ast.AST:
    """The tree of a text, which is never executed.

    In CPython 3.11 all threads share one count of a tree's depth, so that two threads that parse at once may raise
    SystemError.
    """
    with PARSING.lock:
        return ast.parse(text, mode=mode)
