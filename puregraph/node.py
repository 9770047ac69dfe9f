"""Node: one use of a Module in a graph. A link is an edge from an output of one node to an argument of another."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from itertools import repeat
from typing import Any, NamedTuple, TypeVar

import numpy as np

from puregraph.arguments import ModuleLike
from puregraph.base.align import readOnly
from puregraph.base.fingerprint import fingerprint
from puregraph.core.accumulate import accumulate, isValue, shapeOf
from puregraph.core.hooks import HOOKS
from puregraph.core.late import Late
from puregraph.core.param import Param
from puregraph.core.rules import RuleContext, gradientRule, readBy
from puregraph.core.versioning import COUNTER
from puregraph.errors import DataError, DtypeError, GraphError, PuregraphError, ShapeError, addPlace, plural, show

OPERATORS = "puregraph.modules.operators"
NUMERIC = ("puregraph.modules.", "puregraph.costs.", "puregraph.pointwise")  # what computes with numbers alone


class Link:
    """One end of the edges between two nodes: unpacks as `(node, slots)`.

    `slots` are the outputs of the parent that are carried, in order; `None` carries all of them. `argument` is the
    name of the argument of the child that they go to, or `None` for the next free ones.
    """

    __slots__ = ("argument", "node", "slots")

    def __init__(self, node: Node, slots: tuple[int, ...] | None = None, argument: str | None = None):
        self.node, self.slots, self.argument = node, slots, argument

    def __iter__(self) -> Iterator[Any]:
        return iter((self.node, self.slots))

    def __repr__(self) -> str:
        argument = f", argument={self.argument!r}" if self.argument else ""
        return f"Link({self.node}, {list(self.slots) if self.slots else None}{argument})"


Edge = tuple["Node", int]  # a producer and one of its outputs


class Applied(NamedTuple):
    """One call of a module's rule: what it was given, what it gave, and the mode that the module was in.

    `saved` tells whether what the gradient rule reads was modified since: parameters with their marks, other arguments
    and visible outputs with their fingerprints, each by its name.
    """

    arguments: list[Any]
    outputs: tuple
    train: bool
    saved: list[tuple[str, Any, Any]]

    def check(self, module: Any, name: str) -> None:
        """Raise    PuregraphError if the mode, or anything that the gradient rule reads, has changed since."""
        checkMode(module, self.train, name)
        checkSaved(module, self.saved, name)


class Node:
    """One use of a Module in a graph, and the values of its last pass.

    `bwds` are the links to its parents, `fwds` those to its children. `data` is the output of the last forward pass (a
    list where there are several), `grad` the gradient with respect to its inputs (likewise).

    `parents`   None, a Node, `(node, slots)`, or a list of those. Slots are an output's index or name, or a list.
    `keywords`  parents for arguments given by name.
    `rule`      the name of a registered gradient rule to use here in place of the module's own.
    """

    __slots__ = (
        "__weakref__",
        "bwds",
        "component",
        "fwds",
        "grad",
        "inshapes",
        "made",
        "module",
        "noticed",
        "original",
        "rename",
        "ruleName",
        "shape",
        "values",
    )

    def __init__(
        self,
        mod: Any,
        parents: Any = None,
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
        self.original: Node | None = None  # the node of a nested graph that this one stands for
        self.fwds: list[Link] = []
        self.bwds: list[Link] = []
        self.component: Any = None
        self.noticed = False  # whether a graph uses this node, or has said that it leaves it out
        self.made: Any = None  # what `data` gives, as others may not have it: gradient rules read it later
        self.grad: Any = None
        self.values: Applied | None = None
        self.inshapes: list[Any] = []
        self.shape: Any = None
        if parents is not None:
            self.addBackwards(parents)
        for argument, parent in keywords.items() if keywords else ():
            if argument not in mod.arguments:
                raise GraphError(
                    f"at '{self.name}' ({self.label}): no input is named {argument!r}; "
                    f"its inputs are {', '.join(mod.arguments)}"
                )
            self.addBackwards(parent, argument)

    # Links ------------------------------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """The name given to this node, else to its module, else the module's type in lower case."""
        return self.rename or self.module.name or self.label.lower()

    @property
    def label(self) -> str:
        return self.module.label

    @property
    def rule(self) -> str | None:
        """The name of the gradient rule that was asked for here; setting it holds from the next pass backward on."""
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
        if not isinstance(node, Node):
            raise GraphError(
                f"at '{self.name}' ({self.label}): a parent must be a Node, (node, slots) or a list of those, "
                f"got {kindOf(nodes)}"
            )
        slots = node.slotsFrom(slots, self)
        self.bwds.append(Link(node, slots, argument))
        node.fwds.append(Link(self, slots, argument))

    def addForward(self, nodes: Any) -> None:
        """Link children: the same edges as `child.addBackwards((self, slots))`."""
        for child in nodes if isinstance(nodes, list) else [] if nodes is None else [nodes]:
            node, slots = child if isinstance(child, tuple) and len(child) == 2 else (child, None)
            if not isinstance(node, Node):
                raise GraphError(
                    f"at '{self.name}' ({self.label}): a child must be a Node, (node, slots) or a list of those, "
                    f"got {kindOf(child)}"
                )
            node.addBackwards(self if slots is None else (self, slots))

    def slotsFrom(self, slots: Any, reader: Node) -> tuple[int, ...] | None:
        """Slots by index or name, checked, as indices."""
        if slots is None:
            return None
        names = self.module.outputNames
        found = []
        for slot in slots if isinstance(slots, (list, tuple)) else [slots]:
            index = names.index(slot) if isinstance(slot, str) and slot in names else slot
            if isinstance(index, (int, np.integer)) and not isinstance(index, bool) and 0 <= index < len(names):
                found.append(int(index))
            else:
                hint = "; to give several parents, pass a list of them" if isinstance(slot, Node) else ""
                raise GraphError(
                    f"at '{reader.name}' ({reader.label}): '{self.name}' ({self.label}) has no output {slot!r}; "
                    f"it has {len(names)}: {', '.join(f'{i} {n!r}' for i, n in enumerate(names))}{hint}"
                )
        return tuple(found)

    @property
    def sources(self) -> list[Edge | None]:
        """The edge into each argument, in the order of the module's inputs; None for an optional one left out.

        Raises    GraphError if an argument is given twice, or a required one not at all
        """
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
        inputs = self.module.inputSpec
        if inputs.variadic:
            return positional
        twice = [name for name in inputs.names[: len(positional)] if name in named]
        rest = inputs.names[len(positional) :]
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

    # Forward ----------------------------------------------------------------------------------------------------------

    def forward(self, data: Any = None) -> None:
        """Run this node on `data` and every later node whose parents all have data."""

        def visit(node: Node) -> None:
            if node is self:
                node.updateData(data)
            elif all(link.node.made is not None for link in node.bwds):
                node.updateData(None)

        Node.traverseForward(self, visit)

    def updateData(self, data: Any) -> None:
        """Apply the module to `data` (a node with parents takes theirs) and keep the outputs in `data`.

        Raises    ShapeError, with the place, if the shapes do not fit
        """
        spec = self.module.inputSpec
        if self.bwds:
            given = [None if edge is None else edge[0].output(edge[1]) for edge in self.sources]
        else:
            given = spec.fill(data, self)
        self.checkGiven(given, spec)
        shapes = [None if x is None else shapeOf(x) for x in given]
        try:
            self.module.dataShapeFrom(*shapes)
            stored = dict(zip(self.module.ruleNames, self.module.ruleParams()))
            arguments = given + [None if p is None else p.materialize() for p in stored.values()]
            result = self.module.updateData(*arguments)
            outputs = result if type(result) is tuple else (result,)
            if HOOKS.look is not None:
                HOOKS.look(self.name, self.module, arguments, outputs)
        except ShapeError as error:
            raise located(error, self.name, self.label) from None
        except Exception as error:
            addPlace(error, f"at '{self.name}' ({self.label}): given {show(shapes)}")
            raise
        visible = outputs[: len(self.module.outputNames)]
        ends = [*zip(spec.names, given), *zip(repeat(spec.names[-1]), given[len(spec.names) :])] if given else []
        saved = self.saved([*ends, *zip(self.module.outputNames, visible)], stored)
        self.values = Applied(arguments, outputs, self.module.train, saved)
        self.made = visible[0] if len(visible) == 1 else list(visible)

    def checkGiven(self, given: list[Any], spec: Any) -> None:
        """Refuse inputs that are missing or no values; of what computes with numbers alone, arrays of anything else."""
        names, optional, _ = spec
        isNumeric = type(self.module).__module__.startswith(NUMERIC)
        for i, x in enumerate(given):
            name = names[min(i, len(names) - 1)]
            if x is None:
                if not self.bwds and name not in optional:
                    raise DataError(f"at '{self.name}' ({self.label}): wanted an array for {name}, got None")
            elif not isValue(x):
                place = f"at '{self.name}' ({self.label})"
                if isinstance(x, (list, tuple)) and all(map(isValue, x)):
                    raise DataError(f"{place}: wanted {plural(len(names), 'input')} ({', '.join(names)}), got {len(x)}")
                raise DataError(f"{place}: wanted arrays, got {kindOf(x)} for {name}; use np.array")
            elif isNumeric and (isinstance(x, str) or type(x) is np.ndarray and x.dtype.kind not in "fiubV"):
                kind = kindOf(x) if isinstance(x, str) else f"dtype {x.dtype}; convert with .astype"
                place = f"at '{self.name}' ({self.label})"
                raise DtypeError(f"{place}: wanted an array of real numbers for {name}, got {kind}")

    def saved(self, arrays: list[tuple[str, Any]], stored: dict[str, Any]) -> list[tuple[str, Any, Any]]:
        """What the gradient rule reads of these by name, each with what tells whether it is modified later."""
        reads = readBy(self.module, self.rule)
        found = [(name, x, fingerprint(x)) for name, x in arrays if reads is None or name in reads]
        return found + [(n, p, p.mark()) for n, p in stored.items() if isMarked(p) and (reads is None or n in reads)]

    def output(self, slot: int) -> Any:
        """One output of the last forward pass."""
        return self.made[slot] if isinstance(self.made, list) else self.made

    @property
    def data(self) -> Any:
        """What the last forward pass made of the inputs: an array, or a list of them.

        It can be read, but not written to: gradient rules read it too, and would see another value without a word.
        """
        return list(map(readOnly, self.made)) if isinstance(self.made, list) else readOnly(self.made)

    def dataShapeFrom(self, inshapes: dict, shapes: dict, onmodule: Callable | None = None) -> None:
        """Infer this node's output shape from `shapes` (of nodes so far) or `inshapes` (of input nodes); needs no data.

        Both map a node, or its name, to a shape (a list of shapes where there are several); the answer is put into
        `shapes[self]`. `onmodule(module, inshape)` is called after the module's own rule.
        """
        if self.bwds:
            given = [None if edge is None else slotOf(lookup(shapes, edge[0]), edge[1]) for edge in self.sources]
        else:
            inshape = lookup(inshapes, self)
            given = list(inshape) if isinstance(inshape, list) else [inshape]
        try:
            shapes[self] = self.module.dataShapeFrom(*given)
        except ShapeError as error:
            raise located(error, self.name, self.label) from None
        self.inshapes, self.shape = given, shapes[self]
        if onmodule is not None:
            onmodule(self.module, given[0] if len(given) == 1 else given)

    # Backward ---------------------------------------------------------------------------------------------------------

    def backward(
        self,
        grad: Any = None,
        updParamGrads: bool = True,
        updGrad: bool = True,
        scale: float = 1.0,
        momentum: float = 0.0,
    ) -> None:
        """Back-propagate from this node, the last of its branch, to its first nodes.

        `scale`, `momentum`: each parameter's gradient becomes scale * new + momentum * old; a parameter that several
        nodes use gets the sum of theirs.
        """
        branch: list[Node] = []
        Node.traverseBackward(self, branch.append)
        inside = set(branch)
        if updParamGrads:
            wanting = [p for node in branch for p in node.module.params.values() if node.module.wants(p)]
            for param in {id(p): p for p in wanting}.values():
                param.store(None, momentum=momentum)
        for node in branch:
            out = grad if node is self and grad is not None else node.buildOutGrad(grad, inside)
            node.updateGrad(out, updParamGrads, updGrad or bool(node.bwds), scale, 1.0)

    def updateGrad(
        self, grad: Any, updParamGrads: bool = True, updGrad: bool = True, scale: float = 1.0, momentum: float = 0.0
    ) -> None:
        """Compute the gradients of the module's parameters and inputs from that of its output.

        Raises    PuregraphError if there was no forward pass, or the module's mode has changed since
        """
        if self.values is None:
            raise PuregraphError(f"at '{self.name}' ({self.label}): backward needs a forward pass first")
        self.values.check(self.module, self.name)
        arguments, outputs = self.values[:2]
        params = self.module.ruleParams()
        count = len(arguments) - len(params)
        self.grad = None
        needs = self.module.needs(arguments[:count], updGrad, updParamGrads)
        grads: tuple = (None,) * len(arguments)
        if any(needs) and not isNothing(grad):
            try:
                rule = gradientRule(self.module, needs, self.rule, RuleContext(self))
                grads = asGrads(rule(grad, *arguments, *outputs), len(arguments), self.label)
                if HOOKS.look is not None:
                    HOOKS.look(self.name, self.module, [grad, *arguments, *outputs], grads, True)
            except Exception as error:
                addPlace(error, f"at '{self.name}' ({self.label}), backward")
                raise
            if updGrad:
                self.grad = grads[0] if count == 1 else list(grads[:count])
        for param, new, needed in zip(params, grads[count:], needs[count:], strict=True):
            if needed:
                param.store(new, scale, momentum, alias=new is grad)

    def buildOutGrad(self, grad: Any = None, inside: set[Node] | None = None) -> Any:
        """The gradient of the output (a list where there are several): the sum over its readers, or `grad` if none.

        `inside` limits the readers to those nodes.
        """
        readers = list(dict.fromkeys(link.node for link in self.fwds if inside is None or link.node in inside))
        if not readers:
            return grad
        totals: list[Any] = [None] * len(self.module.outputNames)
        for reader in readers:
            for (node, slot), new in reader.routeInGrad(reader.grad):
                if node is self and new is not None:
                    totals[slot] = new if totals[slot] is None else accumulate(totals[slot], new)
        return totals[0] if len(totals) == 1 else totals

    def routeInGrad(self, grad: Any) -> Any:
        """Pairs of edge and gradient (or its shape), one per argument; `grad` itself for a node without parents."""
        if not self.bwds:
            return grad
        sources = self.sources
        several = isinstance(grad, list)
        return [(e, grad[i] if several else grad) for i, e in enumerate(sources) if e is not None]

    def gradShapeFrom(self, outshapes: Any, shapes: dict) -> None:
        """Infer the shape of this node's `grad`, after `dataShapeFrom`, into `shapes[self]`; no data needed.

        `outshapes` is the shape of the gradient that comes from outside, for a node without readers.

        Raises    ShapeError if `outshapes` is not the shape of the output
        """
        if self.shape is None:
            raise GraphError(f"at '{self.name}' ({self.label}): gradShapeFrom needs dataShapeFrom first")
        try:
            shapes[self] = self.module.gradShapeFrom(self.buildOutGradShape(outshapes, shapes), *self.inshapes)
        except ShapeError as error:
            raise located(error, self.name, self.label) from None

    def buildOutGradShape(self, outshapes: Any, shapes: dict) -> Any:
        """The shape of the output's gradient: that of the output, or `outshapes` for a node without readers."""
        return self.shape if self.fwds or outshapes is None else outshapes

    # State ------------------------------------------------------------------------------------------------------------

    def reset(self) -> None:
        """Forget the values of the last pass."""
        self.made = self.grad = self.values = None

    def clearTraverse(self) -> None:
        """Nothing to do: a traversal keeps its state to itself, so none is ever left on a node."""

    __add__: Any = Late(OPERATORS, "add")
    __radd__: Any = Late(OPERATORS, "radd")
    __sub__: Any = Late(OPERATORS, "sub")
    __rsub__: Any = Late(OPERATORS, "rsub")
    __mul__: Any = Late(OPERATORS, "mul")
    __rmul__: Any = Late(OPERATORS, "rmul")
    __truediv__: Any = Late(OPERATORS, "truediv")
    __rtruediv__: Any = Late(OPERATORS, "rtruediv")
    __matmul__: Any = Late(OPERATORS, "matmul")
    __rmatmul__: Any = Late(OPERATORS, "rmatmul")
    __pow__: Any = Late(OPERATORS, "power")
    __rpow__: Any = Late(OPERATORS, "rpower")
    __neg__: Any = Late(OPERATORS, "negative")
    __getitem__: Any = Late(OPERATORS, "getitem")
    __iter__: Any = None  # a node that can be sliced would otherwise seem to have endlessly many elements
    __array_ufunc__ = None  # numpy leaves `np.float32(2) * node` to the node

    def __repr__(self) -> str:
        return f"Node({self.name!r}, {self.label})"

    def __str__(self) -> str:
        return self.name

    def __reduce__(self) -> Any:
        component = Component.of(self)
        return Component.pick, (component, component.indices[self])

    # Traversal --------------------------------------------------------------------------------------------------------

    @staticmethod
    def traverseForward(node: Node, func: Callable, *args: Any) -> None:
        """Call `func(node, *args)` on every node reachable along `fwds`, each once, after its parents among them.

        Raises    GraphError naming the cycle, before any call, if there is one
        """
        for visited in reversed(postorder([node], children)):
            func(visited, *args)

    @staticmethod
    def traverseBackward(node: Node, func: Callable, *args: Any) -> None:
        """Call `func(node, *args)` on every node reachable along `bwds`, each once, after its children among them.

        Raises    GraphError naming the cycle, before any call, if there is one
        """
        for visited in reversed(postorder([node], parents)):
            func(visited, *args)


