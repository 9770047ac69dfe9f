"""BlueprintReader: a Graph of JSON that may be forged, within a budget."""

from __future__ import annotations

import inspect
import warnings
from typing import Any, NamedTuple

from puregraph.core.base.budget import MAX_GRAPH_LEVELS, Budget
from puregraph.core.errors import CheckpointError, GraphWarning, brief
from puregraph.core.errors.userwarning import warnUser
from puregraph.core.linkednode import checkName
from puregraph.core.rules import DEFAULT, REGISTRY, candidates, kinds
from puregraph.core.storage.jsoncodec import decode
from puregraph.graph import Graph
from puregraph.graph.module import Module
from puregraph.graph.node import Node
from puregraph.graph.parallel import Parallel
from puregraph.graph.sequential import ModuleList, Sequential
from puregraph.serialize.blueprint import FORMAT_VERSION, MAX_UNFOLDED_NODES, STARTS
from puregraph.serialize.blueprintarrays import settle
from puregraph.serialize.blueprintform import checkBlueprint, checkModule, checkParts, checkRow
from puregraph.serialize.blueprintwriter import usual
from puregraph.serialize.classnames import FORMER, classNamed


def fromBlueprint(blueprint: dict[str, Any], budget: Budget | None = None) -> Graph:
    """Build the graph of a blueprint. Parameters are declared, not allocated, so even a forged one costs no memory.

    `budget` limits the size of the graph; a blueprint that did not come from a file needs no limit.

    Raises    CheckpointError naming the module and what is wrong with it
    """
    try:
        if not isinstance(blueprint, dict) or blueprint.get("version") != FORMAT_VERSION:
            version = blueprint.get("version") if isinstance(blueprint, dict) else type(blueprint).__name__
            raise CheckpointError(f"wanted a blueprint of version {FORMAT_VERSION}, got {version!r:.80}")
        checkBlueprint(blueprint)
        reader = BlueprintReader(blueprint["modules"], budget)
        graph = reader.built[-1] if reader.built else None
        if not isinstance(graph, Graph):
            raise CheckpointError(f"the last module must be a Graph, got {type(graph).__name__}")
        warnUnregistered(blueprint.get("rules", []), reader.built)
        isChanged = settle(graph, blueprint)
        for module in reader.built:
            if isChanged and isinstance(module, Graph):
                module.unfolded.clear()
                module.cache.clear()  # replaced arrays change the steps
    except CheckpointError:
        raise
    except Exception as error:
        raise CheckpointError(f"the blueprint cannot be built: {type(error).__name__}: {error!s:.500}") from error
    return graph


class UnfoldedSize(NamedTuple):
    """The size of an unfolded module: its nodes, the characters of all their paths, and the depth of nested graphs."""

    nodes: int
    characters: int
    levels: int


def earlier(earlierRows: list[Any], index: Any) -> Any:
    """Return the entry of an earlier module."""
    if type(index) is not int or not 0 <= index < len(earlierRows):
        raise CheckpointError(f"module {index!r:.40} does not come before the one that uses it")
    return earlierRows[index]


def sizeOf(row: dict[str, Any], known: list[UnfoldedSize], budget: Budget | None) -> UnfoldedSize:
    """Compute the unfolded size of a module before it is built, from the sizes of the modules before it.

    Raises    CheckpointError if the size exceeds the remaining budget
    """
    parts = [earlier(known, i) for i in row.get("items") or [node["module"] for node in row.get("nodes") or []]]
    nodes = sum(part.nodes for part in parts) if parts else 1
    nameLength = len(row["name"]) if isinstance(row.get("name"), str) else 12
    characters = nodes * (nameLength + 1) + sum(part.characters for part in parts)
    size = UnfoldedSize(nodes, characters, 1 + max([part.levels for part in parts], default=-1))
    if nodes > MAX_UNFOLDED_NODES:
        raise CheckpointError(f"it unfolds into more than {MAX_UNFOLDED_NODES} nodes")
    if size.levels > MAX_GRAPH_LEVELS:
        raise CheckpointError(f"it is nested more than {MAX_GRAPH_LEVELS} deep")
    if budget is not None:
        budget.spend("nodes", nodes)
        budget.spend("characters of paths", characters)
    return size


def checkSize(blueprint: dict[str, Any], budget: Budget) -> None:
    """Check that a blueprint can be loaded again within its budget.

    Raises    CheckpointError if not
    """
    known: list[UnfoldedSize] = []
    for row in blueprint["modules"]:
        known.append(sizeOf(row, known, budget))


