"""GraphBuilder: makes the nodes of a graph one by one, with shapes, dtypes and elements inferred ahead of data."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable
from typing import Any

import numpy as np

from puregraph.core.base.budget import Budget
from puregraph.core.dim import Dim
from puregraph.core.errors import GraphError, GraphWarning, PuregraphError, ShapeError, need, quote
from puregraph.core.param import Param, Stored
from puregraph.core.shape import MAX_AXES, FreshSymbols, product, symbols, valueOf, withValues
from puregraph.graph import Graph
from puregraph.graph.graphholder import GraphHolder
from puregraph.graph.module import Module
from puregraph.graph.node import Node
from puregraph.modules import Constant, Weight
from puregraph.modules.gathering import Gather, GatherElements, GatherND
from puregraph.onnx.onnxvalue import OnnxValue
from puregraph.onnx.shapes.partialshapes import partialShapes, targetShape
from puregraph.ops.kernel import useFast

SEPARATORS = re.compile(r"[./]+")
PLAIN = (int, float, bool, str, type(None))
MAX_AHEAD_ELEMENTS = 64  # maximum number of elements of a float value that is computed ahead
MAX_COMPUTED_BYTES = 1 << 16  # bytes of a result that may be computed while reading, even if its inputs are smaller
MAX_COMPUTED_OPERATIONS = 1 << 26  # maximum operations of a module whose result is computed while reading


class GraphBuilder:
    """The nodes of a graph while a file is read.

    `trainable` says whether parameters are trained; `taken` holds the names in use; `made` the nodes since `begin`;
    `main` the node that gets the name of the file's node, if it is not the last; `budget` limits the cost of reading.
    """

    def __init__(self, budget: Budget, trainable: bool = True):
        self.budget, self.trainable = budget, trainable
        self.taken: dict[str, int] = {}
        self.made: list[Node] = []
        self.main: Node | None = None
        self.path = ""
        self.layers: dict[Any, tuple[Module, Any]] = {}
        self.known: dict[Any, list[tuple[Any, Any]]] = {}  # shapes and dtypes of outputs, by `typeKey`

    def begin(self, path: str) -> None:
        """Begin a node of the file: the nodes that are added until `end` belong to it."""
        self.path, self.made, self.main = path, [], None

    def end(self, outputs: Iterable[OnnxValue]) -> None:
        """Name the nodes since `begin`: the one that computes the output like the file's node, others after it."""
        main = self.main
        if main is None:
            main = next((value.edge[0] for value in outputs if value.edge is not None), None)
        first = [main] if main in self.made else []
        for node in [*first, *(node for node in self.made if node is not main)]:
            if node.rename is None:
                node.rename = self.fresh(self.path if node is main else f"{self.path}:{node.label.lower()}")

    def fresh(self, text: str) -> str:
        """A unique node name, made from a name in the file."""
        printable = text if text.isprintable() else "".join(c for c in text if c.isprintable())
        base = SEPARATORS.sub("_", printable.strip("./")) or "node"
        name, count = base, self.taken.get(base, 0)
        while name in self.taken:
            count += 1
            name = f"{base}:{count}"
        self.taken[base] = max(count, 1)
        self.taken.setdefault(name, 1)
        return name

    def add(self, module: Module, values: Iterable[OnnxValue | None], isComputed: bool = True) -> list[OnnxValue]:
        """Add a node of a module that reads these values; returns its outputs. Results of constants alone are computed
        now, unless that may take long."""
        inputs = list(values)
        self.budget.spend("inputs of nodes", len(inputs))
        self.budget.spend("outputs", len(module.outputNames))
        outputs = self.inferred(module, inputs)
        arrays = [None if v is None else v.array for v in inputs]
        isKnown = isComputed and any(a is not None for a in arrays)
        isKnown = isKnown and all(v is None or a is not None and not v.isShared for v, a in zip(inputs, arrays))
        isConstant = isKnown and not module.params and not module.states
        isConstant = isConstant and self.isSmall(outputs, arrays, inputs) and isQuick(module, inputs)
        if isConstant and not readsTwice(module, inputs, arrays):
            self.budget.spend("bytes of arrays", sum(map(sizeOf, outputs)))
            return self.computed(module, inputs, arrays)
        node = Node(module, None, None)
        names, skipped = argumentNames(module, len(inputs)), False
        for name, value in zip(names, inputs):
            skipped = skipped or value is None
            if value is not None:
                node.addBackwards(self.edge(value), name if skipped else None)
        self.made.append(node)
        for slot, value in enumerate(outputs):
            value.edge = (node, slot)
        first = inputs[0] if inputs else None
        if first is not None and (first.array is not None or first.computed is not None or isCount(first)):
            self.follow(module, inputs, outputs)
        return outputs

    def follow(self, module: Module, inputs: list[OnnxValue | None], outputs: list[OnnxValue]) -> None:
        """Compute small float values that depend only on known shapes, such as the root of a size."""
        isOpen = any(v.shape is None or valueOf(v.shape) is not None or symbols(v.shape) for v in outputs)
        if isOpen or module.params or module.states or any(product(v.shape) > MAX_AHEAD_ELEMENTS for v in outputs):
            return
        known = [None if v is None or v.isWeight else v.numbers for v in inputs]
        isKnown = all(v is None or k is not None and k.size <= MAX_AHEAD_ELEMENTS for v, k in zip(inputs, known))
        if isKnown and isQuick(module, inputs):
            for value, made in zip(outputs, self.computed(module, inputs, known)):
                value.computed = made.array

    def isSmall(self, outputs: list[OnnxValue], arrays: list[Any], inputs: list[Any]) -> bool:
        """True if a result takes hardly more memory than its operands, and repeats no element of a weight."""
        most = max(MAX_COMPUTED_BYTES, 2 * sum(a.nbytes for a in arrays if a is not None))
        weights = [v.array.nbytes for v in inputs if v is not None and v.isWeight]
        most = min(most, max(weights)) if weights else most
        sizes = [None if v.shape is None else sizeOf(v) for v in outputs]
        return all(size is not None and not isinstance(size, Dim) and size <= most for size in sizes)

    def computed(self, module: Module, inputs: list[Any], arrays: list[Any]) -> list[OnnxValue]:
        """Compute the outputs for known inputs, as constants; a reordered weight stays a weight."""
        node = Node(module)
        with useFast(False), np.errstate(all="ignore"), warnings.catch_warnings():  # a file must not compile anything
            warnings.simplefilter("ignore", RuntimeWarning)
            node.updateData(arrays if len(arrays) != 1 else arrays[0])
        outputs = node.made if isinstance(node.made, list) else [node.made]
        isWeight = any(v is not None and v.isWeight for v in inputs)
        return [OnnxValue.of(self.path, y, isWeight) for y in outputs]

    def inferred(self, module: Module, inputs: list[OnnxValue | None]) -> list[OnnxValue]:
        """Infer shapes and dtypes of a module's outputs.

        Raises    ShapeError, DtypeError if the inputs do not fit; shapes with symbols are accepted if some size may fit
        """
        key = typeKey(module, inputs)
        rows = None if key is None else self.known.get(key)
        if rows is None:
            rows = self.shapesAndTypes(module, inputs)
            if key is not None and isTypeAlone(rows) and not hasNewSymbols(rows, inputs):
                self.known[key] = rows
        return [OnnxValue(self.path, shape, dtype) for shape, dtype in rows]

    def shapesAndTypes(self, module: Module, inputs: list[OnnxValue | None]) -> list[tuple[Any, Any]]:
        """The shape and dtype of each output of a module, as its rules infer them."""
        count = len(module.outputNames)
        shapes = [None if v is None else v.shape for v in inputs]
        dtypes = [None if v is None else v.dtype for v in inputs]
        isUnknown = any(v is not None and v.shape is None for v in inputs)
        outs = self.shapesFrom(module, shapes, count, isUnknown)
        rank = max((len(shape) for shape in outs if shape is not None), default=0)
        need(rank <= MAX_AXES, f"a result of at most {MAX_AXES} axes", rank)
        kinds = module.dataTypeFrom(*dtypes) if all(v is None or v.dtype is not None for v in inputs) else None
        kinds = kinds if isinstance(kinds, list) else [kinds] * count
        return list(zip(outs, kinds))

    def shapesFrom(self, module: Module, shapes: list[Any], count: int, isUnknown: bool) -> list[Any]:
        """The shapes of the outputs; None for those that cannot be inferred, because sizes are symbols or an input's
        rank is unknown."""
        try:
            result = targetShape(module, shapes) if isUnknown else module.dataShapeFrom(*shapes)
        except ShapeError:
            if not any(isinstance(size, Dim) for shape in shapes if shape is not None for size in shape):
                raise
            result = (
                None if isinstance(module, GraphHolder) else partialShapes(module, shapes)
            )  # a module that runs graphs may choose one by sizes
        if result is None:
            return [None] * count
        outs = result if isinstance(result, list) else [result]
        outs = outs if isUnknown else withValues(module, shapes, outs)
        fresh = FreshSymbols(s for s in shapes if s is not None)
        return fresh.named(self.path or "value", module, outs)

    def edge(self, value: OnnxValue) -> Any:
        """The (node, slot) that computes a value; a constant gets its node when it is first read."""
        if value.edge is None:
            if value.array is None:
                raise GraphError(f"'{value.name}' has no value")
            module: Module = Constant(value.array)
            if value.isWeight:
                module = Weight(value.array.shape, value.array.dtype.name)
                self.fill(module, W=value)
            value.edge = (Node(module, name=self.fresh(value.name)), 0)
        return value.edge

    def fill(self, module: Module, source: tuple = (), **values: OnnxValue) -> Module:
        """Give parameters and states of a module their arrays, and the dtype of those; only weights are trained.

        Nodes of one layer get the same module: it is found by its values, or by the `source` they are computed from.
        """
        source = source or tuple(values.values())
        key = type(module), repr(module.initArgs), *map(id, source)
        if key in self.layers:
            return self.layers[key][0]
        self.layers[key] = module, source  # keeps the objects alive, so that ids stay unique
        for name, value in values.items():
            array = value.array
            stored = getattr(module, name)
            if stored.dtype != array.dtype:
                stored.calcMode(array.dtype)
            stored.data = array
            isTrained = self.trainable and value.isWeight
            if isinstance(stored, Param) and stored.trainable != isTrained:
                stored.trainable = isTrained
        return module

    def tiedMaker(self, value: OnnxValue | None) -> Module | None:
        """The module that computes a value, if its weights are shared with other nodes."""
        maker = None if value is None or value.edge is None else value.edge[0].module
        return next((m for m, source in self.layers.values() if m is maker and any(v.isShared for v in source)), None)

    def graph(self, inputs: list[Node], outputs: list[OnnxValue], name: str | None) -> Graph:
        """The graph of all added nodes, without nodes that lead to no output."""
        edges = [self.edge(value) for value in outputs]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", GraphWarning)
            built = Graph(inputs, edges, name)
        inside = {*built.nodes, *built.inputs}
        for node in inside:
            node.fwds[:] = [link for link in node.fwds if link.node in inside]
        return built


