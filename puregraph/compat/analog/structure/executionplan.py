"""ExecutionPlan: the order in which a graph's nodes run, for one version of the graph and one start node."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Any, NamedTuple

from puregraph.compat.analog.structure.edges import Edge
from puregraph.core.errors import GraphError

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence


class PlanStep(NamedTuple):
    """One node, the edges that it reads, and the nodes whose values no later step reads."""

    node: Hashable
    edges: tuple[Edge, ...]
    finished: tuple[Any, ...]


class ExecutionPlan:
    """The steps of a pass from one node, in order, for one version of a graph."""

    __slots__ = ("start", "steps", "version")

    def __init__(self, start: Hashable, version: int, steps: list[PlanStep]):
        self.start, self.version, self.steps = start, version, steps

    def __len__(self) -> int:
        return len(self.steps)

    def __repr__(self) -> str:
        return f"ExecutionPlan({len(self.steps)} steps from {self.start!r})"


class InspectRow(NamedTuple):
    """One step of a plan, for display."""

    step: int
    node: str
    reads: tuple[str, ...]
    writes: tuple[str, ...]


def reachable(starts: Iterable[object], following: Callable[[Any], Iterable[Any]]) -> set[Hashable]:
    """Return every node that `following` leads to, including the starts; uses an explicit stack."""
    stack = list(starts)
    seen = set(stack)
    while stack:
        for node in following(stack.pop()):
            if node not in seen:
                seen.add(node)
                stack.append(node)
    return seen


def ordered(
    nodes: dict[Hashable, int],
    incoming: Mapping[Hashable, Iterable[Edge]],
    outgoing: Mapping[Hashable, Iterable[Edge]],
    names: Any,
) -> list[Any]:
    """Return the nodes in topological order, ties in the order in which they were added.

    Raises    GraphError naming a whole cycle if there is one
    """
    waiting = {node: sum(edge.source in nodes for edge in incoming[node]) for node in nodes}
    ready = [(nodes[node], node) for node, count in waiting.items() if not count]
    heapify(ready)
    order = []
    while ready:
        node = heappop(ready)[1]
        order.append(node)
        for edge in outgoing[node]:
            if edge.target in nodes:
                waiting[edge.target] -= 1
                if not waiting[edge.target]:
                    heappush(ready, (nodes[edge.target], edge.target))
    if len(order) < len(nodes):
        loop = cycle({node for node, count in waiting.items() if count}, incoming)
        raise GraphError(
            "Cycle detected: "
            + " -> ".join(f"'{names(node)}'" for node in loop)
            + "; a node runs once: to run a module again, add an Occurrence of it"
        )
    return order


def cycle(stuck: set[Hashable], incoming: Mapping[Hashable, Iterable[Edge]]) -> list[Any]:
    """Return a cycle among nodes that each wait for another of them."""
    path: dict[Hashable, None] = {}
    node = next(iter(stuck))
    while node not in path:
        path[node] = None
        node = next(edge.source for edge in incoming[node] if edge.source in stuck)
    loop = list(path)
    loop = loop[loop.index(node) :]
    return [node, *reversed(loop)]


def steps_of(order: Sequence[object], incoming: Mapping[Hashable, Iterable[Edge]]) -> list[PlanStep]:
    """The plan's steps, each with the nodes that are read for the last time there."""
    known = set(order)
    reads = [tuple([e for e in incoming[node] if e.source in known]) for node in order]
    last: dict[Hashable, int] = {}
    for i, edges in enumerate(reads):
        for edge in edges:
            last[edge.source] = i
    finished: list[list[Any]] = [[] for _ in order]
    for node, i in last.items():
        finished[i].append(node)
    return [PlanStep(node, edges, tuple(done)) for node, edges, done in zip(order, reads, finished)]
