"""Difference: compare the nodes, shapes, dtypes and weights of two models."""

from __future__ import annotations

import inspect
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from puregraph.core import device
from puregraph.core.base.dtype import dtypeName
from puregraph.core.errors import PuregraphError, plural, printable, show
from puregraph.graph.graph import Graph
from puregraph.graph.steps import inputNames

if TYPE_CHECKING:
    from collections.abc import Sequence

    from puregraph.graph.module import Module

CHUNK_ELEMENTS = 1 << 20  # elements compared at a time
Readers = Mapping[int, Callable[[], Any]]  # by id of a Param or State, a function that reads its values
NOREADERS: Readers = MappingProxyType({})


class ComparedArray(NamedTuple):
    """A parameter, a state or an array of a file; shared arrays have the same `key`."""

    shape: tuple[Any, ...]
    dtype: str
    read: Callable[[], Any]
    key: Any = None

    @property
    def text(self) -> str:
        return f"{show(self.shape)} {self.dtype}"


class ComparedNode(NamedTuple):
    """A node of a model, or an array of a file of weights.

    `facts`    texts by name: its module, the shapes and dtypes of its outputs
    `reads`    the names of the values that it reads, by argument
    `outputs`  the names of its outputs
    """

    path: str
    kind: str
    facts: dict[str, str]
    arrays: dict[str, ComparedArray]
    reads: tuple[tuple[str, str], ...] = ()
    outputs: tuple[str, ...] = ()


class ArrayChange(NamedTuple):
    """An array that differs: its shape and dtype in both models; None if it is missing in one.

    `largest`  the largest absolute difference; None if shapes differ, infinite if only one of two values is finite
    """

    name: str
    first: str | None
    second: str | None
    largest: float | None

    @property
    def text(self) -> str:
        if self.first is None or self.second is None:
            return f"{self.name}: {self.first or 'none'} -> {self.second or 'none'}"
        shapes = self.first if self.first == self.second else f"{self.first} -> {self.second}"
        return f"{self.name}: {shapes}" + (
            "" if self.largest is None else f", values differ by up to {self.largest:.3g}"
        )


class NodeChange(NamedTuple):
    """A node that differs: its paths in both models, (what, first, second) of each fact, and its arrays."""

    first: str
    second: str
    facts: list[tuple[str, str, str]]
    arrays: list[ArrayChange]

    @property
    def lines(self) -> list[str]:
        """The differences as lines of text."""
        moved = [] if self.first == self.second else [f"name: {self.first} -> {self.second}"]
        facts = [f"{what}: {first or 'none'} -> {second or 'none'}" for what, first, second in self.facts]
        return [*moved, *facts, *(array.text for array in self.arrays)]


class ModelDifference(NamedTuple):
    """The differences of two models: changed nodes, and nodes of one model alone.

    `equal`  the number of equal nodes; `differ`: True if anything differs
    """

    changed: list[NodeChange]
    onlyFirst: list[ComparedNode]
    onlySecond: list[ComparedNode]
    equal: int

    @property
    def differ(self) -> bool:
        return bool(self.changed or self.onlyFirst or self.onlySecond)

    def text(self, first: str, second: str) -> str:
        """Return a line for each node that differs, and a summary; `first` and `second` name the models."""
        lines = []
        for sign, nodes, name in (("-", self.onlyFirst, first), ("+", self.onlySecond, second)):
            lines += [f"{sign} {node.path} ({node.kind}): only in {name}" for node in nodes]
        for change in self.changed:
            lines += [f"~ {change.first}", *(f"    {line}" for line in change.lines)]
        counts = [f"{plural(self.equal, 'node')} equal", f"{len(self.changed)} changed"]
        counts += [f"{len(self.onlyFirst)} only in {first}", f"{len(self.onlySecond)} only in {second}"]
        return "\n".join(printable(line) for line in [*lines, ", ".join(counts)])

    def json(self) -> dict[str, object]:
        """The differences as plain data."""
        changed = [
            {
                "first": change.first,
                "second": change.second,
                "facts": [dict(zip(("what", "first", "second"), fact)) for fact in change.facts],
                "arrays": [
                    {**array._asdict(), "largest": None if array.largest == np.inf else array.largest}
                    for array in change.arrays
                ],
            }
            for change in self.changed
        ]
        only = [
            [{"path": node.path, "kind": node.kind, **node.facts} for node in nodes]
            for nodes in (self.onlyFirst, self.onlySecond)
        ]
        return {"equal": self.equal, "changed": changed, "onlyFirst": only[0], "onlySecond": only[1]}


