"""LinkedNode: a module in a graph, by its links: names, slots, sources, operators, copies."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np

from puregraph.core.arguments import ModuleLike
from puregraph.core.component import Component
from puregraph.core.errors import GraphError, plural
from puregraph.core.foreign import ForeignAttributes
from puregraph.core.late import Late
from puregraph.core.traversal import Link, children, parents, postorder
from puregraph.core.versioning import COUNTER

OPERATORS = "puregraph.modules.operators"
Edge = tuple[Any, int]  # a producer, and the index of its output
Slots: TypeAlias = "int | str | Sequence[int | str]"  # outputs by index or name
Parents: TypeAlias = (
    "LinkedNode | tuple[LinkedNode, Slots] | Sequence[LinkedNode | tuple[LinkedNode, Slots] | None] | None"
)


class LinkedNode(ForeignAttributes):
    """A node as its links see it: one use of a module, named, with parents and children.

    `parents`   None, a node, `(node, slots)`, or a list of those. Slots are an output's index or name, or a list; a
                hidden output, such as a mask, has a slot too, and no gradient.
    `keywords`  parents for arguments given by name.
    `rule`      the name of a registered gradient rule to use here in place of the module's own.
    """

    __slots__ = (
        *("__weakref__", "bwdVisited", "bwds", "component", "fwdVisited", "fwds", "module"),
        *("noticed", "original", "rename", "ruleName"),
    )

    def __init__(
        self,
        mod: Any,
        parents: Any | None = None,
        name: str | None = None,
        rule: str | None = None,
        keywords: dict[str, Any] | None = None,
    ):
        if name is not None:
            checkName(name)
        if not ModuleLike.holds(mod):
            ModuleLike.check("Node", "mod", mod)
        self.module = mod
        self.rename = name
        self.ruleName = rule
        self.original: LinkedNode | None = None  # the node of a nested graph that this one represents
        self.fwds: list[Link] = []
        self.bwds: list[Link] = []
        self.component: Any = None
        self.fwdVisited = self.bwdVisited = False
        self.noticed = False  # True if a graph uses this node, or has warned that it is left out
        if parents is not None:
            self.addBackwards(parents)
        for argument, parent in keywords.items() if keywords else ():
            if argument not in mod.arguments and argument not in mod.ruleNames:
                raise GraphError(
                    f"at '{self.name}' ({self.label}): no input is named {argument!r}; "
                    f"its inputs are {', '.join(mod.arguments)}"
                )
            self.addBackwards(parent, argument)

    @property
    def name(self) -> str:
        """The name given to this node, else to its module, else the module's type in lower case."""
        return self.rename or self.module.name or self.label.lower()

    @property
    def label(self) -> str:
        return self.module.label

    @property
    def rule(self) -> str | None:
        """The name of the gradient rule that was set for this node; a new one applies from the next backward pass."""
        node = self
        while node.original is not None:
            node = node.original
        return node.ruleName

    @rule.setter
    def rule(self, name: str | None) -> None:
        self.original, self.ruleName = None, name
        COUNTER.version = object()

    def addBackwards(self, nodes: Any, argument: str | None = None) -> None:
        """Link parents: each is noted in `bwds` here and in `fwds` there.

        Raises    GraphError for anything that is not a Node, `(node, slots)` or a list of those, and for a slot that
                  the parent does not have
        """
        if nodes is None:
            return
        if isinstance(nodes, list):
            for node in nodes:
                self.addBackwards(node, argument)
            return
        node, slots = nodes if isinstance(nodes, tuple) and len(nodes) == 2 else (nodes, None)
        if not isinstance(node, LinkedNode):
            raise GraphError(
                f"at '{self.name}' ({self.label}): a parent must be a Node, (node, slots) or a list of those, "
                f"got {kindOf(nodes)}{nodeInstead(node)}"
            )
        slots = node.slotsFrom(slots, self)
        self.bwds.append(Link(node, slots, argument))
        node.fwds.append(Link(self, slots, argument))

    def addForward(self, nodes: Any) -> None:
        """Link children: the same edges as `child.addBackwards((self, slots))`."""
        for child in nodes if isinstance(nodes, list) else [] if nodes is None else [nodes]:
            node, slots = child if isinstance(child, tuple) and len(child) == 2 else (child, None)
            if not isinstance(node, LinkedNode):
                raise GraphError(
                    f"at '{self.name}' ({self.label}): a child must be a Node, (node, slots) or a list of those, "
                    f"got {kindOf(child)}{nodeInstead(node)}"
                )
            node.addBackwards(self if slots is None else (self, slots))

    def slotsFrom(self, slots: Any, reader: LinkedNode) -> tuple[int, ...] | None:
        """Convert slots, by index or name, to checked indices; hidden outputs come after the visible ones."""
        if slots is None:
            return self.module.edgeSlots
        if type(slots) is int and 0 <= slots < len(self.module.outputNames):
            return (slots,)
        names = (*self.module.outputNames, *(() if self.module.isGraph else self.module.hidden))
        indices = []
        for slot in slots if isinstance(slots, (list, tuple)) else [slots]:
            index = names.index(slot) if isinstance(slot, str) and slot in names else slot
            if isinstance(index, (int, np.integer)) and not isinstance(index, bool) and 0 <= index < len(names):
                indices.append(int(index))
            else:
                hint = "; to give several parents, pass a list of them" if isinstance(slot, LinkedNode) else ""
                raise GraphError(
                    f"at '{reader.name}' ({reader.label}): '{self.name}' ({self.label}) has no output {slot!r}; "
                    f"it has {len(names)}: {', '.join(f'{i} {n!r}' for i, n in enumerate(names))}{hint}"
                )
        return tuple(indices)

    @property
    def handed(self) -> dict[str, Edge]:
        """The edges into parameters that other nodes compute, by name."""
        names = {link.argument for link in self.bwds if link.argument is not None}
        if not names or self.module.isGraph:
            return {}
        names -= set(self.module.arguments)
        links = [link for link in self.bwds if link.argument in names]
        return {str(link.argument): (link.node, link.slots[0] if link.slots else 0) for link in links}

    @property
    def sources(self) -> list[Edge | None]:
        """The edge into each argument, in the order of the module's inputs; None for an optional one left out.

        Raises    GraphError if an argument is given twice, or a required one not at all
        """
        inputs = self.module.inputSpec
        positional: list[Edge | None] = []
        named: dict[str, Edge] = {}
        for link in self.bwds:
            slots = range(len(link.node.module.outputNames)) if link.slots is None else link.slots
            edges = [(link.node, slot) for slot in slots]
            if link.argument is None:
                positional += edges
            elif link.argument in named or len(edges) != 1:
                what = f"{len(edges)} values" if len(edges) != 1 else "two values"
                raise GraphError(
                    f"at '{self.name}' ({self.label}): input {link.argument!r} takes one value, got {what}"
                )
            else:
                named[link.argument] = edges[0]
        if inputs.variadic or not named and len(positional) == len(inputs.names):
            return positional
        twice = [name for name in inputs.names[: len(positional)] if name in named]
        rest = inputs.names[len(positional) :]
        named = {name: edge for name, edge in named.items() if name in inputs.names}
        missing = [name for name in rest if name not in named and name not in inputs.optional]
        if twice or missing or len(positional) > len(inputs.names):
            wanted = f"{plural(len(inputs.names), 'input')} ({', '.join(inputs.names)})"
            got = f"got {len(positional)}" + (f" and {', '.join(named)} by name" if named else "")
            raise GraphError(
                f"at '{self.name}' ({self.label}): wanted {wanted}, {got}"
                + (f"; {', '.join(twice)} is given twice" if twice else "")
                + (f"; {', '.join(missing)} is missing" if missing else "")
            )
        return positional + [named.get(name) for name in rest]

    def clearTraverse(self) -> None:
        """Unset `fwdVisited` and `bwdVisited`, which say that a walk visited this node; no walk reads them."""
        self.fwdVisited = self.bwdVisited = False

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, {self.label})"

    def __str__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple:
        component = Component.of(self)
        return Component.pick, (component, component.indices[self])

    @staticmethod
    def traverseForward(node: LinkedNode, func: Callable, *args: object) -> None:
        """Call `func(node, *args)` on every node reachable along `fwds`, each once, after its parents among them.

        Each is then marked `fwdVisited`, and none if `func` raises. Marks do not stop a later walk.

        Raises    GraphError naming the cycle, before any call, if there is one
        """
        walk(reversed(postorder([node], children)), "fwdVisited", func, args)

    @staticmethod
    def traverseBackward(node: LinkedNode, func: Callable, *args: object) -> None:
        """Call `func(node, *args)` on every node reachable along `bwds`, each once, after its children among them.

        `Node.traverseBackward(last, Node.updateGrad, grad)` back-propagates. Each node is then marked `bwdVisited`, and
        none if `func` raises. Marks do not stop a later walk.

        Raises    GraphError naming the cycle, before any call, if there is one
        """
        walk(reversed(postorder([node], parents)), "bwdVisited", func, args)

    _repr_html_ = Late("puregraph.draw.notebook", "nodeHtml")
    __add__ = Late(OPERATORS, "add")
    __radd__ = Late(OPERATORS, "radd")
    __sub__ = Late(OPERATORS, "sub")
    __rsub__ = Late(OPERATORS, "rsub")
    __mul__ = Late(OPERATORS, "mul")
    __rmul__ = Late(OPERATORS, "rmul")
    __truediv__ = Late(OPERATORS, "truediv")
    __rtruediv__ = Late(OPERATORS, "rtruediv")
    __matmul__ = Late(OPERATORS, "matmul")
    __rmatmul__ = Late(OPERATORS, "rmatmul")
    __pow__ = Late(OPERATORS, "power")
    __rpow__ = Late(OPERATORS, "rpower")
    __neg__ = Late(OPERATORS, "negative")
    __floordiv__ = Late(OPERATORS, "floordiv")
    __rfloordiv__ = Late(OPERATORS, "rfloordiv")
    __mod__ = Late(OPERATORS, "mod")
    __rmod__ = Late(OPERATORS, "rmod")
    __lt__ = Late(OPERATORS, "less")
    __le__ = Late(OPERATORS, "lessEqual")
    __gt__ = Late(OPERATORS, "greater")
    __ge__ = Late(OPERATORS, "greaterEqual")
    __and__ = Late(OPERATORS, "both")
    __or__ = Late(OPERATORS, "either")
    __xor__ = Late(OPERATORS, "oneOf")
    __invert__ = Late(OPERATORS, "inverse")
    __getitem__ = Late(OPERATORS, "getitem")
    __iter__ = Late(OPERATORS, "unpack")
    __bool__ = Late(OPERATORS, "truth")
    __abs__ = Late(OPERATORS, "absolute")
    __array_ufunc__ = Late(OPERATORS, "ufuncOfNumpy")
    __array_function__ = Late(OPERATORS, "functionOfNumpy")