def sizeOf(value: OnnxValue) -> Any:
    """The bytes of a value of known shape."""
    return product(value.shape) * (value.dtype or np.dtype("f8")).itemsize


def typeKey(module: Module, inputs: list[OnnxValue | None]) -> Any:
    """A key for modules whose outputs have equal shapes and dtypes. None for a module with other arguments than numbers
    and texts, or for inputs with known elements, which outputs may have, too."""
    types = [(v.shape, v.dtype) for v in inputs if v is not None and type(v.shape) is tuple]
    args, named = module.initArgs
    if len(types) != len(inputs) or not inputs or not all(map(isPlain, (*args, *named.values()))):
        return None
    stored = [value.dtype for value in vars(module).values() if isinstance(value, Stored)]
    return type(module), repr((args, named)), *stored, *types


def isTypeAlone(rows: list[tuple[Any, Any]]) -> bool:
    """True if no output has known elements, which may come from a state of this module."""
    return all(shape is None or type(shape) is tuple for shape, _ in rows)


def isPlain(argument: Any) -> bool:
    """True if a constructor argument is a number, a text, None, or a tuple of these."""
    return type(argument) in PLAIN or type(argument) is tuple and all(map(isPlain, argument))


def hasNewSymbols(rows: list[tuple[Any, Any]], inputs: list[Any]) -> bool:
    """True if outputs have symbols that no input has: they may be named after the node."""
    sizes = {n for v in inputs for n in v.shape}
    return any(isinstance(n, Dim) and n not in sizes for shape, _ in rows for n in shape or ())