class BlueprintReader:
    """Builds modules in order; each may only use earlier ones, so that no module can contain itself."""

    def __init__(self, rows: list[dict[str, Any]], budget: Budget | None = None):
        self.built: list[Module] = []
        self.sizes: list[UnfoldedSize] = []
        self.budget = budget
        for index, row in enumerate(rows):
            label = row.get("class", "no class") if type(row) is dict else "no class"
            where = f"the blueprint's module {index} ({label!s:.80})"
            try:
                checkModule(row)
                self.sizes.append(sizeOf(row, self.sizes, budget))
                self.built.append(self.build(row))
                if budget is not None:
                    budget.spend("outputs", len(self.built[-1].outputNames))
                    if not self.built[-1].isGraph:
                        budget.spend("parameters and states", len(self.built[-1].ruleNames))
            except CheckpointError as error:
                raise CheckpointError(f"{where}: {error}") from None
            except Exception as error:
                raise CheckpointError(f"{where} cannot be made: {type(error).__name__}: {error!s:.500}") from error

    def used(self, index: Any) -> Module:
        """The module of an index."""
        return earlier(self.built, index)

    def build(self, row: dict[str, Any]) -> Module:
        label = row["class"]
        former = FORMER.get(label) if isinstance(label, str) else None
        cls = classNamed(label if former is None else former.nameFrom(row["args"], row["kwargs"]))
        if not issubclass(cls, Module):
            raise CheckpointError("it is not a Module")
        isList = issubclass(cls, ModuleList)
        if not issubclass(cls, Graph) or not row.get("items" if isList else "nodes"):
            checkParts(row, "items" if isList else "nodes" if issubclass(cls, Graph) else "args")
        if issubclass(cls, Graph):
            module: Module = self.graph(cls, row)
        else:
            args = [self.value(v) for v in row["args"]]
            kwargs = {name: self.value(v) for name, v in row["kwargs"].items()}
            if former is not None:
                args, kwargs = former.current(args, kwargs, list(inspect.signature(cls).parameters))
            module = cls(*args, **kwargs)
        checkName(row.get("name"))
        module.name = row.get("name")
        if type(row.get("operator")) is str:
            module.operator = row["operator"]
        if isinstance(module, Graph) and type(row.get("blockName")) is str:
            module.blockName = row["blockName"]
        if row.get("train") is False:
            module.isTraining = False
        return module

    def graph(self, cls: type[Graph], row: dict[str, Any]) -> Graph:
        graph = cls.__new__(cls)
        Module.__init__(graph, row.get("name"))
        graph.version = 0
        for name, value in (row.get("own") or {}).items():
            isBuiltin = cls in (Graph, Sequential, Parallel) or hasattr(ModuleList, name)
            if not name.isidentifier() or isBuiltin or name in usual() or callable(getattr(cls, name, None)):
                raise CheckpointError(f"{name!r:.80} cannot be an attribute of it")
            vars(graph)[name] = self.value(value)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", GraphWarning)  # the original graph has warned of left-out branches
            if isinstance(graph, ModuleList):
                graph.items = []
                graph.edit([self.used(i) for i in row["items"]])
            else:
                graph.link(*self.ends(row))
        return graph

    def ends(self, row: dict[str, Any]) -> tuple[list[Node], list[tuple[Node, int]]]:
        """Make and link the nodes of a graph. Returns its inputs and outputs."""
        nodes: list[Node] = []
        for item in row["nodes"]:
            module = self.used(item["module"])
            node = Node(module, None, item.get("name"), self.rule(module, item.get("rule")))
            for parent, slots, argument in item.get("parents", []):
                if argument is not None and argument not in (*module.arguments, *module.ruleNames):
                    raise CheckpointError(f"{node} has no input {argument!r:.80}")
                node.addBackwards((pick(nodes, parent), slots), argument)
            nodes.append(node)
        outputs = [(pick(nodes, index), slot) for index, slot in row["outputs"]]
        return [pick(nodes, index) for index in row["inputs"]], outputs

    def rule(self, module: Module, name: Any) -> str | None:
        if name is not None and name not in dict(candidates(module)):
            raise CheckpointError(
                f"no gradient rule named {name!r:.80} is registered for {type(module).__name__}; "
                f"register it with @registerRule({type(module).__name__}, {name!r:.80}) before loading"
            )
        return name

    def value(self, value: Any) -> Any:
        return decode(value, self.special)

    def special(self, value: dict[str, Any]) -> Any:
        if "module" in value:
            return self.used(value["module"])
        if "class" in value:
            return classNamed(value["class"])
        if "start" in value:
            return startFrom(value["start"])
        return None


def startFrom(row: Any) -> Any:
    """Return the initial values of a parameter, by name and settings."""
    checkRow(row, "'start'", "[name, settings]", 2)
    name, settings = row[0], decode(row[1])
    if type(name) is not str or name not in STARTS or type(settings) is not dict:
        raise CheckpointError(
            f"no start of values is called {name!r:.40} with {brief(settings)}; known: {', '.join(STARTS)}"
        )
    return STARTS[name](**settings)


def warnUnregistered(rules: list[list[str]], modules: list[Module]) -> None:
    """Warn of gradient rules that were registered for whole classes when the graph was saved, and are not now."""
    for label, name in rules:
        cls: Any = classNamed(label)
        operators = {None, *(m.operator for m in modules if type(m) is cls)}
        known = {kind for operator in operators for kind in kinds(cls, operator)}
        if not any(kind in known and name == other for kind, other in REGISTRY):
            call = f"@registerRule({cls.__name__})" if name == DEFAULT else f"its rule {name!r:.80}"
            warnUser(
                f"{cls.__name__} had a gradient rule of its own when this graph was saved, and has none now, so its "
                f"gradient is different: register it ({call}) before loading",
                GraphWarning,
            )


def pick(nodes: list[Node], index: Any) -> Node:
    """A node by its index, checked."""
    if type(index) is not int or not 0 <= index < len(nodes):
        raise CheckpointError(f"node {index!r:.40} does not come before the one that uses it")
    return nodes[index]
