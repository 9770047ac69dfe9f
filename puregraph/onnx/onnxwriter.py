"""OnnxWriter: write the steps of a graph as nodes of an ONNX model."""

from __future__ import annotations

import inspect
import re
from collections import Counter
from collections.abc import Callable
from copy import copy
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from puregraph.core.base.dtype import isBfloat16
from puregraph.core.device import toHost
from puregraph.core.dim import Dim
from puregraph.core.errors import GraphError, PuregraphError, misfit, plural
from puregraph.graph.graphholder import GraphHolder, leavesIn
from puregraph.graph.input import Input
from puregraph.modules import Linear
from puregraph.onnx.modelnodes import ordered, renamed
from puregraph.onnx.opregistry import loadWriters
from puregraph.onnx.protowalk import readsOf

WRITERS: dict[type, Callable[..., Any]] = {}


def writesOnnx(*classes: type) -> Callable[[Callable], Callable]:
    """Register the function below it as the writer of modules of these classes and their subclasses.

    It gets an `OnnxStep`: the module, the names of its inputs, their shapes, and `op`, which adds a node.

    >>> from puregraph import Module, Sequential
    >>> from puregraph.onnx import toOnnx
    >>> class Doubled(Module):
    ...     def dataShapeFrom(self, x):
    ...         return x
    ...     def updateData(self, x):
    ...         return x + x
    >>> @writesOnnx(Doubled)
    ... def writeDoubled(step):
    ...     step.op("Add", step.x, step.x, out=step.y)
    >>> [node.op_type for node in toOnnx(Sequential(Doubled(name="twice")), shapes=[("N", 3)]).graph.node]
    ['Add']
    """

    def register(write: Callable) -> Callable:
        WRITERS.update(dict.fromkeys(classes, write))
        return write

    return register


def typesFor(graph: Any, count: int) -> list[Any]:
    """Input dtypes: declared ones first, else those that the rules require."""
    declared = [node.module.dtype if isinstance(node.module, Input) else None for node in graph.inputs]
    asked = graph.inputTypes(count)
    return [ownDtype or other for ownDtype, other in zip(declared, asked)] if len(declared) == count else asked


class End(NamedTuple):
    """An input or output of a graph."""

    name: str
    dtype: Any
    shape: Any

    def info(self) -> Any:
        """The ONNX ValueInfo of the value."""
        from onnx import helper

        dtype = None if self.dtype is None else np.dtype(self.dtype)
        return helper.make_tensor_value_info(self.name, kindOf(dtype), dimsOf(self.shape))


class OnnxStep:
    """One step of a graph while it is written: `inputs` and `outputs` are names of values, None if left out.

    `op("Mul", a, b)` adds a node and returns the name of its output; `out` sets that name.
    """

    def __init__(self, writer: ModelWriter, row: Any, inputs: list[str | None], outputs: list[str], path: str):
        self.writer, self.module, self.path, self.row = writer, row.step.module, path, row
        self.kinds: dict[str, Any] = {}  # dtypes of outputs, if a rule was traced
        self.absent: set[str] = set()  # outputs without a value
        self.inputs, self.outputs, self.shapes, self.dtypes = inputs, outputs, row.inshapes, row.dtypes
        self.outshapes = row.shapes
        self.indtypes = [writer.kinds.get(n) for n in row.step.args[: row.step.inputs]]
        self.opset = writer.opset
        self.count = 0

    def inside(self, writer: ModelWriter) -> OnnxStep:
        """The same step, adding nodes to another writer."""
        other = copy(self)
        other.writer = writer
        return other

    @property
    def x(self) -> str:
        """The first input."""
        return str(self.inputs[0])

    @property
    def y(self) -> str:
        """The first output."""
        return self.outputs[0]

    def op(
        self, kind: str, *inputs: str | None, out: str | list[str] | None = None, name: str = "", **attributes: Any
    ) -> str:
        """Add a node; the name of its first output. The node has the name of the step if it gives the step's output."""
        names = out if isinstance(out, list) else [out if out is not None else self.fresh(kind)]
        name = name or (self.path if self.y in names else names[0])
        self.writer.addNode(kind, list(inputs), names, name, attributes)
        return names[0]

    def fresh(self, kind: str) -> str:
        """A unique name that begins with that of this step."""
        self.count += 1
        return self.writer.unique(f"{self.path}:{kind.lower()}")

    def constant(self, array: Any, dtype: Any = None) -> str:
        """The name of a constant array."""
        return self.writer.constant(np.asarray(array, dtype), self)

    def whole(self, *numbers: int) -> str:
        """The name of a constant vector of integers."""
        return self.constant(np.array(numbers, np.int64))

    def param(self, name: str) -> str | None:
        """The name of a parameter or state of the module; None for one that is left out."""
        stored = getattr(self.module, name)
        return None if stored is None else self.writer.weight(stored, f"{self.path}:{name}")

    def changed(self, name: str, change: Callable[[Any], Any]) -> str | None:
        """The name of a parameter that is stored in another form; None where other steps read it too."""
        stored = getattr(self.module, name)
        isOwn = self.writer.uses[id(stored)] == 1
        return self.writer.weight(stored, f"{self.path}:{name}", change) if isOwn else None

    def inForm(self, name: str, form: str, change: Callable[[Any], Any]) -> str:
        """The name of a parameter in another form, stored in addition to its other forms."""
        return self.writer.weight(getattr(self.module, name), f"{self.path}:{name}", change, form)

    def sizes(self, index: int = 0) -> str:
        """The name of the shape of an input: a constant where it has no symbols."""
        shape = self.shapes[index]
        return self.whole(*shape) if all(map(isWhole, shape)) else self.op("Shape", self.inputs[index])


