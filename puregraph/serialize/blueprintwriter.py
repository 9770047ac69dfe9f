"""BlueprintWriter: a Graph as JSON, each module once, after those that it holds."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from puregraph.core.errors import CheckpointError
from puregraph.core.param import DerivedKind, Param, Stored
from puregraph.core.rules import REGISTRY, candidates
from puregraph.core.storage.jsoncodec import encode
from puregraph.graph import Graph
from puregraph.graph.function import Function
from puregraph.graph.input import Input
from puregraph.graph.module import Module
from puregraph.graph.node import Node
from puregraph.graph.nodegraph import DERIVED
from puregraph.graph.parallel import Parallel
from puregraph.graph.sequential import ModuleList, Sequential
from puregraph.serialize.blueprint import FORMAT_VERSION, KINDS, MAX_UNFOLDED_NODES, STARTNAMES
from puregraph.serialize.classnames import nameOf

LABELS = ("name", "operator", "blockName")  # texts of a module that are kept where it has them


def toBlueprint(graph: Graph) -> dict[str, Any]:
    """A graph as JSON.

    Raises    CheckpointError naming the node, its module and the argument that cannot be stored
    """
    if not isinstance(graph, Graph):
        raise CheckpointError(f"a blueprint is of a Graph, got {type(graph).__name__}; put it into a Sequential")
    if len(graph.steps().items) > MAX_UNFOLDED_NODES // 2:
        raise CheckpointError(
            f"{graph.title()} unfolds into more than {MAX_UNFOLDED_NODES // 2} nodes, too many for a blueprint"
        )
    writer = BlueprintWriter()
    writer.write(graph)
    arrays = {p: setting(a) for p, a in {**graph.params, **graph.states}.items()}
    rules = ruleNamesOf(graph)
    derived = derivedIn(graph)
    absent = [f"{s.path}.{n}" for s in graph.steps().items for n in missing(s.module)]
    return {
        "version": FORMAT_VERSION,
        "modules": writer.rows,
        "arrays": arrays,
        "ties": graph.ties,
        "absent": list(dict.fromkeys(absent)),
        **({"rules": rules} if rules else {}),
        **({"derived": derived} if derived else {}),
    }


def ruleNamesOf(graph: Graph) -> list[list[str]]:
    """Return [class, rule] for the gradient rules that are registered for classes of the graph's modules."""
    steps = [step for step in graph.steps().items if step.node.rule is None] if REGISTRY else []
    pairs = {
        (nameOf(type(step.module), f"at '{step.path}'"), name)
        for step in steps
        for name, registered in candidates(step.module)
        if not registered.asked
    }
    return [list(pair) for pair in sorted(pairs)]


def derivedIn(graph: Graph) -> dict[str, Any]:
    """Return the computed parameters by path: class, shape and settings, or the earlier path of a shared one."""
    rows: dict[str, Any] = {}
    owners: dict[int, str] = {}
    for step in graph.steps().items:
        for name in step.module.ruleNames:
            value: Any = vars(step.module).get(name)
            if isinstance(value, DerivedKind):
                path = f"{step.path}.{name}"
                owner = owners.setdefault(id(value), path)
                rows[path] = {"as": owner} if owner != path else derivedRow(value, path)
    return rows


def derivedRow(derived: Any, path: str) -> dict[str, Any]:
    """The description of a parameter that is computed."""
    row = {"class": nameOf(type(derived), f"at '{path}'"), "shape": [int(n) for n in derived.shape]}
    return {**row, "settings": encode(derived.settings, path)}


def missing(module: Module) -> list[str]:
    """Return the names of omitted or removed parameters of a module."""
    return [name for name in module.ruleNames if vars(module).get(name, module) is None]


def setting(stored: Stored) -> dict[str, Any]:
    """Return the settings of a parameter or state; default values are left out."""
    settings: dict[str, Any] = {"kind": next(kind for kind, cls in KINDS.items() if isinstance(stored, cls))}
    settings |= {"shape": [int(n) for n in stored.shape], "dtype": stored.dtype.name}
    usual = {"trainable": True, "rate": 1.0, "decay": True}
    values = {name: getattr(stored, name) for name in usual if isinstance(stored, Param)}
    return settings | {name: encode(v, name) for name, v in values.items() if v != usual[name]}


