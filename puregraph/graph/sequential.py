"""Sequential: modules one after another, with the habits of a list."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from numbers import Integral
from typing import TYPE_CHECKING, Any

from puregraph.core.arguments import Whole, takes
from puregraph.core.errors import GraphError, GraphWarning
from puregraph.core.errors.userwarning import warnUser
from puregraph.core.foreign import hintFor
from puregraph.graph.graph import Graph
from puregraph.graph.input import Input
from puregraph.graph.module import Module
from puregraph.graph.node import Node

if TYPE_CHECKING:
    from collections.abc import Iterator


class ModuleList(Graph):
    """A Graph that is built from a list of modules, and rebuilt when the list is edited."""

    itemNodes: list[Node] = []  # the node of each module; on the class, as blueprints bypass the constructor

    def __init__(self, *modules: Module, name: str | None = None):
        Module.__init__(self, name)
        items = modules[0] if len(modules) == 1 and isinstance(modules[0], (list, tuple)) else modules
        self.version = 0
        self.items: list[Module] = []
        self.edit(list(items))
        warnOfRepeats(self)

    def edit(self, items: list[Module]) -> None:
        """Rebuild the graph from these modules; if they do not fit together, change nothing."""
        for module in items:
            if not isinstance(module, Module):
                got = f"{type(module).__name__}: {module!r:.60}{moduleInstead(module)}"
                raise GraphError(f"{self.title()}: wanted Modules, got {got}")
        if holds(items, self):
            raise GraphError(f"{self.title()} cannot hold itself")
        before, rules = self.items, self.rulesAsked()
        self.items = items
        try:
            self.chain()
        except Exception:
            self.items = before
            self.chain()
            raise
        finally:
            self.ask(rules)

    def rulesAsked(self) -> list[tuple[Module, str]]:
        """Return (module, rule name) of each node that asks for a gradient rule by name, in order."""
        return [(node.module, node.rule) for node in self.itemNodes if node.rule is not None]

    def ask(self, rules: list[tuple[Module, str]]) -> None:
        """Copy to new nodes the rule names that their modules' previous nodes had."""
        left = list(rules)
        for node in self.itemNodes:
            previous = next((row for row in left if row[0] is node.module), None)
            if previous is not None:
                node.rule = previous[1]
                left.remove(previous)

    def chain(self) -> None:
        """Make the nodes of the list."""
        raise NotImplementedError(
            f"{type(self).__name__} does not say how its modules hang together: write chain(self)"
        )

    def append(self, module: Module) -> Any:
        self.edit([*self.items, module])
        return self

    def extend(self, modules: Iterable[Module]) -> Graph:
        self.edit([*self.items, *modules])
        return self

    @takes(index=Whole)
    def insert(self, index: int, module: Module) -> Graph:
        items = list(self.items)
        items.insert(index, module)
        self.edit(items)
        return self

    @takes(index=Whole)
    def pop(self, index: int = -1) -> Module:
        items = list(self.items)
        gone = items.pop(self.indexOf(index))
        self.edit(items)
        return gone

    def indexOf(self, key: object) -> int:
        if isinstance(key, str):
            for index, node in enumerate(self.itemNodes):
                if self.paths[node] == key:
                    return index
            names = ", ".join(self.paths[n] for n in self.itemNodes)
            raise GraphError(f"{self.title()} has no module {key!r}; it has {names or 'none'}")
        if not isinstance(key, Integral) or not -len(self.items) <= int(key) < len(self.items):
            names = f"from {-len(self.items)} to {len(self.items) - 1}" if self.items else "none, as it is empty"
            raise IndexError(f"{self.title()}: wanted the index of a module, {names}, or its name, got {key!r:.60}")
        return range(len(self.items))[key]

    def __getitem__(self, key: object) -> Any:
        """A module by index or name (`"block.conv"` looks inside); a slice shares its modules."""
        if isinstance(key, slice):
            return type(self)(*self.items[key])
        if isinstance(key, str) and "." in key:
            return self.getNodeByName(key).module
        return self.items[self.indexOf(key)]

    def __setitem__(self, key: object, module: Module) -> None:
        items = list(self.items)
        items[self.indexOf(key)] = module
        self.edit(items)

    def __delitem__(self, key: object) -> None:
        self.pop(self.indexOf(key))

    def __iter__(self) -> Iterator[Module]:
        return iter(self.items)

    def __len__(self) -> int:
        return len(self.items)

    def __getstate__(self) -> dict:
        kept = {k: v for k, v in super().__getstate__().items() if k not in ("inputs", "outputs", "itemNodes")}
        return {**kept, "rules": self.rulesAsked()}

    def __setstate__(self, state: dict) -> None:
        rules = state.pop("rules", [])
        vars(self).update(state)
        self.chain()
        self.ask(rules)


def moduleInstead(value: object) -> str:
    """A hint for a value that is not a module; empty if there is none."""
    if isinstance(value, type):
        return f"; make one: {value.__name__}(...)"
    if isinstance(value, Node):
        return f"; make the list, then call it: Sequential(...)({value})"
    here = hintFor(value) if isinstance(value, str) else ""
    if here:
        return f"; {here}"
    isFunction = callable(value)
    return "; a formula is Pointwise(formula='x * sigmoid(x)'), any other function a Module" if isFunction else ""


def warnOfRepeats(modules: ModuleList) -> None:
    """Warn of an unnamed module that is repeated, as in `[Linear(3, 3)] * 3`, which is one shared layer."""
    for one, other in pairwise(modules.items):
        if one is other and one.name is None and one.params:
            count = sum(module is one for module in modules.items)
            warnUser(
                f"{modules.title()} holds the same {type(one).__name__} {count} times, with one set of parameters: for "
                f"layers of their own write [{type(one).__name__}(...) for _ in range({count})]; to share it, name it",
                GraphWarning,
            )
            break


def holds(modules: list[Module], sought: Module) -> bool:
    """True if a module is in this list, or in a nested list."""
    waiting, seen = list(modules), set()
    while waiting:
        module = waiting.pop()
        if module is sought:
            return True
        if isinstance(module, ModuleList) and id(module) not in seen:
            seen.add(id(module))
            waiting += module.items
    return False


class Sequential(ModuleList):
    """y = m_k(... m_2(m_1(x))): modules one after another.

    `Sequential(Linear(3, 4), Relu())`, or one list of modules. `append extend insert pop del`, `[i]`, `["name"]` and
    slices edit and read it like a list.

    Shapes    as the first module's inputs -> as the last module's outputs
    Source    PuzzleLib's and torch's Sequential
    Raises    GraphError for an argument that is no Module, or two modules of the same name
    """

    def chain(self) -> None:
        self.itemNodes: list[Node] = []
        for module in self.items:
            self.itemNodes.append(Node(module, self.itemNodes[-1] if self.itemNodes else None))
        ends = self.itemNodes or [Input(name="input").node()]  # without modules, the output is the input
        self.link(ends[0], ends[-1])
