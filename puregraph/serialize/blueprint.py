"""A Graph as JSON and back: no pickle, no evaluation, no import by name; classes only through a registry.

    {"version": 1,
     "modules": [{"class": "Linear", "args": [3, 4], "kwargs": {"name": "fc"}, "name": "fc"}, ...],
     "arrays":  {"fc.W": {"kind": "param", "shape": [3, 4], "dtype": "float32"}, ...},
     "ties": {"head.W": "fc.W"}, "absent": ["fc.b"]}

Every module is stored once, after those that it holds; the last one is the graph. A module that stands at several
nodes is named by its index from each. A leaf is made again from its constructor's arguments, a graph from its nodes.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

from puregraph import costs, modules, optimizers
from puregraph.autodiff.tape.activationrecompute import Checkpoint
from puregraph.base.budget import LEVELS, Budget
from puregraph.base.dtype import dtypeNamed
from puregraph.core import initial
from puregraph.core.linkednode import checkName
from puregraph.core.param import FixedState, Param, State, Stored
from puregraph.core.rules import candidates
from puregraph.errors import CheckpointError, GraphWarning, PuregraphError, quote, show
from puregraph.function import Function, FunctionCall
from puregraph.graph import Graph
from puregraph.graph.graphholder import leavesIn
from puregraph.graph.input import Input
from puregraph.graph.lookup import nearest
from puregraph.graph.nodegraph import DERIVED
from puregraph.graph.parallel import Parallel
from puregraph.graph.sequential import ModuleList, Sequential
from puregraph.module import Module
from puregraph.node import Node
from puregraph.optimizers import InitRecorder
from puregraph.pointwise import Pointwise
from puregraph.storage.hdf import DTYPES
from puregraph.storage.jsoncodec import decode, encode

VERSION = 1
STEPS = 2_000_000  # nodes of the unfolded graph: nested graphs that use each other twice would grow without limit
KINDS = {"param": Param, "constant": FixedState, "state": State}
STARTS: dict[str, Any] = {
    "Constant": initial.Filled,
    "Normal": initial.Normal,
    "Uniform": initial.Uniform,
    "Orthogonal": initial.Orthogonal,
}
STARTNAMES = {start: name for name, start in STARTS.items()}


# Classes by name ----------------------------------------------------------------------------------------------------

NAMED = (Module, Function, InitRecorder)  # InitRecorder: optimizers and schedules
OWN: dict[str, type] = {}  # registered classes of users, in files "user:NAME"
BARE = frozenset(  # built-ins that files name without a prefix; other bare names, in older files, are users' classes
    """
    Add Attention AvgPool1D AvgPool2D AvgPoolNd BatchNorm Call Checkpoint Clip Concat Conv1D Conv2D Conv3D ConvNd
    Deconv2D DeconvNd Div Dropout Einsum Elu Embedder Flatten GRU Gather Gelu GlobalAvgPool Graph GroupNorm HardSwish
    Identity Input LSTM LayerNorm LeakyRelu Linear MatMul Max MaxPool1D MaxPool2D MaxPoolNd Mean Min Mul MulAddConst
    Pad PairDot Parallel Pointwise Position Power Prepend RNN Relu Reshape Sequential Sigmoid Slice SoftMax SoftPlus
    Split Sub Sum Swish Tanh Transpose Upsample2D costs.Abs costs.BCE costs.CrossEntropy costs.MSE costs.PointwiseCost
    costs.SmoothL1 optimizers.Adam optimizers.AdamW optimizers.Cosine optimizers.MomentumSGD optimizers.NesterovSGD
    optimizers.OneCycle optimizers.Optimizer optimizers.RMSProp optimizers.SGD optimizers.Schedule optimizers.Step
    optimizers.WarmUp
    """.split()
)


@cache
def builtin() -> dict[str, type]:
    """The classes that puregraph exports: modules by their name, others as `costs.NAME` and `optimizers.NAME`."""
    found: dict[str, type] = {c.__name__: c for c in (Checkpoint, Graph, Input, Parallel, Pointwise, Sequential)}
    found["Call"] = FunctionCall
    for prefix, package in (("", modules), ("costs.", costs), ("optimizers.", optimizers)):
        for name, value in vars(package).items():
            if isinstance(value, type) and issubclass(value, NAMED) and name[0] != "_":
                found[prefix + name] = value
    return found


@cache
def exchanged() -> dict[str, type]:
    """The modules that models from elsewhere are read as, as `onnx.NAME`: files of others do without them."""
    from puregraph.onnx import modules as found

    return {f"onnx.{name}": each for name, each in vars(found).items() if isinstance(each, type)}


def registerModule(cls: Any = None, name: str | None = None) -> Any:
    """Make a class of your own (a Module, Function, Optimizer or Schedule) known by name, so that files can name it.

    A decorator, with or without a name, or a call. Files name it `user:NAME`, whatever classes puregraph itself has.

    Raises    PuregraphError if it is neither, or the name belongs to another class that was registered
    """
    if cls is None:
        return lambda found: registerModule(found, name)
    if not (isinstance(cls, type) and issubclass(cls, NAMED)):
        raise PuregraphError(
            f"registerModule: wanted a subclass of {' or '.join(c.__name__ for c in NAMED)}, got {cls!r:.80}"
        )
    name = name or cls.__name__
    other = OWN.get(name)
    again = other is not None and (other.__module__, other.__qualname__) == (cls.__module__, cls.__qualname__)
    if other is not None and not again:
        raise PuregraphError(f"registerModule: {name!r} is {fullName(other)} already; give {fullName(cls)} a name=")
    OWN[name] = cls
    return cls


def classNamed(name: Any) -> type:
    """The class of a name.

    Raises    CheckpointError naming `registerModule` for one that is unknown
    """
    own = {**builtin(), **exchanged()} if str(name).startswith("puregraph:onnx.") else builtin()
    known = {fileName(n): c for n, c in own.items()} | {f"user:{n}": c for n, c in OWN.items()}
    full = f"user:{name}" if isinstance(name, str) and ":" not in name and name not in BARE else name
    if not isinstance(name, str) or full not in known:
        near = nearest(str(name)[:80], sorted({**builtin(), **OWN}))
        raise CheckpointError(
            f"unknown class {name!r:.80}: a class of your own is made known with puregraph.registerModule(TheClass); "
            f"known are {', '.join(near)} and {len(known)} in all"
        )
    return known[full]


def nameOf(cls: type, where: str) -> str:
    """The name that files give a class."""
    own = exchanged() if cls.__module__.startswith("puregraph.onnx.") else builtin()
    for names in ({fileName(n): c for n, c in own.items()}, {f"user:{n}": c for n, c in OWN.items()}):
        for name, known in names.items():
            if known is cls:
                return name
    raise CheckpointError(
        f"{where}: {fullName(cls)} is not known by name, so no file can name it; "
        f"put @puregraph.registerModule above the class {cls.__name__}"
    )


def fileName(name: str) -> str:
    """The name that files give a class of puregraph's."""
    return name if name in BARE else f"puregraph:{name}"


