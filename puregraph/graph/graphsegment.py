"""Graph segment: steps of a graph that follow each other, as a graph of their own, with its modules and paths."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from puregraph.core.linkednode import Edge
from puregraph.graph.graph import Graph
from puregraph.graph.input import Input
from puregraph.graph.steps import ABSENT, GraphStep, Steps
from puregraph.node import Node

Reader = tuple[int, int]  # the index of a step and that of one of its arguments; behind the last step, of an output


class Crossing(NamedTuple):
    """A value that segments are given, by number, and who reads it there or behind."""

    number: int
    readers: tuple[Reader, ...]


class Crossings:
    """What goes from the steps before a cut to those behind it.

    A value that is read on both sides of a cut goes over once for each reader behind it: its gradient is then added up
    in the order in which the whole graph adds it, and no bit depends on the cuts. Any other value goes over once.

    `isCarried`  whether inputs of the graph go over as well, through all segments that are before their readers; else
                 each segment is given those that it reads
    `made`       by number the index of the step that makes a value; -1 for inputs of the graph
    `readers`    by number who reads a value, in order
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
        """What goes over a cut, in the order in which it is made; over the last one, the outputs of the graph."""
        if cut == self.end:
            return [Crossing(n, ((cut, i),)) for i, n in enumerate(self.steps.outputs)]
        found = []
        for number, readers in self.readers.items():
            behind = tuple([reader for reader in readers if reader[0] >= cut])
            if behind and self.made[number] < cut and (self.made[number] >= 0 or self.isCarried):
                isShared = 1 < len(behind) < len(readers)
                found += [Crossing(number, (r,)) for r in behind] if isShared else [Crossing(number, behind)]
        return found

    def given(self, begin: int, end: int) -> list[Crossing]:
        """The inputs of the graph that the steps from `begin` to before `end` are given from outside."""
        inputs = [Crossing(n, tuple(self.readers.get(n, ()))) for n in self.steps.inputs]
        if self.isCarried:
            return [] if begin else inputs
        behind = end + (end == self.end)
        return [each for each in inputs if any(begin <= index < behind for index, _ in each.readers)]


class GraphSegment(NamedTuple):
    """Some steps as a graph, which takes inputs of the whole, then what comes over its first cut, and gives `left`."""

    graph: Graph
    given: list[Crossing]
    taken: list[Crossing]
    left: list[Crossing]


def segmentFrom(crossings: Crossings, begin: int, end: int, name: str | None = None) -> GraphSegment:
    """The steps from `begin` to before `end`: nodes of the same modules, with their paths and in their order.

    A copy of the graph has an order of its own, as any graph.
    """
    steps = crossings.steps
    given, taken = crossings.given(begin, end), crossings.at(begin) if begin else []
    entered: dict[tuple[int, Reader], Edge] = {}
    inputs: list[Node] = []
    numbers = [each.number for each in (*given, *taken)]
    for number, readers in (*given, *taken):
        again = f"[{numbers[: len(inputs)].count(number)}]" if numbers.count(number) > 1 else ""
        inputs.append(Input().node())
        inputs[-1].rename = steps.names[number] + again
        inputs[-1].noticed = True  # the whole has said which of its inputs it leaves out
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
    graph.nodes.sort(
        key=lambda node: order.get(str(node.rename), -1)
    )  # in which gradients are added, and states written
    graph.paths = {node: graph.paths[node] for node in graph.nodes}
    return GraphSegment(graph, given, taken, left)


def nodeOf(step: GraphStep, sources: Sequence[Edge | None]) -> Node:
    """A node of a step's module that takes these; what follows an argument that is left out is given by name."""
    count = next((i for i, edge in enumerate(sources) if edge is None), len(sources))
    named = {step.module.arguments[i]: edge for i, edge in enumerate(sources) if i > count and edge is not None}
    node = Node(step.module, list(sources[:count]), keywords=named)
    node.rename, node.ruleName = step.path, step.node.rule  # a path has dots, which no name that is given may have
    return node
