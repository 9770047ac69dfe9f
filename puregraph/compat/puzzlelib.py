"""PuzzleLib's files: the HDF5 layout, and the graph that the blueprint describes.

    params/0, 1, ...            arrays, each once
    links/ROOT.PATH.NAME        the number of a variable's array
    attrs/ROOT.PATH.NAME        running statistics
    blueprint                   JSON, if it was requested

Weights are the same numbers in both: Linear W (in, out), Conv W (out, in / groups, *size). Gradients differ in sign,
but files hold none. Biases and statistics of maps lose their axes of size one: (1, C, 1, 1) becomes (C,). PuzzleLib
keeps no counters: the counters of a BatchNorm or Dropout keep their values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from puregraph import modules
from puregraph.core.base.budget import Budget
from puregraph.core.errors import CheckpointError, PuregraphError, quote
from puregraph.core.linkednode import checkName
from puregraph.core.storage.hdf import Array
from puregraph.core.storage.jsoncodec import loads
from puregraph.core.storage.safehdf import Declared, Guarded
from puregraph.graph import Graph
from puregraph.graph.module import Module
from puregraph.graph.node import Node
from puregraph.graph.parallel import Parallel
from puregraph.graph.sequential import Sequential
from puregraph.serialize.blueprintform import checkKeys, checkList, checkRow
from puregraph.serialize.loadreport import ArraySource

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

REMEDY = "make the graph yourself, and load into it with graph.load(path, format='puzzlelib')"
GROUPS = {"params", "links", "attrs", "blueprint"}


class PuzzleFile(ArraySource):
    """The arrays of a file by path, with the interface of `checkpoint`.

    `root`  the name of the network in the file; not needed where all its names begin with the same one
    """

    partial = True  # the file has no counters

    def __init__(self, file: BinaryIO, root: str | None = None):
        self.guarded = Guarded(file)
        top = self.guarded.names()
        strange = [name for name in top if name not in GROUPS and not name.startswith("attrs.")]
        if not {"params", "links"} <= set(top) or strange:
            odd = f"; it holds {', '.join(map(repr, strange[:5]))}" if strange else ""
            raise CheckpointError(f"it is HDF5, but neither a checkpoint of puregraph nor of PuzzleLib{odd}")
        self.hasBlueprint = "blueprint" in top
        self.storedAt: dict[str, str] = {}
        self.kinds: dict[str, str] = {}
        self.ties: dict[str, str] = {}
        self.declared: dict[str, Declared] = {}
        self.collect("links", root)
        if "attrs" in top:
            self.collect("attrs", root)
        self.arrays = {path: Array(path, d.shape, d.dtype.name) for path, d in self.declared.items()}

    def collect(self, group: str, root: str | None) -> None:
        """The arrays of one group, by path in the graph."""
        owners = {location: path for path, location in self.storedAt.items()}
        for key in self.guarded.names(group):
            path = stripped(key, root)
            location = f"params/{self.index(key)}" if group == "links" else f"attrs/{key}"
            if path in self.storedAt:
                raise CheckpointError(f"'{path}' stands twice in it, under several roots; choose one with root=")
            if location in owners:
                self.ties[path] = owners[location]
                continue
            owners[location] = path
            self.storedAt[path], self.declared[path] = location, self.guarded.declared(location)
            self.kinds[path] = "params" if group == "links" else "states"

    def index(self, key: str) -> int:
        declared = self.guarded.declared(f"links/{key}")
        if declared.shape != () or declared.dtype.kind not in "iu":
            raise CheckpointError(f"'links/{key}' is not a whole number")
        return int(self.guarded.read(f"links/{key}", (), declared.dtype))

    def fits(self, path: str, shape: tuple[int, ...], dtype: DTypeLike) -> bool:
        """True if an array can be converted to this shape and dtype without loss."""
        declared = self.declared[path]
        return adapts(declared.shape, tuple(shape)) and np.can_cast(declared.dtype, dtype, "safe")

    def read(self, path: str, shape: tuple[int, ...], dtype: DTypeLike) -> np.ndarray:
        declared = self.declared[path]
        values = self.guarded.read(self.storedAt[path], declared.shape, declared.dtype).reshape(shape)
        return values.astype(dtype, copy=False).view(dtype)  # a plain float32 instead of <f4

    def check(self, paths: Any) -> None:
        """Do nothing: the layout has no checksums."""

    def extra(self) -> None:
        """Return None: PuzzleLib stores no other values."""

    def close(self) -> None:
        self.guarded.close()

    def graph(self) -> Graph:
        """The graph that the blueprint describes.

        Raises    CheckpointError naming a module that puregraph has no counterpart for
        """
        if not self.hasBlueprint:
            raise CheckpointError(f"it holds no blueprint: {REMEDY}")
        try:
            blueprint = loads(self.guarded.text("blueprint"), self.guarded.budget)
        except ValueError as error:
            raise CheckpointError(f"its blueprint is not JSON: {error}") from error
        try:
            graph = build(blueprint, None, SizeCounter(self.guarded.budget))
        except CheckpointError:
            raise
        except Exception as error:
            raise CheckpointError(f"its blueprint cannot be built: {type(error).__name__}: {error!s:.300}") from error
        if not isinstance(graph, Graph):
            graph = Sequential(graph)
        holders = {step.path: step.module for step in graph.steps().items}
        for path, owner in self.ties.items():
            (one, _, name), (other, _, key) = path.rpartition("."), owner.rpartition(".")
            if one not in holders or other not in holders:
                raise CheckpointError(f"'{path}' and '{owner}' are one array, but its blueprint has no such modules")
            vars(holders[one])[name] = vars(holders[other])[key]
        return graph


def stripped(key: str, root: str | None) -> str:
    """Remove the network's name from the front of an array's name.

    Raises    CheckpointError if the name does not begin with `root`
    """
    if root is None:
        return key.partition(".")[2] or key
    if not key.startswith(f"{root}."):
        raise CheckpointError(f"'{key}' does not begin with '{root}.', the root that was asked for")
    return key[len(root) + 1 :]


def adapts(stored: tuple[int, ...], wanted: tuple[int, ...]) -> bool:
    """True if a stored shape is the wanted shape, up to PuzzleLib's extra axes of size one."""
    vector = len(wanted) == 1 and len(stored) > 1 and stored == (1, *wanted, *(1,) * (len(stored) - 2))
    line = len(wanted) == 3 and stored == (*wanted[:2], 1, wanted[2])  # PuzzleLib stores a Conv1D as a flat Conv2D
    return stored == wanted or vector or line


