"""PatternRegistry: patterns of small operators that exporters compose, and the makers of their modules."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from puregraph.core.errors import PuregraphError
from puregraph.onnx.patterns.matching import Match, matches, views
from puregraph.onnx.patterns.pattern import Pattern

FAMILIES = ("activation", "attention", "layer", "quantized", "quantizedlayer")
ARITHMETIC = frozenset("Add Sub Mul Div Neg Reciprocal Pow".split())  # operators that match in several forms
Known = dict[str, list[tuple[Pattern, Callable[..., Any]]]]
PATTERNS: Known = {}


def onnxPattern(*texts: str) -> Callable[[Callable], Callable]:
    """Register the function below it as the maker of one module from operators that match these patterns.

    The function gets an `OnnxNode`, which makes nodes, and the values bound to the pattern's names. It returns the
    output, or None if no module computes the same.
    """

    def register(make: Callable) -> Callable:
        for text in texts:
            pattern = Pattern(text)
            known = PATTERNS.setdefault(pattern.root.op, [])
            known.append((pattern, make))
            known.sort(key=lambda entry: -entry[0].size)
        return make

    return register


def loadPatterns() -> None:
    """Import puregraph's own patterns, a file for each family of modules."""
    for family in FAMILIES:
        import_module(f"puregraph.onnx.patterns.{family}patterns")


def patternsFor(kinds: set[str]) -> Known:
    """The patterns that can occur in a file with these operators, by their last operator."""
    byRoot = {root: [entry for entry in known if entry[0].kinds <= kinds] for root, known in PATTERNS.items()}
    return {root: entries for root, entries in byRoot.items() if entries}


def recognized(op: Any, value: Any, known: Known) -> Any:
    """The output of one module that replaces the nodes of a value; None if no pattern matches.

    It has the shape and dtype of the value, and no value inside the pattern has other readers.
    """
    if not known or value.origin.type not in ARITHMETIC and value.origin.type not in known:
        return None
    op.scope = value.origin.scope
    for operator in dict.fromkeys(view.op for view in views(value)):
        for pattern, make in known.get(operator, ()):
            for match in matches(pattern.root, value, Match({})):
                made = attempt(op, make, match.bindings) if match.isClosed() else None
                if made is not None and made.dtype == value.dtype and made.shape == value.shape:
                    return made
    return None


def attempt(op: Any, make: Callable[..., Any], bindings: dict[str, Any]) -> Any:
    """Call a pattern's function with the bindings of a match; None if its module rejects them."""
    try:
        return make(op, **bindings)
    except PuregraphError:
        return None
