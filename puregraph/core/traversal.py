"""Traversal: the links between nodes, and an order in which each node comes after those that it depends on."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from puregraph.core.errors import GraphError

Vertex = TypeVar("Vertex")


class Link:
    """One end of the edges between two nodes; unpacks as `(node, slots)`.

    `slots` are the parent's outputs that the edges carry, in order; `None` carries all. `argument` is the name of the
    child's argument that receives them, or `None` for the next free ones.
    """

    __slots__ = ("argument", "node", "slots")

    def __init__(self, node: Any, slots: tuple[int, ...] | None = None, argument: str | None = None):
        self.node, self.slots, self.argument = node, slots, argument

    def __iter__(self) -> Iterator[Any]:
        return iter((self.node, self.slots))

    def __repr__(self) -> str:
        argument = f", argument={self.argument!r}" if self.argument else ""
        return f"Link({self.node}, {list(self.slots) if self.slots else None}{argument})"


class WeakLink(Link):
    """A link that does not keep its node alive: it removes itself from `links` when the node is freed."""

    __slots__ = ("reference",)

    def __init__(self, link: Link, links: list[Link]):
        self.reference = weakref.ref(link.node, lambda _: self.leave(links))
        self.slots, self.argument = link.slots, link.argument

    @property
    def node(self) -> Any:
        return self.reference()

    def leave(self, links: list[Link]) -> None:
        if self in links:
            links.remove(self)


def weakenReader(node: Any) -> None:
    """Replace the parents' links to a new node by weak ones, so that it is freed without the garbage collector."""
    for parent in set(parents(node)):
        links = parent.fwds
        for i in range(max(len(links) - len(node.bwds), 0), len(links)):
            if links[i].node is node:
                links[i] = WeakLink(links[i], links)


def children(node: Any) -> list[Any]:
    """The nodes that read this one, one for each link."""
    return [link.node for link in node.fwds]


def parents(node: Any) -> list[Any]:
    """The nodes that this one reads, one for each link."""
    return [link.node for link in node.bwds]


def postorder(starts: list[Vertex], nexts: Callable[[Vertex], list[Vertex]]) -> list[Vertex]:
    """Every node reachable from `starts`, each after all of its `nexts`: an explicit stack, no marks on nodes."""
    order: list[Vertex] = []
    done: set[Vertex] = set()
    opened: dict[Vertex, None] = {}
    stack = [(node, False) for node in reversed(starts)]
    while stack:
        node, finished = stack.pop()
        if finished:
            del opened[node]
            done.add(node)
            order.append(node)
        elif node in opened:
            path = list(opened)
            loop = path[path.index(node) :]
            raise GraphError("these nodes form a cycle: " + " -> ".join(f"'{n}'" for n in [*loop, node]))
        elif node not in done:
            opened[node] = None
            stack.append((node, True))
            stack.extend((following, False) for following in reversed(nexts(node)))
    return order
