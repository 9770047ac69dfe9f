"""Names: resolve nodes and names to values of a graph, each to exactly one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from puregraph.core.errors import AutoDiffException, GraphError
from puregraph.graph import Graph
from puregraph.graph.lookup import few, nearest
from puregraph.graph.node import Node

if TYPE_CHECKING:
    from puregraph.core.linkednode import Parents


class _Target(NamedTuple):
    """A value selected by name, with its number; a parameter shared by several modules has several numbers."""

    name: str
    numbers: tuple[int, ...]


class _Names:
    """The inputs, the outputs of nodes, and the parameters of a graph, by name and by node."""

    def __init__(self, graph: Graph):
        self.graph, self.flat = graph, graph.steps()
        self.params = {number: getattr(module, name) for number, module, name in self.flat.params}
        self.shared: dict[int, list[int]] = {}
        for number, param in self.params.items():
            self.shared.setdefault(id(param), []).append(number)
        self.table: dict[str, dict[tuple[int, ...], None]] = {}
        self.nodes = {step.node: step.visible for step in self.flat.items} | dict(self.flat.shown)
        for number in self.flat.inputs:
            self.note(self.flat.names[number], number)
        for step in self.flat.items:
            for number in step.visible:
                self.note(self.flat.names[number], number)
            for name, number in zip(step.module.ruleNames, step.args[step.inputs :]):
                if self.params.get(number) is not None:
                    self.note(f"{step.path}.{name}", number)
        for node, path in graph.paths.items():
            if len(self.nodes.get(node, ())) == 1:
                self.note(path, self.nodes[node][0])
        for name, number in zip(graph.outputNames, self.flat.outputs):
            self.note(name, number)

    def note(self, name: str, number: int) -> None:
        self.table.setdefault(name, {})[self.numbers(number)] = None

    def numbers(self, number: int) -> tuple[int, ...]:
        """The value numbers of a value; a parameter shared by modules has several."""
        param = self.params.get(number)
        return (number,) if param is None else tuple(self.shared[id(param)])

    def all(self, items: Any, role: str) -> list[_Target]:
        """Resolve a node, `(node, slot)` or name, or a list of them.

        Raises    AutoDiffException for an item that is not exactly one value of the graph, or that is repeated
        """
        targets = [self.one(item, role) for item in (items if isMany(items) else [items])]
        if not targets:
            raise AutoDiffException(f"{self.graph.title()}: wanted at least one {role}, got none")
        twice = [t.name for i, t in enumerate(targets) if t.numbers in [other.numbers for other in targets[:i]]]
        if twice:
            raise AutoDiffException(f"{self.graph.title()}: {role} '{twice[0]}' is given twice")
        return targets

    def one(self, selector: Any, role: str) -> _Target:
        name, matches = self.byName(selector, role) if isinstance(selector, str) else self.byNode(selector, role)
        if len(matches) != 1:
            raise AutoDiffException(
                f"{self.graph.title()}: {role} {name!r} must name one value, but names {len(matches)}: "
                f"{few([self.flat.names[numbers[0]] for numbers in matches], 12)}; give the name of one"
            )
        return _Target(name, matches[0])

    def byName(self, name: str, role: str) -> tuple[str, list[tuple[int, ...]]]:
        """The values with this full name, or else with this last part of the name."""
        matches = dict(self.table.get(name, {}))
        if not matches:
            for known, numbers in self.table.items():
                if ":" not in known and known.rpartition(".")[2] == name:
                    matches |= numbers
        if not matches:
            raise AutoDiffException(
                f"{role}: {self.graph.title()} has no value named {name!r}; the nearest names are "
                + ", ".join(nearest(name, list(self.table)))
            )
        return name, list(matches)

    def byNode(self, selector: Parents, role: str) -> tuple[str, list[tuple[int, ...]]]:
        """The outputs of a node, or one of them."""
        node, slot = selector if isinstance(selector, tuple) and len(selector) == 2 else (selector, None)
        if not isinstance(node, Node):
            raise AutoDiffException(
                f"{self.graph.title()}: {role} must be a Node, (node, slot) or a name, got {selector!r}"
            )
        if node not in self.nodes:
            raise AutoDiffException(
                f"{self.graph.title()} does not hold {role} '{node}' ({node.label}) itself; it holds "
                f"{few(list(self.graph.paths.values()))}, and a value inside a nested graph is selected by its name"
            )
        try:
            slots = node.slotsFrom(slot, node)
        except GraphError as error:
            raise AutoDiffException(str(error)) from None
        values = self.nodes[node]
        if len(values) == 1 and node in self.graph.paths:
            return self.graph.paths[node], [values]
        chosen = values if slots is None else [values[i] for i in slots]
        return ", ".join(self.flat.names[n] for n in chosen), [(n,) for n in chosen]


def isMany(items: object) -> bool:
    """True for a list of values; `(node, slot)` is a single one."""
    slotted = isinstance(items, tuple) and len(items) == 2 and isinstance(items[0], Node)
    return isinstance(items, (list, tuple)) and not (slotted and not isinstance(items[1], (Node, tuple)))