def children(node: Node) -> list[Node]:
    """The nodes that read this one, one for each link."""
    return [link.node for link in node.fwds]


def parents(node: Node) -> list[Node]:
    """The nodes that this one reads, one for each link."""
    return [link.node for link in node.bwds]


Vertex = TypeVar("Vertex")


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


class Component:
    """All nodes that hang together, as flat tables: how nodes are copied and pickled at any depth."""

    def __init__(self, nodes: list[Node]):
        self.nodes = nodes
        self.indices = {node: i for i, node in enumerate(nodes)}

    @classmethod
    def of(cls, node: Node) -> Component:
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

    def pick(self, index: int) -> Node:
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
        return Component.restore, (rows,)

    @staticmethod
    def restore(rows: list[tuple]) -> Component:
        component = Component([Node(module, None, name, rule) for module, name, rule, _, _ in rows])
        for node, (_, _, _, bwds, fwds) in zip(component.nodes, rows, strict=True):
            node.bwds = [Link(component.nodes[i], slots, argument) for i, slots, argument in bwds]
            node.fwds = [Link(component.nodes[i], slots, argument) for i, slots, argument in fwds]
        return component


def checkMode(module: Any, train: bool, name: str) -> None:
    """The gradient of a call is that of the mode in which the module was then.

    Raises    PuregraphError if it is in the other one by now
    """
    if module.train is not train:
        before, now = ("trainMode", "evalMode") if train else ("evalMode", "trainMode")
        raise PuregraphError(
            f"at '{name}' ({module.label}), backward: the forward pass was in {before}, the module is in {now} by now; "
            "go backward before the mode is changed, or run the forward pass again"
        )