def fullName(cls: type) -> str:
    """Where a class is defined."""
    return f"{cls.__module__}.{cls.__qualname__}"


# Writing ------------------------------------------------------------------------------------------------------------


def toBlueprint(graph: Graph) -> dict[str, Any]:
    """A graph as JSON.

    Raises    CheckpointError naming the node, its module and the argument that cannot be stored
    """
    if not isinstance(graph, Graph):
        raise CheckpointError(f"a blueprint is of a Graph, got {type(graph).__name__}; put it into a Sequential")
    if len(graph.steps().items) > STEPS // 2:
        raise CheckpointError(f"{graph.title()} unfolds into more than {STEPS // 2} nodes, too many for a blueprint")
    writer = BlueprintWriter()
    writer.write(graph)
    arrays = {p: setting(a) for p, a in {**graph.params, **graph.states}.items()}
    absent = [f"{s.path}.{n}" for s in graph.steps().items for n in missing(s.module)]
    return {
        "version": VERSION,
        "modules": writer.rows,
        "arrays": arrays,
        "ties": graph.ties,
        "absent": list(dict.fromkeys(absent)),
    }


def missing(module: Module) -> list[str]:
    """The parameters that a module was made without, or that were taken from it."""
    return [name for name in module.ruleNames if vars(module).get(name, module) is None]