def walk(nodes: Iterable[LinkedNode], mark: str, func: Callable, args: tuple) -> None:
    """Call a function on nodes in order, and mark those that it was called on; if it raises, unmark them."""
    visited = []
    try:
        for node in nodes:
            func(node, *args)
            setattr(node, mark, True)
            visited.append(node)
    except BaseException:
        for node in visited:
            setattr(node, mark, False)
        raise


def kindOf(value: object) -> str:
    """A value as an error message names it."""
    if isinstance(value, tuple):
        return "(" + ", ".join(map(kindOf, value)) + ")"
    return f"{type(value).__name__} {value!r}" if isinstance(value, (str, int, float)) else type(value).__name__


def nodeInstead(value: Any) -> str:
    """A hint for a module passed in place of a node; empty for any other value."""
    if isinstance(value, LinkedNode) or not ModuleLike.holds(value):
        return ""
    if value.label == "Input":
        return f"; write {value!r:.60}.node()"
    return f"; call it on a node: {value.label}(...)(x), where x may be Input(name='x').node()"


def checkName(name: str | None) -> None:
    """Refuse a name that would break paths."""
    if name is not None and not (isinstance(name, str) and name and name.isprintable() and not set(name) & {".", "/"}):
        raise GraphError(
            f"a name must be a printable text without '.' and '/', got {name!r}: dots join the names of nested graphs"
        )
