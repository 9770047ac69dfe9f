"""Collapsed lines: nested graphs deeper than a depth as one line of a Footprint each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from puregraph.graph.analysis.footprint import FootprintLine

if TYPE_CHECKING:
    from collections.abc import Callable

    from puregraph.graph.analysis.footprint import Footprint


def collapsedLines(footprint: Footprint, depth: int | None) -> list[FootprintLine]:
    """Return the lines of a footprint, with one line for each graph that is nested in `depth` others; None: all lines.

    Such a line has the outputs of the graph, the inputs that it reads from outside, the sums of parameters, bytes and
    flops, and the first fault. A graph that makes no value has no line.
    """
    if depth is None:
        return footprint.lines
    groups = graphsAt(footprint.graph, depth)
    groupOf: dict[str, str] = {}
    items: dict[str, list[FootprintLine]] = {}  # in order, by path of a group or of a node outside groups
    for line in footprint.lines:
        groupOf[line.path] = next((path for path in beginnings(line.path) if path in groups), "")
        items.setdefault(groupOf[line.path] or line.path, []).append(line)

    def shown(source: str) -> str:
        path = source if source in groupOf else source.rpartition(".")[0]  # of an output of several
        return groupOf.get(path) or source

    nodes = {line.path: line for line in footprint.lines}
    return [
        groupLine(path, groups[path], lines, nodes, shown)
        if path in groups
        else lines[0]._replace(source=[shown(source) for source in lines[0].source])
        for path, lines in items.items()
    ]


def beginnings(path: str) -> list[str]:
    """Return the beginnings of a path that end at a dot: a and a.b for a.b.c."""
    return [path[:i] for i, letter in enumerate(path) if letter == "."]


def graphsAt(graph: Any, depth: int) -> dict[str, Any]:
    """Return the graphs that are nested in `depth` others inside a graph, by path."""
    level = {"": graph}
    for _ in range(depth + 1):
        level = {
            f"{path}.{name}" if path else name: node.module
            for path, outer in level.items()
            for node, name in outer.paths.items()
            if node.module.isGraph
        }
    return level


def groupLine(
    path: str,
    graph: Any,
    lines: list[FootprintLine],
    nodes: dict[str, FootprintLine],
    shown: Callable[[str], str],
) -> FootprintLine:
    """Return the line of a graph from those of its nodes; `shown` gives the name of a source in the listing."""
    reads: dict[str, Any] = {}
    for line in lines:
        for source, shape in zip(line.source, line.gradShapes or [None] * len(line.source)):
            name = shown(source)
            if name != path and reads.get(name) is None:
                reads[name] = shape
    ends = [(nodes.get(name), slot) for name, slot in outputsOf(path, graph)]
    isKnown = all(node is not None and node.shapes is not None for node, _ in ends)
    return FootprintLine(
        path,
        graph,
        list(reads),
        [node.shapes[slot] for node, slot in ends] if isKnown else None,  # type: ignore[union-attr, index]
        list(reads.values()),
        sum(line.params for line in lines),
        sum(line.nbytes for line in lines),
        sum(line.flops for line in lines),
        next((line.fault for line in lines if line.fault), None),
        [node.dtypes[slot] for node, slot in ends] if isKnown else [],  # type: ignore[union-attr]
    )


def outputsOf(path: str, graph: Any) -> list[tuple[str, int]]:
    """Return the (path of a node, output slot) of each output of a graph, through nested graphs."""
    outputs = []
    for node, slot in graph.outputs:
        inner, name = node.module, f"{path}.{graph.paths[node]}"
        outputs.append(outputsOf(name, inner)[slot] if inner.isGraph else (name, slot))
    return outputs