def setting(stored: Stored) -> dict[str, Any]:
    """What is set on a parameter or state; what is as usual is left out."""
    found: dict[str, Any] = {"kind": next(kind for kind, each in KINDS.items() if isinstance(stored, each))}
    found |= {"shape": [int(n) for n in stored.shape], "dtype": stored.dtype.name}
    usual = {"trainable": True, "rate": 1.0, "decay": True}
    values = {name: getattr(stored, name) for name in usual if isinstance(stored, Param)}
    return found | {name: encode(v, name) for name, v in values.items() if v != usual[name]}


class BlueprintWriter:
    """The rows of the modules, and the index of each; an explicit stack, so that any depth can be written."""

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
        own = ownAttributes(module)
        if own:
            row["own"] = {n: self.value(v, f"{where}: attribute '{n}'") for n, v in own.items()}
        if module.name is not None:
            row["name"] = module.name
        if not module.train:
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

    def value(self, value: Any, where: str) -> Any:
        return encode(value, where, lambda v: self.special(v, where))

    def special(self, value: Any, where: str) -> Any:
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


def modulesIn(value: Any) -> Iterator[tuple[str, Module]]:
    """The modules somewhere in a value; one that is nested without end is named when it is encoded."""
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
    return frozenset({*DERIVED, *vars(Graph(node, node)), *vars(Sequential(Input())), "train", "precision", "initArgs"})


def ownAttributes(module: Module) -> dict[str, Any]:
    """What a Graph class of the user's own keeps on itself."""
    if not isinstance(module, Graph) or type(module) in (Graph, Sequential, Parallel):
        return {}
    return {name: value for name, value in vars(module).items() if name not in usual()}


# Reading ------------------------------------------------------------------------------------------------------------


def fromBlueprint(blueprint: dict[str, Any], budget: Budget | None = None) -> Graph:
    """The graph of a blueprint: parameters are declared, not made, so even a forged one costs no memory.

    `budget` is what it may cost; one that did not come from a file may cost anything.

    Raises    CheckpointError naming the module and what is wrong with it
    """
    try:
        if not isinstance(blueprint, dict) or blueprint.get("version") != VERSION:
            version = blueprint.get("version") if isinstance(blueprint, dict) else type(blueprint).__name__
            raise CheckpointError(f"wanted a blueprint of version {VERSION}, got {version!r:.80}")
        reader = BlueprintReader(blueprint["modules"], budget)
        graph = reader.built[-1] if reader.built else None
        if not isinstance(graph, Graph):
            raise CheckpointError(f"the last module must be a Graph, got {type(graph).__name__}")
        settle(graph, blueprint)
        for module in reader.built:
            if isinstance(module, Graph):
                module.unfolded.clear()
                module.cache.clear()  # an array that only the blueprint knows makes other steps
    except CheckpointError:
        raise
    except Exception as error:
        raise CheckpointError(f"the blueprint cannot be built: {type(error).__name__}: {error!s:.500}") from error
    return graph


class UnfoldedSize(NamedTuple):
    """What a module unfolds into: nodes, the characters of all their paths, and how many graphs are in each other."""

    nodes: int
    characters: int
    levels: int


def earlier(found: list[Any], index: Any) -> Any:
    """What was found for an earlier module."""
    if type(index) is not int or not 0 <= index < len(found):
        raise CheckpointError(f"module {index!r:.40} does not come before the one that uses it")
    return found[index]