def isQuick(module: Module, inputs: list[Any]) -> bool:
    """True if a result takes few operations: a single number may be the sum of billions of products."""
    return bool(module.flopsFrom(*[None if v is None else v.shape for v in inputs]) <= MAX_COMPUTED_OPERATIONS)


def readsTwice(module: Module, inputs: list[Any], arrays: list[Any]) -> bool:
    """True if an element of a weight is gathered more than once: its copies would be trained separately."""
    if not isinstance(module, (Gather, GatherElements, GatherND)) or not inputs[0].isWeight:
        return False
    numbers = module.updateData(np.arange(arrays[0].size).reshape(arrays[0].shape), *arrays[1:])
    return bool(np.unique(numbers).size < numbers.size)


def isCount(value: OnnxValue) -> bool:
    """True if a value has an integer dtype."""
    return value.dtype is not None and value.dtype.kind in "iu"


def argumentNames(module: Module, count: int) -> list[str | None]:
    """The argument name of each value; None if values are passed by position."""
    names, _, variadic = module.inputSpec
    if variadic:
        return [None] * count
    if count > len(names):
        raise PuregraphError(f"{type(module).__name__} takes {len(names)} inputs, not {count}")
    return list(names[:count])


def dimsFrom(sizes: list[Any], name: str) -> tuple:
    """A shape from the file as numbers, and symbols for named or unknown sizes."""
    dims: list[Any] = []
    need(len(sizes) <= MAX_AXES, f"at most {MAX_AXES} axes of {quote(name)}", len(sizes))
    for axis, size in enumerate(sizes):
        if isinstance(size, Dim) or isinstance(size, int) and size >= 0:
            dims.append(size)
        else:
            isNamed = isinstance(size, str) and re.search(r"[^\W\d]", size) and size != "None"
            text = size if isNamed else f"{name}_{axis}"
            clean = re.sub(r"\W+", "_", text)
            dims.append(Dim(clean if clean[:1].isalpha() else f"n{clean}"))
    return tuple(dims)