# The blueprint ------------------------------------------------------------------------------------------------------

MAX_DEPTH = 100


class SizeCounter:
    """The unfolded size of every built module, in nodes and path characters, and the budget for both."""

    def __init__(self, budget: Budget):
        self.budget = budget
        self.known: dict[int, tuple[int, int]] = {}

    def count(self, parts: Iterable[tuple[str, Module]]) -> tuple[int, int]:
        """Count the nodes and characters of a container before it is built, from its parts by name."""
        nodes = characters = 0
        for name, part in parts:
            inner, length = self.known.get(id(part), (1, 0))
            nodes, characters = nodes + inner, characters + length + inner * (len(name) + 1)
        self.budget.spend("nodes", nodes)
        self.budget.spend("characters of paths", characters)
        return nodes, characters


def build(blueprint: Any, name: str | None, sizes: SizeCounter, depth: int = 0) -> Module:
    """Convert a module of PuzzleLib to one of puregraph."""
    where = f"its blueprint, {quote(name) if name else 'the network'}"
    checkKeys(blueprint, where, {})
    if blueprint.get("scheme") is not None:
        checkKeys(blueprint, where, {"scheme": dict})
    kind, scheme = blueprint.get("classname"), dict(blueprint.get("scheme") or {})
    ownName = scheme.pop("name", None)
    name = name or ownName
    if depth > MAX_DEPTH:
        raise CheckpointError(f"its blueprint is nested more than {MAX_DEPTH} deep")
    if kind in ("Graph", "Parallel", "Sequential"):
        checkLinks(blueprint, kind, where)
    if kind in ("Sequential", "Parallel"):
        inner = {n: build(b, n, sizes, depth + 1) for n, b in blueprint["modules"].items()}
        items = [inner[n] for n in blueprint["graph"]]
        count = sizes.count((n, inner[n]) for n in blueprint["graph"])
        made: Graph = {"Sequential": Sequential, "Parallel": Parallel}[kind](*items, name=name)
        sizes.known[id(made)] = count
        return made
    if kind == "Graph":
        return buildGraph(blueprint, name, sizes, depth)
    if not isinstance(kind, str) or kind not in MAKERS:
        raise CheckpointError(
            f"'{name}' is a {kind!s:.60} of PuzzleLib, which cannot be rebuilt (known are Graph, Parallel, Sequential, "
            f"{', '.join(sorted(MAKERS))}); {REMEDY}"
        )
    for key in IGNORED & scheme.keys():
        del scheme[key]
    try:
        module = MAKERS[kind](**scheme)
    except (TypeError, ValueError, PuregraphError) as error:
        raise CheckpointError(f"'{name}' ({kind}) cannot be rebuilt from {scheme!r:.200}: {error}") from error
    checkName(name)
    module.name = name
    return module


IGNORED = {"empty", "inplace", "useMask", "showWarnings", "rng", "slicing"}  # no effect on results