def sizeOf(row: dict[str, Any], known: list[UnfoldedSize], budget: Budget | None) -> UnfoldedSize:
    """What a module unfolds into, known before it is built, from the sizes of those before it.

    Raises    CheckpointError where that is more than the budget has left
    """
    parts = [earlier(known, i) for i in row.get("items") or [node["module"] for node in row.get("nodes") or []]]
    nodes = sum(part.nodes for part in parts) if parts else 1
    own = len(row["name"]) if isinstance(row.get("name"), str) else 12
    characters = nodes * (own + 1) + sum(part.characters for part in parts)
    size = UnfoldedSize(nodes, characters, 1 + max([part.levels for part in parts], default=-1))
    if nodes > STEPS:
        raise CheckpointError(f"it unfolds into more than {STEPS} nodes")
    if size.levels > LEVELS:
        raise CheckpointError(f"it is nested more than {LEVELS} deep")
    if budget is not None:
        budget.spend("nodes", nodes)
        budget.spend("characters of paths", characters)
    return size


def checkSize(blueprint: dict[str, Any], budget: Budget) -> None:
    """Whether a blueprint can be loaded again within its budget.

    Raises    CheckpointError if not
    """
    known: list[UnfoldedSize] = []
    for row in blueprint["modules"]:
        known.append(sizeOf(row, known, budget))


class BlueprintReader:
    """Builds one module after the other; each may use those before it, so nothing is ever a part of itself."""

    def __init__(self, rows: list[dict[str, Any]], budget: Budget | None = None):
        self.built: list[Module] = []
        self.sizes: list[UnfoldedSize] = []
        self.budget = budget
        for index, row in enumerate(rows):
            label = row["class"] if isinstance(row, dict) and isinstance(row.get("class"), str) else "no class"
            where = f"the blueprint's module {index} ({label:.80})"
            try:
                self.sizes.append(sizeOf(row, self.sizes, budget))
                self.built.append(self.build(row))
                if budget is not None:
                    budget.spend("outputs", len(self.built[-1].outputNames))
            except CheckpointError as error:
                raise CheckpointError(f"{where}: {error}") from None
            except Exception as error:
                raise CheckpointError(f"{where} cannot be made: {type(error).__name__}: {error!s:.500}") from error

    def used(self, index: Any) -> Module:
        """The module of an index."""
        return earlier(self.built, index)

    def build(self, row: dict[str, Any]) -> Module:
        cls = classNamed(row["class"])
        if not issubclass(cls, Module):
            raise CheckpointError("it is no Module")
        if issubclass(cls, Graph):
            module: Module = self.graph(cls, row)
        else:
            args = [self.value(v) for v in row["args"]]
            module = cls(*args, **{name: self.value(v) for name, v in row["kwargs"].items()})
        checkName(row.get("name"))
        module.name = row.get("name")
        if row.get("train") is False:
            module.train = False
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
            warnings.simplefilter("ignore", GraphWarning)  # what is left out was said when the graph was made
            if isinstance(graph, ModuleList):
                graph.items = []
                graph.edit([self.used(i) for i in row["items"]])
            else:
                graph.link(*self.ends(row))
        return graph

    def ends(self, row: dict[str, Any]) -> tuple[list[Node], list[tuple[Node, int]]]:
        """The nodes of a graph, linked; its inputs and outputs."""
        nodes: list[Node] = []
        for item in row["nodes"]:
            module = self.used(item["module"])
            node = Node(module, None, item.get("name"), self.rule(module, item.get("rule")))
            for parent, slots, argument in item.get("parents", []):
                if argument is not None and argument not in module.arguments:
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
            name, given = value["start"]
            return STARTS[name](**decode(given))
        return None


def pick(nodes: list[Node], index: Any) -> Node:
    """A node by its index, checked."""
    if type(index) is not int or not 0 <= index < len(nodes):
        raise CheckpointError(f"node {index!r:.40} does not come before the one that uses it")
    return nodes[index]


