"""Graph segment: consecutive steps of a graph as a separate graph, with the same modules and paths."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from puregraph.core.linkednode import Edge
from puregraph.graph.graph import Graph
from puregraph.graph.input import Input
from puregraph.graph.node import Node
from puregraph.graph.steps import ABSENT, GraphStep, Steps

Reader = tuple[int, int]  # the index of a step, and of its argument; after the last step, of an output


class Crossing(NamedTuple):
    """A value that crosses a cut, by number, and its readers after the cut."""

    number: int
    readers: tuple[Reader, ...]


class Crossings:
    """The values that cross the cuts between segments of a graph.

    A value with readers on both sides of a cut crosses once per reader behind it: its gradient is then summed in the
    same order as in the uncut graph, so results do not depend on the cuts. Any other value crosses once.

    `isCarried`  if true, graph inputs cross too, through all segments before their readers; otherwise each segment
                 receives the inputs that it reads directly
    `made`       value number -> index of the step that makes it; -1 for graph inputs
    `readers`    value number -> its readers, in order
    """

    def __init__(self, steps: Steps, isCarried: bool = True):
        self.steps, self.isCarried, self.end = steps, isCarried, len(steps.items)
        self.made = dict.fromkeys(steps.inputs, -1)
        self.readers: dict[int, list[Reader]] = {}
        for index, step in enumerate(steps.items):
            self.made.update(dict.fromkeys(step.outs, index))
            for argument, number in enumerate(step.args[: step.inputs]):
                self.readers.setdefault(number, []).append((index, argument))
        for position, number in enumerate(steps.outputs):
            self.readers.setdefault(number, []).append((self.end, position))
        self.readers.pop(ABSENT, None)

    def at(self, cut: int) -> list[Crossing]:
        """The values that cross a cut, in the order in which they are made; at the last cut, the graph's outputs."""
        if cut == self.end:
            return [Crossing(n, ((cut, i),)) for i, n in enumerate(self.steps.outputs)]
        crossings = []
        for number, readers in self.readers.items():
            behind = tuple([reader for reader in readers if reader[0] >= cut])
            if behind and self.made[number] < cut and (self.made[number] >= 0 or self.isCarried):
                isShared = 1 < len(behind) < len(readers)
                crossings += [Crossing(number, (r,)) for r in behind] if isShared else [Crossing(number, behind)]
        return crossings

    def inputsOf(self, begin: int, end: int) -> list[Crossing]:
        """The graph inputs that the steps from `begin` to before `end` receive directly."""
        inputs = [Crossing(n, tuple(self.readers.get(n, ()))) for n in self.steps.inputs]
        if self.isCarried:
            return [] if begin else inputs
        behind = end + (end == self.end)
        return [crossing for crossing in inputs if any(begin <= index < behind for index, _ in crossing.readers)]


class GraphSegment(NamedTuple):
    """A slice of the steps as a graph: takes graph inputs, then the values of its first cut; returns `left`."""

    graph: Graph
    received: list[Crossing]
    taken: list[Crossing]
    left: list[Crossing]


def segmentFrom(crossings: Crossings, begin: int, end: int, name: str | None = None) -> GraphSegment:
    """Build a graph of the steps from `begin` to before `end`: the same modules, paths and order.

    A copy of the result computes its own order, as for any graph.
    """
    steps = crossings.steps
    received, taken = crossings.inputsOf(begin, end), crossings.at(begin) if begin else []
    entered: dict[tuple[int, Reader], Edge] = {}
    inputs: list[Node] = []
    numbers = [crossing.number for crossing in (*received, *taken)]
    for number, readers in (*received, *taken):
        again = f"[{numbers[: len(inputs)].count(number)}]" if numbers.count(number) > 1 else ""
        inputs.append(Input().node())
        inputs[-1].rename = steps.names[number] + again
        inputs[-1].noticed = True  # the original graph has warned of its unused inputs
        entered.update({(number, reader): (inputs[-1], 0) for reader in readers})
    made: dict[int, Edge] = {}

    def edge(number: int, reader: Reader) -> Edge | None:
        return made.get(number) or entered.get((number, reader))

    for index, step in enumerate(steps.items[begin:end], begin):
        node = nodeOf(step, [edge(n, (index, i)) for i, n in enumerate(step.args[: step.inputs])])
        made.update({number: (node, slot) for slot, number in enumerate(step.outs)})
    left = crossings.at(end)
    graph = Graph(inputs, [edge(number, readers[0]) for number, readers in left], name)
    order = {step.path: index for index, step in enumerate(steps.items[begin:end])}
    graph.nodes.sort(key=lambda node: order.get(str(node.rename), -1))  # the order of gradient sums and state updates
    graph.paths = {node: graph.paths[node] for node in graph.nodes}
    return GraphSegment(graph, received, taken, left)


def nodeOf(step: GraphStep, sources: Sequence[Edge | None]) -> Node:
    """Make a node of a step's module with these sources; arguments after an omitted one are passed by name."""
    count = next((i for i, edge in enumerate(sources) if edge is None), len(sources))
    named = {step.module.arguments[i]: edge for i, edge in enumerate(sources) if i > count and edge is not None}
    node = Node(step.module, list(sources[:count]), keywords=named)
    node.rename, node.ruleName = step.path, step.node.rule  # the constructor refuses names with dots
    return node
