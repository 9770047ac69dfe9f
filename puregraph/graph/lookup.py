"""Lookup of nodes by path, settings for all inner modules, and the text listing of a graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from puregraph.core.errors import GraphError
from puregraph.core.versioning import COUNTER
from puregraph.graph.node import Node
from puregraph.graph.steps import GraphStep, Steps


def nodeNamed(graph: Any, name: str) -> Node:
    """Return the node at a path.

    Raises    GraphError listing similar names
    """
    for node, path in graph.paths.items():
        if path == name:
            return node
    for step in graph.steps().items:
        if step.path == name:
            return step.node
    raise GraphError(f"{graph.title()} has no node {name!r}; it has {', '.join(nearest(name, graph.allNames()))}")


def setInside(graph: Any, name: str, value: object) -> None:
    """Set the mode or precision of a graph and of every module and graph inside it."""
    vars(graph)[name] = value
    if name == "isTraining":
        graph.last = None
    else:
        COUNTER.version = object()
    for module in {id(node.module): node.module for node in graph.nodes}.values():
        if module.isGraph:
            setInside(module, name, value)
        elif name == "isTraining":
            module.setMode(value)
        else:
            setattr(module, name, value)


def listing(graph: Any) -> str:
    """One line per node: its path, its module and its sources."""
    steps = graph.steps()
    rows = [(s.path, s.module.brief(), ", ".join(graph.sources(s, steps))) for s in steps.items]
    wide = [max((len(r[i]) for r in rows), default=0) for i in (0, 1)]
    lines = [f"  {p:{wide[0]}}  {m:{wide[1]}}  {'<- ' + f if f else ''}".rstrip() for p, m, f in rows]
    return "\n".join([repr(graph), *lines])


def sourceNames(step: GraphStep, steps: Steps) -> list[str]:
    """The names of the values that a step takes as inputs."""
    return [steps.names[n] for n in step.args[: step.inputs] if n]


def few(names: Sequence[str], most: int = 4) -> str:
    """The first few names, and how many more there are."""
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" and {rest} more" if rest > 0 else "")


def nearest(name: str, known: list[str], count: int = 6) -> list[str]:
    """Return the names most similar to a mistaken one; among many, only those with a common beginning or end."""
    import difflib  # imported only for an error
    from os.path import commonprefix

    if len(known) > 100 or len(name) > 200:
        ends = {n: len(commonprefix([name, n])) + len(commonprefix([name[::-1], n[::-1]])) for n in known}
        known = [n[:200] for n in sorted(ends, key=ends.__getitem__, reverse=True)[:30]]
        name = name[:200]
    return difflib.get_close_matches(name, known, count, 0.3) or known[:count]
