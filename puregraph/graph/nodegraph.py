"""NodeGraph: the nodes between given inputs and outputs, checked, named, and unfolded into steps."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from puregraph.core.base.dtype import isFloating
from puregraph.core.errors import GraphError, GraphWarning, UnknownAttributeError, plural
from puregraph.core.param import DerivedKind, Param, State
from puregraph.core.parameterized import StoredArrays
from puregraph.core.traversal import parents, postorder
from puregraph.core.versioning import COUNTER, isVersioned
from puregraph.graph.linking import asList, checkInputs, checkReached, edgesOf, namesFor, warnLeftOut
from puregraph.graph.lookup import few, listing, nodeNamed, setInside, sourceNames
from puregraph.graph.module import Inputs, Module
from puregraph.graph.node import Node
from puregraph.graph.steps import GraphStep, Steps
from puregraph.graph.unfolding import graphsIn, inputCounts, inputSpecOf, nestedVersions, outputNamesOf, unfold

if TYPE_CHECKING:
    import numpy as np
    from typing_extensions import Self

    from puregraph.core.linkednode import Parents


class NodeGraph(Module):
    """The static part of a Graph: nodes in a fixed order, their paths, the arrays that they hold, and the flat steps.

    `version` counts its changes of links, so that enclosing graphs notice them.
    """

    isGraph = True
    blockName: str | None = None  # the function that made it, such as MultiHeadAttention
    last: Any = None  # the last Pass, for `backward`
    data: Any = None
    grad: Any = None

    def __init__(self, inputs: Any, outputs: Parents, name: str | None = None):
        super().__init__(name)
        self.version = 0
        if not asList(outputs):
            raise GraphError(f"{self.title()}: wanted at least one output, got none")
        self.link(inputs, outputs)

    def link(self, inputs: Any, outputs: Any) -> None:
        """Find and name the nodes between inputs and outputs, and clear cached data of previous ones."""
        self.inputs: list[Node] = list(inputs) if isinstance(inputs, (list, tuple)) else [inputs]
        self.outputs = [e for o in asList(outputs) for e in edgesOf(o)]
        checkInputs(self.inputs)
        self.nodes = postorder([node for node, _ in self.outputs], parents)
        checkReached(self.nodes, self.inputs)
        self.paths = namesFor(self.nodes)
        for node in self.nodes:
            if node.bwds:
                _ = node.sources  # raises an error for missing or repeated arguments now, not in the first pass
        self.warnLeftOut()
        self.version += 1
        self.cache: dict[int, tuple[tuple, Steps]] = {}
        self.unfolded: dict[int | None, tuple[object, Steps]] = {}  # by count, with the mark of `COUNTER`
        modules = [self, *(node.module for node in self.inputs)]
        self.isVersioned: bool = all(map(isVersioned, modules)) and all(inner.isVersioned for inner in graphsIn(self))
        self.checked: dict[Any, Any] = {}
        self.backwards: dict[Any, Any] = {}
        self.inferredShapes: list[Any] | None = None
        self.forget()

    def warnLeftOut(self) -> None:
        """Warn of the first nodes of branches that lead to no output, unless another graph uses them."""
        warnLeftOut(self.nodes, self.inputs, [node for node, _ in self.outputs])

    def __getattr__(self, name: str) -> Any:
        """Raises    AttributeError, for the name of a node with the way to access its module"""
        if name in vars(self).get("paths", {}).values():
            raise UnknownAttributeError(
                f"{type(self).__name__!r} object has no attribute {name!r}; net[{name!r}] is that module"
            )
        return super().__getattribute__(name)  # raises the original error

    def insteadOf(self, name: str, value: Any) -> str:
        """Suggest how to replace the module of this name, for users who set it as an attribute."""
        if not isinstance(value, Module) or name not in self.paths.values():
            return ""
        if hasattr(type(self), "__setitem__"):
            return f"net[{name!r}] = module puts another module there"
        return "Graph(net.inputs, module(net.getNodeByName('last'))) has another one behind that node"

    def forget(self) -> None:
        """Forget the last pass."""
        self.last = self.data = self.grad = None

    def steps(self, count: int | None = None, innerKnown: bool = False) -> Steps:
        """Unfold the graph for `count` inputs (which matters if an input node takes any number).

        Nested graphs are unfolded first, innermost first, to avoid deep recursion; `innerKnown` skips this.
        """
        mark = COUNTER.version  # read first, so that a change during unfolding is noticed next time
        known = self.unfolded.get(count)
        if known is not None and known[0] is mark:
            return known[1]
        sizes = inputCounts(self, count)
        key, inside = sum(sizes), nestedVersions(self)
        now = inside, DerivedKind.changes
        if key not in self.cache or self.cache[key][0] != now:
            self.checked.clear()
            self.backwards.clear()
            for inner in postorder([self], graphsIn)[:-1] if inside and not innerKnown else ():
                inner.steps(innerKnown=True)
            self.cache[key] = now, self.unfold(sizes)
        unfolded = self.cache[key][1]
        if self.isVersioned:
            self.unfolded[count] = mark, unfolded
        return unfolded

    def unfold(self, sizes: list[int]) -> Steps:
        """The flat list of steps, when each input node takes as many values as `sizes` say."""
        return unfold(self, sizes)

    @property
    def inputSpec(self) -> Inputs:
        return inputSpecOf(self)

    @property
    def indices(self) -> tuple[str, ...]:  # type: ignore[override]
        return tuple(
            name
            for node in self.inputs
            for name in [self.paths.get(node, node.name)]
            if node.module.indices == node.module.arguments and node.module.indices
        )

    @property
    def outputNames(self) -> tuple[str, ...]:
        return outputNamesOf(self)

    @property
    def ruleNames(self) -> tuple[str, ...]:
        return tuple(self.params)

    def ruleParams(self) -> list[Any]:
        return list(self.params.values())

    def modules(self) -> dict[str, Module]:
        """All modules in use, by the path of their first node."""
        located: dict[int, tuple[str, Module]] = {}
        for step in self.steps().items:
            located.setdefault(id(step.module), (step.path, step.module))
        return dict(located.values())

    @property
    def params(self) -> dict[str, Param]:
        """Every trainable array once, by path: `stem.conv.W`."""
        return StoredArrays((path, p) for path, p, owner in self.stored("params") if owner == path)

    @property
    def states(self) -> dict[str, State]:
        """Every running statistic once, by path."""
        return StoredArrays((path, s) for path, s, owner in self.stored("states") if owner == path)

    @property
    def ties(self) -> dict[str, str]:
        """The additional names of shared arrays, each with the path under which the array is stored."""
        return {path: owner for kind in ("params", "states") for path, _, owner in self.stored(kind) if owner != path}

    def stored(self, kind: str) -> Iterator[tuple[str, Any, str]]:
        """Yield (path, array, the path under which it is stored) for every use of an array by a module."""
        owners: dict[int, str] = {}
        for step in self.steps().items:
            handed = {name for name, _ in step.handed} if step.computed else ()
            for name, array in getattr(step.module, kind).items():
                if name in handed:  # another node computes it here
                    continue
                path = f"{step.path}.{name}"
                yield path, array, owners.setdefault(id(array), path)

    @property
    def dtype(self) -> np.dtype | None:
        """The dtype that the graph computes in: its floating parameters'; None where it has none."""
        return next((p.dtype for _, p, _ in self.stored("params") if isFloating(p.dtype)), None)

    def freeze(self) -> Self:
        for module in self.modules().values():
            module.freeze()
        return self

    def unfreeze(self) -> Self:
        for module in self.modules().values():
            module.unfreeze()
        return self

    def bake(self) -> Any:
        for module in self.modules().values():
            module.bake()
        return self

    def trainMode(self) -> Any:
        return self.mode(True)

    def evalMode(self) -> Self:
        return self.mode(False)

    def mode(self, train: bool) -> Any:
        """Set the mode of every module inside, and forget the last pass, whose gradient would mix both modes."""
        setInside(self, "isTraining", train)
        return self

    def getNodeByName(self, name: str) -> Node:
        """Look up a node by its path, such as `stem.conv`; its `data` and `grad` are from the last pass.

        Raises    GraphError listing similar names
        """
        return nodeNamed(self, name)

    def allNames(self) -> list[str]:
        """The paths of all nodes, of those in nested graphs too."""
        return list(dict.fromkeys([*self.paths.values(), *(s.path for s in self.steps().items)]))

    def __getitem__(self, key: Any) -> Module:
        """A module by its path, or by its index in the order of execution."""
        if isinstance(key, str):
            return self.getNodeByName(key).module
        return self.nodes[key].module

    def __len__(self) -> int:
        return len(self.nodes)

    def sources(self, step: GraphStep, steps: Steps) -> list[str]:
        """Return the names of the values that a step reads, for a listing."""
        return sourceNames(step, steps)

    def brief(self) -> str:
        return self.blockName or type(self).__name__

    def title(self) -> str:
        return f"{self.brief()} '{self.name}'" if self.name else self.brief()

    def __repr__(self) -> str:
        return f"<{self.title()}: {self.nodeCount()}, {few(self.arguments)} -> {few(self.outputNames)}>"

    def nodeCount(self) -> str:
        """The number of computing nodes for listings, summaries and pictures; inputs do not count."""
        return plural(len(self.steps().items), "node")

    def __str__(self) -> str:
        """One line per node: its path, its module and its sources."""
        return listing(self)

    def __getstate__(self) -> dict:
        kept = {k: v for k, v in vars(self).items() if k not in DERIVED}
        return {**kept, "initArgs": ((), {}), "lastCall": None}

    def __setstate__(self, state: dict) -> None:
        vars(self).update(state)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", GraphWarning)
            self.link(self.inputs, self.outputs)


DERIVED = frozenset(
    "nodes paths cache unfolded isVersioned checked backwards inferredShapes outshapes last data grad".split()
)