def checkLinks(blueprint: dict[str, Any], kind: str, where: str) -> None:
    """Check the links between the modules of a container.

    Raises    CheckpointError naming a name without a module, or a module without parents
    """
    if kind != "Graph":
        checkKeys(blueprint, where, {"modules": dict, "graph": list})
        names = blueprint["graph"]
    else:
        checkKeys(blueprint, where, {"modules": dict, "graph": dict, "inputs": list, "outputs": list})
        checkList(list(blueprint["graph"].values()), f"{where}, its parents", list)
        parents = [parent for parents in blueprint["graph"].values() for parent in parents]
        for parent in parents:
            checkRow(parent, f"{where}, its parent", "[name, slots]", 2)
        names = [*blueprint["graph"], *(name for name, _ in parents), *blueprint["inputs"], *blueprint["outputs"]]
    checkList(names, f"{where}, its names", str)
    for name in names:
        if name not in blueprint["modules"] or kind == "Graph" and name not in blueprint["graph"]:
            raise CheckpointError(f"{where}: it has no module {quote(name)}")


def buildGraph(blueprint: Any, name: str | None, sizes: SizeCounter, depth: int) -> Graph:
    """A graph from its edges, which come in any order."""
    edges = blueprint["graph"]
    inner = {n: build(b, n, sizes, depth + 1) for n, b in blueprint["modules"].items()}
    count = sizes.count((n, inner[n]) for n in edges)
    nodes: dict[str, Node] = {}
    waiting = {n: len(parents) for n, parents in edges.items()}
    readers: dict[str, list[str]] = {n: [] for n in edges}
    for n, parents in edges.items():
        for p, _ in parents:
            readers[p].append(n)
    ready = [n for n, count in waiting.items() if not count]
    for n in ready:  # appended to in the loop
        nodes[n] = Node(inner[n], [(nodes[p], slots) for p, slots in edges[n]])
        for reader in readers[n]:
            waiting[reader] -= 1
            if not waiting[reader]:
                ready.append(reader)
    left = [n for n in edges if n not in nodes]
    if left:
        raise CheckpointError(f"the nodes {', '.join(map(repr, sorted(left)[:5]))} of '{name}' wait for each other")
    made = Graph([nodes[n] for n in blueprint["inputs"]], [nodes[n] for n in blueprint["outputs"]], name=name)
    sizes.known[id(made)] = count
    return made


def activation(activation: str, slc: Any = None, args: Any = ()) -> Module:
    """Make an activation by PuzzleLib's name."""
    if slc is not None or activation not in ACTIVATIONS:
        raise ValueError(f"wanted one of {', '.join(ACTIVATIONS)}, of the whole data, got {activation!r} of {slc!r}")
    return ACTIVATIONS[activation](*args)


def linear(transpose: bool = False, **scheme: Any) -> Module:
    """Make a Linear; PuzzleLib's transposed one has no counterpart."""
    if transpose:
        raise ValueError("a transposed Linear has no counterpart")
    return modules.Linear(**scheme)


def normed(
    epsilon: float = 1e-5,
    initFactor: float = 1.0,
    minFactor: float = 0.1,
    sscale: float = 0.01,
    affine: bool = True,
    **size: int,
) -> Module:
    """Make a BatchNorm. PuzzleLib's non-affine one has scale and bias as well, which it does not train."""
    (maps,) = size.values()
    norm = modules.BatchNorm(maps, epsilon, minFactor)
    for param in norm.params.values():
        param.trainable = bool(affine)
    return norm


def pooled(make: Callable[..., Module]) -> Callable[..., Module]:
    """Return a constructor of pools with size and stride 2 by default."""
    return lambda size=2, stride=2, pad=0, **rest: make(size, stride, pad, **rest)


ACTIVATIONS: dict[str, Callable[..., Module]] = {
    "relu": modules.Relu,
    "leakyRelu": modules.LeakyRelu,
    "elu": modules.Elu,
    "sigmoid": modules.Sigmoid,
    "tanh": modules.Tanh,
    "softPlus": modules.SoftPlus,
    "clip": modules.Clip,
}
MAKERS: dict[str, Callable[..., Module]] = {
    "Activation": activation,
    "Add": modules.Add,
    "AvgPool1D": pooled(modules.AvgPool1D),
    "AvgPool2D": pooled(modules.AvgPool2D),
    "AvgPool3D": pooled(modules.AvgPool3D),
    "BatchNorm": normed,
    "BatchNorm1D": normed,
    "BatchNorm2D": normed,
    "BatchNorm3D": normed,
    "Concat": modules.Concat,
    "Conv1D": modules.Conv1D,
    "Conv2D": modules.Conv2D,
    "Conv3D": modules.Conv3D,
    "Dropout": modules.Dropout,
    "Flatten": modules.Flatten,
    "Gelu": modules.Gelu,
    "Identity": modules.Identity,
    "Linear": linear,
    "MaxPool1D": pooled(modules.MaxPool1D),
    "MaxPool2D": pooled(modules.MaxPool2D),
    "MaxPool3D": pooled(modules.MaxPool3D),
    "Mul": modules.Mul,
    "MulAddConst": modules.MulAddConst,
    "Reshape": modules.Reshape,
    "SoftMax": modules.SoftMax,
    "Split": modules.Split,
}