class BlueprintWriter:
    """The rows of the modules, and the index of each; uses an explicit stack, for any depth."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self.index: dict[int, int] = {}

    def write(self, root: Module) -> None:
        opened: set[int] = set()
        stack = [(root, root.name or "", False)]
        while stack:
            module, path, ready = stack.pop()
            if id(module) in self.index:
                continue
            if ready:
                row = self.row(module, f"at '{path}' ({type(module).__name__})")
                self.index[id(module)] = len(self.rows)
                self.rows.append(row)
                opened.discard(id(module))
            elif id(module) in opened:
                raise CheckpointError(f"at '{path}' ({type(module).__name__}): it is a part of itself")
            else:
                opened.add(id(module))
                stack.append((module, path, True))
                inner = f"{path}." if path and len(stack) > 1 else ""
                stack += [(child, inner + name, False) for name, child in reversed(list(parts(module)))]

    def row(self, module: Module, where: str) -> dict[str, Any]:
        row: dict[str, Any] = {"class": nameOf(type(module), where)}
        if isinstance(module, ModuleList):
            row["items"] = [self.index[id(item)] for item in module.items]
        elif isinstance(module, Graph):
            row |= self.nodes(module)
        else:
            args, kwargs = module.initArgs
            row["args"] = [self.value(v, f"{where}: argument {i + 1}") for i, v in enumerate(args)]
            row["kwargs"] = {n: self.value(v, f"{where}: argument '{n}'") for n, v in kwargs.items()}
        attributes = ownAttributes(module)
        if attributes:
            row["own"] = {n: self.value(v, f"{where}: attribute '{n}'") for n, v in attributes.items()}
        row |= {key: value for key in LABELS if (value := getattr(module, key, None)) is not None}
        if not module.isTraining:
            row["train"] = False
        return row

    def nodes(self, graph: Graph) -> dict[str, Any]:
        nodes = allNodes(graph)
        index = {node: i for i, node in enumerate(nodes)}
        return {
            "nodes": [
                {
                    "module": self.index[id(node.module)],
                    **({"name": node.rename} if node.rename else {}),
                    **({"rule": node.rule} if node.rule else {}),
                    **({"parents": [self.link(link, index) for link in node.bwds]} if node.bwds else {}),
                }
                for node in nodes
            ],
            "inputs": [index[node] for node in graph.inputs],
            "outputs": [[index[node], slot] for node, slot in graph.outputs],
        }

    def link(self, link: Any, index: dict[Node, int]) -> list[Any]:
        slots = None if link.slots is None else list(link.slots)
        return [index[link.node], slots, link.argument]

    def value(self, value: object, where: str) -> Any:
        return encode(value, where, lambda v: self.special(v, where))

    def special(self, value: object, where: str) -> Any:
        if isinstance(value, Module):
            return {"module": self.index[id(value)]}
        if isinstance(value, type) and issubclass(value, (Module, Function)):
            return {"class": nameOf(value, where)}
        if type(value) in STARTNAMES:
            return {"start": [STARTNAMES[type(value)], encode(vars(value), where)]}
        return None


def allNodes(graph: Graph) -> list[Node]:
    """The nodes of a graph, and inputs that no output needs."""
    return list(dict.fromkeys((*graph.nodes, *graph.inputs)))


def parts(module: Module) -> Iterator[tuple[str, Module]]:
    """The modules that a module holds, each with a name for messages."""
    if isinstance(module, ModuleList):
        yield from zip((module.paths[node] for node in module.itemNodes), module.items, strict=True)
    elif isinstance(module, Graph):
        yield from ((module.paths.get(node, node.name), node.module) for node in allNodes(module))
    else:
        args, kwargs = module.initArgs
        yield from modulesIn([*args, *kwargs.values()])
    yield from modulesIn(list(ownAttributes(module).values()))


def modulesIn(value: object) -> Iterator[tuple[str, Module]]:
    """Yield the modules inside a value; endless nesting is reported when it is encoded."""
    stack = [(value, 0)]
    while stack:
        item, depth = stack.pop()
        if isinstance(item, Module):
            yield item.name or type(item).__name__.lower(), item
        elif isinstance(item, (list, tuple, dict)) and depth <= 100:
            inner = item.values() if isinstance(item, dict) else item
            stack += [(v, depth + 1) for v in reversed(list(inner))]


@cache
def usual() -> frozenset[str]:
    """The attributes that every graph has."""
    node = Input().node()
    return frozenset(
        {*DERIVED, *vars(Graph(node, node)), *vars(Sequential(Input())), "isTraining", "precision", "initArgs"}
    )


def ownAttributes(module: Module) -> dict[str, Any]:
    """Return the attributes that a Graph class of the user keeps on itself."""
    if not isinstance(module, Graph) or type(module) in (Graph, Sequential, Parallel):
        return {}
    return {name: value for name, value in vars(module).items() if name not in usual()}