def difference(first: Iterable[ComparedNode], second: Iterable[ComparedNode]) -> ModelDifference:
    """Compare two models: nodes are matched by path, others in order with one of the same kind and shapes."""
    rows, left, right = matched(list(first), list(second))
    values = {a: b for one, other in rows for a, b in zip(one.outputs, other.outputs)}
    sizes: dict[Any, float | None] = {}
    changed = [
        NodeChange(one.path, other.path, factsOf(one, other, values), arraysOf(one, other, sizes))
        for one, other in rows
    ]
    changed = [change for change in changed if change.lines]
    return ModelDifference(changed, left, right, len(rows) - len(changed))


def matched(
    first: list[ComparedNode], second: list[ComparedNode]
) -> tuple[list[tuple[ComparedNode, ComparedNode]], list[ComparedNode], list[ComparedNode]]:
    """Return the matched pairs of nodes, in the order of the first model, and the unmatched nodes of each."""
    byPath = {node.path: node for node in second}
    partners = {node.path: byPath.pop(node.path) for node in first if node.path in byPath}
    alike: dict[Any, deque[ComparedNode]] = defaultdict(deque)
    for node in second:
        if node.path in byPath:
            alike[likeness(node)].append(node)
    for node in first:
        if node.path not in partners and alike[likeness(node)]:
            partners[node.path] = alike[likeness(node)].popleft()
            del byPath[partners[node.path].path]
    pairs = [(node, partners[node.path]) for node in first if node.path in partners]
    return pairs, [node for node in first if node.path not in partners], list(byPath.values())


def likeness(node: ComparedNode) -> Any:
    """The key under which nodes of different names are matched."""
    if node.kind == "Input":
        return node.kind
    return node.kind, node.facts.get("shape"), tuple((name, array.shape) for name, array in node.arrays.items())


def factsOf(one: ComparedNode, other: ComparedNode, values: dict[str, str]) -> list[tuple[str, str, str]]:
    """The facts and the sources that differ."""
    rows = [(name, one.facts[name], other.facts[name]) for name in one.facts if name in other.facts]
    if [(name, values.get(value, value)) for name, value in one.reads] != list(other.reads):
        before, after = (", ".join(value for _, value in node.reads) for node in (one, other))
        rows.append(("reads", before, after))
    return [row for row in rows if row[1] != row[2]]


def arraysOf(one: ComparedNode, other: ComparedNode, sizes: dict[Any, float | None]) -> list[ArrayChange]:
    """The arrays that differ. `sizes` has the differences of shared arrays, which are read once."""
    changes = []
    for name in dict.fromkeys((*one.arrays, *other.arrays)):
        a, b = one.arrays.get(name), other.arrays.get(name)
        largest = None
        if a is not None and b is not None and a.shape == b.shape:
            key = None if a.key is None or b.key is None else (a.key, b.key)
            if key not in sizes or key is None:
                sizes[key] = distance(a.read(), b.read())
            largest = sizes[key]
            if largest is None and a.dtype == b.dtype:
                continue
        changes.append(ArrayChange(name, a and a.text, b and b.text, largest))
    return changes


def distance(a: Any, b: Any) -> float | None:
    """Return the largest absolute difference; None for equal bits, infinite if only one of two values is finite."""
    a, b = (np.ascontiguousarray(device.toHost(x)).reshape(-1) for x in (a, b))
    if a.dtype == b.dtype and np.array_equal(a.view(np.uint8), b.view(np.uint8)):
        return None
    largest = 0.0
    for start in range(0, a.size, CHUNK_ELEMENTS):
        x, y = (v[start : start + CHUNK_ELEMENTS].astype(np.float64) for v in (a, b))
        with np.errstate(invalid="ignore"):
            gaps = np.where((x == y) | (x != x) & (y != y), 0.0, np.abs(x - y))
        largest = max(largest, float(np.nan_to_num(gaps, nan=np.inf, posinf=np.inf).max(initial=0.0)))
    return largest if largest or a.dtype == b.dtype else None