def settle(graph: Graph, blueprint: dict[str, Any]) -> None:
    """Share, remove and set the graph's arrays as the blueprint says."""
    arrays, ties, absent = blueprint["arrays"], blueprint["ties"], blueprint["absent"]
    if absent or ties or arrays:
        holders = holdersOf(graph)
        for path in absent:
            holder, name = holderOf(holders, path)
            vars(holder)[name] = None
        for path, given in arrays.items():
            setUp(holders, path, given)
        for path, owner in ties.items():
            if owner not in arrays:
                raise CheckpointError(f"{path!r:.80} is tied to {owner!r:.80}, which is no array of the graph")
            (holder, name), (other, key) = holderOf(holders, path), holderOf(holders, owner)
            vars(holder)[name] = vars(other)[key]
    found = {**graph.params, **graph.states}
    if set(found) != set(arrays) or graph.ties != ties:
        odd = sorted(set(found) ^ set(arrays) | set(graph.ties) ^ set(ties))
        raise CheckpointError(
            "the classes make other arrays than those that were stored: "
            f"{', '.join(map(quote, odd[:10])) or 'their ties differ'}"
            f"{f' and {len(odd) - 10} more' if len(odd) > 10 else ''}; was a class changed since?"
        )


def holdersOf(graph: Graph) -> dict[str, Module]:
    """The modules of a graph by path, those that a module such as a Checkpoint holds too."""
    return {path: module for step in graph.steps().items for path, module in leavesIn(step.module, step.path)}


def holderOf(holders: dict[str, Module], path: Any) -> tuple[Module, str]:
    """The module that holds the array of a path, and its attribute there."""
    if isinstance(path, str):
        head, _, name = path.rpartition(".")
        steps: list[str] = []
        while head and head not in holders:  # a module may keep its arrays in modules of its own
            head, _, inner = head.rpartition(".")
            steps.insert(0, inner)
        holder: Any = holders.get(head)
        for inner in steps:
            holder = vars(holder).get(inner) if isinstance(holder, Module) else None
        cls = type(holder)
        if isinstance(holder, Module) and name.isidentifier() and not callable(getattr(cls, name, None)):
            return holder, name
    raise CheckpointError(f"no module of the graph holds {path!r:.80}")


def setUp(holders: dict[str, Module], path: str, given: dict[str, Any]) -> None:
    """Declare one array as it was: a new one only where the constructor makes another shape or none."""
    holder, name = holderOf(holders, path)
    if given["dtype"] not in DTYPES:
        raise CheckpointError(f"'{path:.80}' cannot be {given['dtype']!r:.40}; known are {', '.join(DTYPES)}")
    kind, shape = KINDS[given["kind"]], shapeOf(given["shape"], path)
    stored = vars(holder).get(name)
    if type(stored) is not kind or tuple(stored.shape) != shape:
        stored = vars(holder)[name] = kind(shape)
    Stored.calcMode(stored, dtypeNamed(given["dtype"]))
    if isinstance(stored, Param):
        stored.trainable = given.get("trainable", True) is True
        stored.rate = rateOf(decode(given.get("rate", 1.0)), path)
        stored.decay = given.get("decay", True) is True


def rateOf(value: Any, path: str) -> float:
    """The factor of a parameter's learning rate, checked."""
    if type(value) in (int, float) and abs(value) < 1e300:
        return float(value)
    raise CheckpointError(f"'{path:.80}' cannot have the rate {value!r:.40}")


def shapeOf(value: Any, path: str) -> tuple[int, ...]:
    """The sizes of an array, checked."""
    if isinstance(value, list) and all(type(n) is int and n >= 0 for n in value) and math.prod(value) < 1 << 60:
        return tuple(value)
    raise CheckpointError(f"'{path:.80}' cannot have the shape {show(value)!s:.80}")