class ModelWriter:
    """Writes the steps of a graph in their order."""

    def __init__(self, graph: Any, shapes: list[Any], opset: int, dtypes: Any = None):
        loadWriters()
        self.opset = opset
        self.taken: set[str] = set()
        self.weights: dict[tuple[int, str], tuple[str, Any]] = {}
        self.starts: dict[str, list[str]] = {}  # by name of a loop's pass: the stacked inputs of its runs
        self.prepare(graph, shapes, typesFor(graph, len(shapes)) if dtypes is None else [np.dtype(d) for d in dtypes])
        holders = [module for row in self.rows for _, module in leavesIn(row.step.module, "")]
        leaves = [module for module in holders if not isinstance(module, GraphHolder)]
        self.uses = Counter(id(stored) for module in leaves for stored in storedIn(module))
        self.wide = {id(stored) for row in self.rows if not isMatrixLayer(row) for stored in storedIn(row.step.module)}

    def prepare(self, graph: Any, shapes: list[Any], dtypes: list[Any]) -> None:
        """Make the steps of a graph the next ones that `write` writes.

        Raises    ShapeError, DtypeError for shapes and dtypes that do not fit
        """
        inferred = graph.infer(list(shapes), dtypes=dtypes)
        faults = [row.fault for row in inferred.rows if row.fault]
        if faults:
            raise misfit(faults)
        self.graph, self.shapes, self.intypes = graph, shapes, dtypes
        self.rows, self.inferred, self.steps = inferred.rows, inferred, graph.steps(len(shapes))
        self.nodes: list[Any] = []
        self.lost: set[int] = set()
        self.values: dict[int, str | None] = {0: None}
        self.kinds: dict[int, Any] = {}
        self.lengths: dict[Any, str] = {}  # names of symbolic lengths, each an array of one element

    def within(self, graph: Any, names: list[str], shapes: list[Any], dtypes: list[Any]) -> ModelWriter:
        """A writer that has written the steps of a module's inner graph, with these names for its inputs."""
        inside = copy(self)
        inside.prepare(graph, shapes, dtypes)
        for number, known, dtype in zip(inside.steps.inputs, names, dtypes):
            inside.values[number], inside.kinds[number] = known, dtype
        inside.write()
        return inside

    def blank(self) -> ModelWriter:
        """A writer for an inner graph, which may read all values of this one."""
        inside = copy(self)
        inside.nodes, inside.lengths = [], {}
        return inside

    def inner(
        self, graph: Any, names: list[str], shapes: list[Any], dtypes: list[Any], ownCount: int, name: str
    ) -> Any:
        """The graph of an attribute, with `names` for its inputs; the first `ownCount` are declared, others are
        captured."""
        inside = self.within(graph, names, shapes, dtypes)
        outputNames = [str(inside.values[number]) for number in inside.steps.outputs]
        ends = list(map(End, outputNames, inside.inferred.dtypes, inside.inferred.shapes))
        return inside.attribute(list(map(End, names[:ownCount], dtypes, shapes)), ends, name)

    def attribute(self, inputs: list[End], outputs: list[End], name: str) -> Any:
        """The nodes written so far as an inner graph; an Identity makes each output a distinct result of a node."""
        from onnx import helper

        made = {output for node in self.nodes for output in node.output}
        ends: list[End] = []
        for end in outputs:
            if end.name not in made or end.name in {other.name for other in ends}:
                end = end._replace(name=self.unique(f"{end.name}:output"))
                self.addNode("Identity", [outputs[len(ends)].name], [end.name], end.name, {})
            ends.append(end)
        nodes = ordered(self.nodes, [end.name for end in ends])
        return helper.make_graph(nodes, name, [end.info() for end in inputs], [end.info() for end in ends])

    def unique(self, text: str) -> str:
        """A unique name in the model, made from a text."""
        base = re.sub(r"[./]+", "_", text)
        name, count = base, 1
        while name in self.taken:
            count += 1
            name = f"{base}:{count}"
        self.taken.add(name)
        return name

    def model(self) -> Any:
        """The whole model."""
        from onnx import helper, numpy_helper

        inputs = []
        for number, shape, dtype in zip(self.steps.inputs, self.shapes, self.intypes):
            name = self.unique(self.steps.names[number])
            self.values[number], self.kinds[number] = name, dtype
            inputs.append(helper.make_tensor_value_info(name, kindOf(dtype), dimsOf(shape)))
        self.write()
        outputs: list[Any] = []
        for number, shape, dtype in zip(self.steps.outputs, self.inferred.shapes, self.inferred.dtypes):
            name = str(self.values[number] or self.nothing(number))
            if name in {info.name for info in [*inputs, *outputs]}:
                name = self.unique(f"{name}:output")
                self.addNode("Identity", [self.values[number]], [name], name, {})
            kind = kindOf(dtype if dtype is not None else self.kinds.get(number))
            outputs.append(helper.make_tensor_value_info(name, kind, dimsOf(shape)))
        nodes = ordered(self.nodes, [info.name for info in outputs])
        names = renamed(nodes, {name for name, _ in self.weights.values()}, {info.name for info in outputs})
        read = {name for node in nodes for name in readsOf(node)} | {info.name for info in outputs}
        arrays = {names.get(name, name): array for name, array in self.weights.values()}
        stored = [(name, arrays[name]) for name in sorted(arrays) if name in read]
        tensors = [numpy_helper.from_array(np.asarray(array, order="C"), name) for name, array in stored]
        name, text = self.graph.name or "graph", documentationOf(self.graph)
        made = helper.make_graph(nodes, name, inputs, outputs, tensors, doc_string=text)
        domains = [helper.make_opsetid("", self.opset)]
        version = helper.find_min_ir_version_for(domains)
        return helper.make_model(made, opset_imports=domains, producer_name="puregraph", ir_version=version)

    def nothing(self, number: int) -> Any:
        """Refuse an output that no node computes.

        Raises    GraphError naming it
        """
        name = dict(zip(self.steps.outputs, self.graph.outputNames))[number]
        raise GraphError(f"output '{name}' has no value: a rule on the way to it has no gradient for it")

    def write(self) -> None:
        """Write all steps.

        Raises    GraphError listing those whose module cannot be written
        """
        faults = []
        for row in self.rows:
            step = row.step
            path = self.unique(step.path)
            count = len(step.visible)
            names = [path] if count == 1 else [self.unique(f"{step.path}:{name}") for name in step.module.outputNames]
            names += [self.unique(f"{step.path}:{name}") for name in step.module.hidden]
            self.values.update(zip(step.outs, names))
            self.kinds.update(zip(step.visible, row.dtypes))
            write = next((WRITERS[c] for c in type(step.module).__mro__ if c in WRITERS), None)
            inputs = [self.values[number] for number in step.args[: step.inputs]]
            try:
                if write is None:
                    raise GraphError("has no ONNX equivalent: @writesOnnx of puregraph.onnx registers a writer for it")
                if self.lost.isdisjoint(step.args):
                    written = OnnxStep(self, row, inputs, names, path)
                    write(written)
                    self.note(step, written)
                    continue
            except PuregraphError as error:
                faults.append(f"  at '{step.path}' ({step.label}): {error}")
            self.lost.update(step.outs)
        if faults:
            raise GraphError("\n".join([f"{plural(len(faults), 'node')} cannot be written:", *faults]))

    def note(self, step: Any, written: OnnxStep) -> None:
        """Record absent outputs and actual dtypes after a step is written."""
        for number, name in zip(step.outs, written.outputs):
            if name in written.absent:
                self.values[number] = None
            if name in written.kinds:
                self.kinds[number] = written.kinds[name]

    def addNode(self, kind: str, inputs: list[str | None], outputs: list[str], name: str, attributes: dict) -> None:
        """Add a node; attributes that are None are left out.

        Raises    GraphError if the opset has no such operator, or none with these attributes or this number of inputs
        """
        from onnx import helper

        inputNames = [i or "" for i in inputs]
        while inputNames and not inputNames[-1]:
            inputNames.pop()
        while not outputs[-1]:
            outputs.pop()
        kept = {key: value for key, value in attributes.items() if value is not None}
        if not kept.get("domain"):  # with a domain, it is a user's operator
            checkOperator(kind, self.opset, kept, len(inputNames))
        self.nodes.append(helper.make_node(kind, inputNames, outputs, name=name, **kept))

    def constant(self, array: np.ndarray, step: OnnxStep) -> str:
        """Add a node for a constant array; returns its name."""
        from onnx import numpy_helper

        name = step.fresh("constant")
        self.addNode("Constant", [], [name], name, {"value": numpy_helper.from_array(array)})
        return name

    def weight(self, stored: Any, name: str, change: Callable[[Any], Any] | None = None, form: str = "") -> str:
        """The name of the initializer of a stored array; each form of it is stored once."""
        if (id(stored), form) not in self.weights:
            array = toHost(stored.materialize())
            self.weights[id(stored), form] = self.unique(name), array if change is None else change(array)
        return self.weights[id(stored), form][0]

    def alias(self, step: OnnxStep, stored: Any) -> None:
        """Make a stored array itself the output of a step."""
        if (id(stored), "") in self.weights:
            self.addNode("Identity", [self.weights[id(stored), ""][0]], [step.y], step.path, {})
        else:
            self.weights[id(stored), ""] = step.y, toHost(stored.materialize())