def checkSaved(module: Any, saved: list[tuple[str, Any, Any]], name: str) -> None:
    """What the gradient rule of a module reads is what it was in the forward pass.

    Raises    PuregraphError if any of it was modified in place since
    """
    for what, value, before in saved:
        if isModified(value, before):
            raise modified(name, f" ({module.label})", what)


def isModified(value: Any, before: Any) -> bool:
    """Whether a parameter with its mark, or an array with its fingerprint, was modified in place since."""
    if isMarked(value):
        return not value.isAsMarked(before)
    return before is not None and fingerprint(value) != before


def modified(name: str, label: str, what: str) -> PuregraphError:
    """The error for a value that is not what it was."""
    return PuregraphError(
        f"at '{name}'{label}, backward: {what} was modified in place since the forward pass, and the gradient rule "
        "reads it; go backward before it is changed, change a copy, or run the forward pass again"
    )


def isMarked(value: Any) -> bool:
    """Whether a value tells of its changes itself: a parameter does; a running state moves in every pass."""
    return isinstance(value, Param)


def asGrads(result: Any, count: int, label: str) -> tuple:
    """What a gradient rule returned, as one gradient per argument."""
    grads = result if type(result) is tuple else (result,)
    if len(grads) != count:
        raise PuregraphError(
            f"the gradient rule of {label} returned {len(grads)} gradients for {count} arguments; "
            "return one per input and parameter, None where there is none"
        )
    return grads