def graphDifference(
    first: Graph, second: Graph, readers: tuple[Readers, Readers] = (NOREADERS, NOREADERS)
) -> ModelDifference:
    """Compare two graphs. `readers` read arrays of each that are elsewhere than in the graph, by id of the declaration.

    Shapes follow from all else, so they are inferred only if nodes, sources or inputs differ.
    """
    graphs = (first, second)
    compared = difference(*[comparedNodes(graph, readers=reading) for graph, reading in zip(graphs, readers)])
    isAlike = not compared.onlyFirst and not compared.onlySecond
    if isAlike and not any(change.facts or change.first != change.second for change in compared.changed):
        return compared
    known = [declaredShapes(graph) for graph in graphs]
    if len(first.inputs) == len(second.inputs):
        known = [known[0] or known[1], known[1] or known[0]]
    if not all(known):
        return compared
    return difference(*map(comparedNodes, graphs, known, readers))


def declaredShapes(graph: Graph) -> list[Any]:
    """The shapes that all inputs of a graph declare; none if one declares none."""
    shapes = [getattr(node.module, "shape", None) if node.module.views else None for node in graph.inputs]
    return [] if None in shapes else shapes


def comparedNodes(
    graph: Graph, shapes: Sequence[object] | None = None, readers: Readers = NOREADERS
) -> list[ComparedNode]:
    """The nodes of a graph, its inputs and outputs, with shapes and dtypes of outputs at the shapes of its inputs."""
    rows = inferredRows(graph, shapes) if shapes else {}
    steps = graph.steps()
    nodes = []
    texts: dict[Any, str] = {}
    for i, number in enumerate(steps.inputs):
        declared = graph.inputs[i].module if len(steps.inputs) == len(graph.inputs) else None
        shape = getattr(declared, "shape", None) if declared is not None and declared.views else None
        facts = {} if shape is None else {"shape": show(shape)}
        nodes.append(ComparedNode(f"input {i}", "Input", facts, {}, (), (steps.names[number],)))
    for step in steps.items:
        module = step.module
        facts = {"module": settings(module, texts), **rows.get(step.path, {})}
        stored = {**module.params, **module.states}
        arrays = {name: comparedArray(value, readers) for name, value in stored.items()}
        names = inputNames(module, step.inputs)
        sources = tuple([(name, steps.names.get(n, "")) for n, name in zip(step.args, names)])
        outputs = tuple([steps.names[n] for n in step.visible])
        nodes.append(ComparedNode(step.path, step.label, facts, arrays, sources, outputs))
    reads = tuple([(str(i), steps.names.get(n, "")) for i, n in enumerate(steps.outputs)])
    return [*nodes, ComparedNode("outputs of the graph", "outputs", {}, {}, reads)]


def settings(module: Module, texts: dict[Any, str]) -> str:
    """A module's class and arguments, with defaults and without its name. `texts` has those of modules before it."""
    kind: Any = type(module)
    args, kwargs = module.initArgs[0], {name: v for name, v in module.initArgs[1].items() if name != "name"}
    key = kind, repr(args), repr(kwargs)
    if key not in texts:
        try:
            bound = signatureOf(kind).bind(*args, **kwargs)
            bound.apply_defaults()
            values = [f"{name}={value!r}" for name, value in bound.arguments.items() if name != "name"]
            texts[key] = f"{kind.__name__}({', '.join(values)})"
        except (TypeError, ValueError):  # a class without a signature
            texts[key] = f"{kind.__name__}{key[1]}"
    return texts[key]


@cache
def signatureOf(kind: type) -> inspect.Signature:
    """The signature of a class; computed once."""
    return inspect.signature(kind)


def comparedArray(stored: Any, readers: Readers = NOREADERS) -> ComparedArray:
    """A parameter or state of a module."""
    key = id(stored)
    return ComparedArray(tuple(stored.shape), dtypeName(stored.dtype), readers.get(key, stored.values), key)


def comparedWeights(arrays: dict[str, ComparedArray]) -> list[ComparedNode]:
    """The arrays of a file of weights, or of a graph, by path."""
    return [ComparedNode(path, "array", {}, {"values": array}) for path, array in arrays.items()]


def weightsOf(graph: Graph) -> dict[str, ComparedArray]:
    """The parameters and states of a graph, by path."""
    return {path: comparedArray(value) for path, value in {**graph.params, **graph.states}.items()}


def inferredRows(graph: Graph, shapes: Sequence[object]) -> dict[str, dict[str, str]]:
    """The shapes and dtypes of the outputs of each node; none if the inputs do not fit."""
    try:
        rows = graph.infer(*shapes).rows
    except PuregraphError:
        return {}
    return {
        row.step.path: {
            "shape": ", ".join(map(show, row.shapes)),
            "dtype": ", ".join("" if dtype is None else str(dtype) for dtype in row.dtypes),
        }
        for row in rows
        if row.shapes is not None
    }