@cache
def schemaOf(kind: str, opset: int) -> Any:
    """The standard's schema of an operator in an opset; None if it has none."""
    from onnx import defs

    try:
        return defs.get_schema(kind, opset, "")
    except defs.SchemaError:
        return None


def checkOperator(kind: str, opset: int, attributes: dict[str, Any], count: int) -> None:
    """Check that an opset has an operator, with these attributes and this number of inputs.

    Raises    GraphError if it has not
    """
    schema = schemaOf(kind, opset)
    if schema is None:
        raise GraphError(f"{kind} cannot be written in opset {opset}; a newer one has it")
    lacking = [name for name in attributes if name not in schema.attributes]
    if lacking:
        raise GraphError(f"{kind} of opset {opset} has no {', '.join(lacking)}; that of a newer one may")
    if count > schema.max_input:
        raise GraphError(
            f"{kind} of opset {opset} takes {schema.max_input} inputs, not {count}; that of a newer one may"
        )


def documentationOf(graph: Any) -> str:
    """The docstring of a graph, `graph.__doc__ = "..."`, or of its class if a user wrote it."""
    docstring = vars(graph).get("__doc__")
    isOurs = type(graph).__module__.partition(".")[0] == "puregraph"
    return docstring or ("" if isOurs else inspect.getdoc(type(graph))) or ""


def isMatrixLayer(row: Any) -> bool:
    """True if a step is a Linear layer of a matrix."""
    return isinstance(row.step.module, Linear) and len(row.inshapes[0]) == 2


def storedIn(module: Any) -> list[Any]:
    """The parameters and states of a module, each once."""
    held = [*module.params.values(), *module.states.values(), *module.ruleParams()]
    return list({id(stored): stored for stored in held if stored is not None}.values())


def isWhole(size: Any) -> bool:
    """True if a size is a number, not a symbol."""
    return isinstance(size, int) and not isinstance(size, Dim)


def kindOf(dtype: Any) -> int:
    """ONNX's number of a dtype."""
    from onnx import TensorProto, helper

    if dtype is None:
        raise GraphError("toOnnx: the dtype of an input or output is not known: declare it, as in Input(dtype=...)")
    return TensorProto.BFLOAT16 if isBfloat16(dtype) else helper.np_dtype_to_tensor_dtype(dtype)


def dimsOf(shape: Any) -> list[Any]:
    """Sizes as ONNX has them: numbers, and names for symbols."""
    return [str(size) if isinstance(size, Dim) else size for size in shape]