def located(error: ShapeError, path: str, label: str, source: str = "") -> ShapeError:
    """The same error, with the place of every fault that has none yet."""
    return ShapeError(
        *(
            f._replace(path=f"{path}.{f.path}" if f.path else path, module=f.module or label, source=f.source or source)
            for f in error.faults
        )
    )


def lookup(table: dict, node: Node) -> Any:
    """The entry of a node in a table by node or by name."""
    found = table.get(node, table.get(node.name))
    if found is None:
        raise GraphError(f"no shape is known for '{node}': give it in the dictionary, or visit its parents first")
    return found


def isNothing(grad: Any) -> bool:
    """Whether no gradient comes from any output."""
    return grad is None or isinstance(grad, list) and all(g is None for g in grad)


def slotOf(shape: Any, slot: int) -> Any:
    """The shape of one output, where several are a list."""
    return shape[slot] if isinstance(shape, list) else shape


def kindOf(value: Any) -> str:
    """A value as an error message names it."""
    if isinstance(value, tuple):
        return "(" + ", ".join(map(kindOf, value)) + ")"
    return f"{type(value).__name__} {value!r}" if isinstance(value, (str, int, float)) else type(value).__name__


def checkName(name: str | None) -> None:
    """Refuse a name that would break paths."""
    if name is not None and not (isinstance(name, str) and name and name.isprintable() and not set(name) & {".", "/"}):
        raise GraphError(
            f"a name must be a printable text without '.' and '/', got {name!r}: dots join the names of nested graphs"
        )
