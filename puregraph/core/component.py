"""Component: all connected nodes as flat tables."""

from __future__ import annotations

import weakref
from typing import Any

from puregraph.core.traversal import Link


class Component:
    """A connected component of nodes as flat tables, to copy and pickle nodes at any depth."""

    def __init__(self, nodes: list[Any]):
        self.nodes = nodes
        self.indices = {node: i for i, node in enumerate(nodes)}

    @classmethod
    def of(cls, node: Any) -> Component:
        """The component of a node; the same object as long as somebody (a pickler's memo) holds it."""
        known = node.component and node.component()
        if known is not None:
            return known
        nodes, seen, stack = [], {node}, [node]
        while stack:
            nodes.append(stack.pop())
            for link in (*nodes[-1].bwds, *nodes[-1].fwds):
                if link.node not in seen:
                    seen.add(link.node)
                    stack.append(link.node)
        component = cls(nodes)
        for member in nodes:
            member.component = weakref.ref(component)
        return component

    def pick(self, index: int) -> Any:
        return self.nodes[index]

    def __reduce__(self) -> Any:
        index = self.indices
        rows = [
            (
                node.module,
                node.rename,
                node.rule,
                [(index[link.node], link.slots, link.argument) for link in node.bwds],
                [(index[link.node], link.slots, link.argument) for link in node.fwds],
            )
            for node in self.nodes
        ]
        return Component.restore, (type(self.nodes[0]), rows)

    @staticmethod
    def restore(kind: type, rows: list[tuple]) -> Component:
        component = Component([kind(module, None, name, rule) for module, name, rule, _, _ in rows])
        for node, (_, _, _, bwds, fwds) in zip(component.nodes, rows, strict=True):
            node.bwds = [Link(component.nodes[i], slots, argument) for i, slots, argument in bwds]
            node.fwds = [Link(component.nodes[i], slots, argument) for i, slots, argument in fwds]
        return component
