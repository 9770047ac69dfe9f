"""Reader: an ONNX model becomes a Graph."""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

from puregraph.core.arguments import Argument, Flag, Size, takes
from puregraph.core.base.budget import Budget, BudgetError
from puregraph.core.base.uncollected import uncollected
from puregraph.core.errors import (
    CheckpointError,
    GraphError,
    GraphWarning,
    PuregraphError,
    ShapeError,
    plural,
    printable,
    quote,
)
from puregraph.core.errors.userwarning import warnUser
from puregraph.core.rules import REGISTRY
from puregraph.graph import Graph
from puregraph.graph.input import Input
from puregraph.graph.module import Module
from puregraph.onnx import opregistry
from puregraph.onnx.exporternotes import ExporterNotes, MergedWeights, share
from puregraph.onnx.functionbody import bodyOf, isWrittenOut, localFunctions
from puregraph.onnx.graphbuilder import GraphBuilder
from puregraph.onnx.modelfile import NUMERIC, ModelFile, dtypeOf, notNumeric
from puregraph.onnx.modelinputs import chosenShape, declaredShape, known, opsetsOf
from puregraph.onnx.nodeattributes import attributeOf, checkAttributes, checkRequired, required, typed
from puregraph.onnx.oldopsets import OLDEST_OPSET, renewed
from puregraph.onnx.onnxnode import OnnxNode
from puregraph.onnx.onnxsequence import OnnxSequence, flattened
from puregraph.onnx.onnxvalue import OnnxValue
from puregraph.onnx.patterns.origin import Origin
from puregraph.onnx.patterns.patternregistry import loadPatterns, patternsFor, recognized
from puregraph.onnx.protowalk import Names, graphsOf, needed, usesOf
from puregraph.onnx.shapes.operandshapes import settleOperand
from puregraph.onnx.subgraphreader import DEEPEST, SubgraphReader

Outputs = list[OnnxValue | None]
LISTED = 20  # maximum number of nodes that an error lists
CONTROL = {"If", "Loop", "Scan", "SequenceMap"}  # operators with graphs in their attributes


class ReadFault(NamedTuple):
    """A fault of a node, and whether it is a misfit: shapes that the node does not accept."""

    text: str
    isMisfit: bool


class NameScope(NamedTuple):
    """The names of one graph of the file: their values, the path prefix of its nodes, and opset versions."""

    values: dict[str, OnnxValue | None]
    path: str
    opsets: dict[str, int]
    depth: int = 0


ByName = Argument("a dict by the names of the model's inputs", lambda value: isinstance(value, dict))


@takes(shapes=ByName | None, trainable=Flag, values=ByName | None, patterns=Flag, mostRuns=Size | None)
def fromOnnx(
    model: Any,
    shapes: dict[str, Any] | None = None,
    trainable: bool = True,
    values: dict[str, Any] | None = None,
    patterns: bool = True,
    mostRuns: int | None = None,
) -> Graph:
    """The Graph of an ONNX model: ordinary modules, named as in the file.

    The graph is in evalMode: a Trainer trains it as it is; your own loop must call `graph.trainMode()` first.

    `model`     a path, or a ModelProto
    `shapes`    of inputs by name, replacing the declared ones: sizes, symbols such as "N", or expressions
                such as 32 * Dim("H"), if sizes have to be multiples; a list of shapes for a sequence
    `trainable` whether float initializers become trained parameters
    `values`    of inputs by name, which become constants: {"sr": 16000} selects the branch for that rate; None for
                an absent optional input
    `patterns`  whether modules that an exporter split into small operators, such as LayerNorm, are merged again
    `mostRuns`  limit of a Loop's runs in one pass, including inner loops; None: 65,536

    Raises    CheckpointError for a file that cannot be decoded, or asks for more than its size allows;
              GraphError listing every node whose operator is not known, or whose inputs do not fit
    """
    with uncollected():
        return ModelReader(ModelFile(model), trainable, patterns, mostRuns).read(shapes or {}, values)


class ModelReader:
    """Reads the nodes of a model in order; records faults instead of stopping."""

    def __init__(self, file: ModelFile, trainable: bool = True, patterns: bool = True, mostRuns: int | None = None):
        self.patterns, self.mostRuns = patterns, mostRuns
        self.kinds: set[str] = set()
        self.known: Any = {}
        self.file, self.model = file, file.proto
        self.budget = Budget(file.size(), file.label)
        self.builder = GraphBuilder(self.budget, trainable)
        loadPatterns()
        self.names: Names = {}
        self.functions = localFunctions(self.model)
        self.unknown: dict[str, list[str]] = {}
        self.looked: set[tuple[str, str, str]] = set()
        self.faults: list[ReadFault] = []
        self.subgraphs = SubgraphReader(self)

    @property
    def failures(self) -> int:
        """The number of nodes that could not be read so far."""
        return len(self.faults) + sum(map(len, self.unknown.values()))

    def read(self, shapes: dict[str, Any], values: dict[str, Any] | None = None) -> Graph:
        """The whole model as a graph."""
        graph = self.model.graph
        opsets = opsetsOf(self.model)
        scope = NameScope({}, "", opsets)
        values = values or {}
        for what, entries in (("shapes", shapes), ("values", values)):
            wrong = set(entries) - {info.name for info in graph.input}
            if wrong:
                names = ", ".join(info.name for info in graph.input)
                raise GraphError(f"{what}: there is no input {', '.join(map(quote, wrong))}; the inputs are {names}")
        self.notes = ExporterNotes(self.model)
        self.merged = MergedWeights(self.notes)
        self.uses = usesOf([node for node in graph.node if not self.notes.isCopy(node)], self.names, self.notes.aliases)
        for tensor in graph.initializer:
            self.initialize(scope, tensor)
        if graph.sparse_initializer:
            raise CheckpointError("sparse initializers cannot be read")
        scope.values.update({info.name: known(info, values[info.name]) for info in graph.input if info.name in values})
        left = [info for info in graph.input if info.name not in scope.values]
        inputs = [node for info in left for node in self.inputs(scope, info, shapes)]
        self.nodes(scope, graph.node, [info.name for info in graph.output])
        outputs = [self.output(scope, info.name) for info in graph.output]
        self.report()
        outputValues = flattened([value for value in outputs if value is not None])
        made = self.builder.graph(inputs, outputValues, quoted(graph.name))
        if graph.doc_string or self.model.doc_string:
            made.__doc__ = printable(graph.doc_string or self.model.doc_string)
        return made.evalMode()

    def initialize(self, scope: NameScope, tensor: Any) -> None:
        """A weight of the model."""
        array = self.file.array(tensor)
        isWeight = not self.notes.isConstant(tensor.name, array)
        scope.values[tensor.name] = self.merged.weight(tensor.name, array, isWeight, self.uses)

    def inputs(self, scope: Any, info: Any, shapes: dict[str, Any]) -> list[Any]:
        """The nodes of a model input: several for a sequence, with a list of shapes in `shapes`.

        Raises    GraphError for a sequence of unknown length, or an optional that may be present or absent
        """
        kind = info.type.WhichOneof("value")
        if kind == "optional_type":
            if info.name not in shapes:
                hint = (
                    f'its shape, shapes={{"{info.name}": shape}}, or that there is none, values={{"{info.name}": None}}'
                )
                raise GraphError(
                    f"it is not known ahead of time whether input {quote(info.name)} is present: give {hint}"
                )
            element = type(info)(name=info.name)
            element.type.CopyFrom(info.type.optional_type.elem_type)
            return self.inputs(scope, element, shapes)
        if kind != "sequence_type":
            return [self.input(scope, info, shapes)]
        if not isinstance(shapes.get(info.name), list):
            hint = f'give shapes={{"{info.name}": [shape of each]}}'
            raise GraphError(f"input {quote(info.name)}: the length of the sequence is not known: {hint}")
        nodes, values = [], []
        for i, shape in enumerate(shapes[info.name]):
            item = type(info)(name=f"{info.name}_{i}")
            item.type.CopyFrom(info.type.sequence_type.elem_type)
            nodes.append(self.input(scope, item, {item.name: shape}))
            values.append(scope.values.pop(item.name))
        scope.values[info.name] = OnnxSequence(values)
        return nodes

    def input(self, scope: NameScope, info: Any, shapes: dict[str, Any]) -> Any:
        """The node of an input of the model."""
        kind = info.type.WhichOneof("value")
        element = info.type.tensor_type.elem_type
        if kind != "tensor_type":
            raise GraphError(f"input {quote(info.name)}: wanted an array of floats, integers or booleans, got {kind}")
        if element not in NUMERIC:
            raise GraphError(f"input {quote(info.name)}: {notNumeric(element)}")
        shape = chosenShape(info, shapes[info.name]) if info.name in shapes else declaredShape(info)
        name = self.builder.fresh(info.name)
        node = Input(shape, dtypeOf(element), name=name).node()
        scope.values[info.name] = OnnxValue(info.name, shape, dtypeOf(element), edge=(node, 0))
        return node

    def output(self, scope: NameScope, name: str) -> OnnxValue | None:
        """The value of an output's name."""
        if name not in scope.values:
            raise GraphError(f"output {quote(name)}: no node computes it")
        return scope.values[name]

    # Nodes ------------------------------------------------------------------------------------------------------------

    def nodes(self, scope: NameScope, protos: Any, outputs: list[str]) -> None:
        """Read the nodes that lead to the outputs, in their order."""
        chosen = needed(protos, outputs, self.names)
        if self.patterns and not self.kinds.issuperset(kinds := {proto.op_type for proto in chosen}):
            self.kinds |= kinds
            self.known = patternsFor(self.kinds)
        readers = usesOf(chosen, known=self.names)
        for name in outputs:
            readers.setdefault(name, []).append(None)
        makers = Counter(name for proto in protos for name in proto.output if name)
        twice = [name for name, count in makers.items() if count > 1]
        if twice:
            raise GraphError(
                f"value {quote(twice[0])} is the output of {makers[twice[0]]} nodes; every output needs a unique name"
            )
        values = scope.values
        for proto in chosen:
            names = list(proto.input)
            missing = [name for name in names if name and name not in values]
            if missing:
                why = "a later node computes: sort the nodes" if missing[0] in makers else "no node computes"
                nodeName = quote(proto.name or proto.output[0])
                raise GraphError(f"node {nodeName} ({proto.op_type}) reads {quote(missing[0])}, which {why}")
            lost = any(name and values[name] is None for name in names)
            results = None if lost else self.node(scope, proto)
            if lost:
                self.behind(scope, proto)
            for name, value in zip(proto.output, results or [None] * len(proto.output)):
                if not name:
                    continue
                values[name] = value
                if value is not None:
                    uses = readers.get(name, ())
                    value.readers += len(uses)
                    share(value, uses)
                    value.name = value.name or name

    def node(self, scope: NameScope, proto: Any) -> Outputs | None:
        """The outputs of a node; if it cannot be read, None, and the fault is recorded."""
        path = pathOf(scope, proto)
        domain = "" if proto.domain == "ai.onnx" else proto.domain
        inputs: list[Any] = [scope.values[name] if name else None for name in proto.input]
        while inputs and inputs[-1] is None:
            inputs.pop()
        opset = scope.opsets.get(domain, 0)
        self.budget.spend("nodes")
        self.budget.spend("characters of paths", len(path))
        if self.notes.isCopy(proto) and inputs[0].isWeight:
            return [self.merged.weight(proto.output[0], inputs[0].array, True, self.uses)]
        if proto.op_type == "Identity" and proto.output[0] in self.notes.aliases:
            return [inputs[0]]
        try:
            if not domain and not opset:
                raise GraphError("the model imports no opset of the standard's operators")
            if not domain and proto.op_type in CONTROL:
                return self.subgraphs.read(scope, proto, inputs, path)
            body = self.functions.get((domain, proto.op_type, getattr(proto, "overload", "")))
            read = opregistry.readerOf(domain, proto.op_type, opset if domain else max(opset, OLDEST_OPSET))
            if body is None and read is not None:
                return self.called(scope, proto, read, inputs, path, opset)
            body = body or bodyOf(domain, proto, opset, inputs)
            if body is not None and scope.depth < DEEPEST:
                return self.expanded(scope, proto, body, inputs, path)
        except BudgetError:
            raise
        except (PuregraphError, ValueError, IndexError, KeyError, TypeError, ArithmeticError) as error:
            isMisfit = isinstance(error, ShapeError)
            self.faults.append(ReadFault(f"at {quote(path)} ({proto.op_type:.100}): {error!s:.2000}", isMisfit))
            return None
        self.unknown.setdefault(f"{domain}.{proto.op_type}" if domain else proto.op_type, []).append(path)
        return None

    def behind(self, scope: NameScope, proto: Any) -> None:
        """Record unknown operators of a node, and inside it, if its inputs could not be read."""
        domain = "" if proto.domain == "ai.onnx" else proto.domain
        key, opset = (domain, proto.op_type, getattr(proto, "overload", "")), scope.opsets.get(domain, 0)
        path = pathOf(scope, proto)
        inner, body = [node for graph in graphsOf(proto) for node in graph.node], self.functions.get(key)
        if body is not None and key not in self.looked:
            self.looked.add(key)
            inner += body.nodes
        isRead = body is not None or not domain and proto.op_type in CONTROL
        if not isRead and opregistry.readerOf(*key[:2], opset) is None and not isWrittenOut(*key[:2], opset):
            self.unknown.setdefault(f"{domain}.{proto.op_type}" if domain else proto.op_type, []).append(path)
        for node in inner:
            self.behind(scope._replace(path=f"{path}:"), node)

    def called(self, scope: NameScope, proto: Any, read: Any, inputs: list, path: str, opset: int) -> Outputs:
        """The outputs of a node that is read by a registered function."""
        if not proto.domain:
            checkRequired(required(proto.op_type, opset), inputs)
        attributes = {a.name: attributeOf(self.file, typed(a, proto.op_type, opset)) for a in proto.attribute}
        if not proto.domain or proto.domain == "ai.onnx":
            checkAttributes(proto, opset)
        self.builder.begin(path)
        node = OnnxNode(proto, path, opset, attributes, self.builder)
        if opset < OLDEST_OPSET and proto.domain in ("", "ai.onnx"):
            inputs = renewed(node, inputs)
        if inputs and inputs[0] is not None and not proto.domain:
            settleOperand(proto.op_type, attributes, inputs)
        inputs = self.merged.withCopies(proto, inputs, path, self.builder)
        result = read(node, *inputs)
        outputs = list(result) if isinstance(result, (tuple, list)) else [result]
        if self.known and not proto.domain and len(proto.output) == 1 == len(outputs):
            outputs = [self.recognized(scope, node, inputs, outputs[0])]
        self.builder.end([value for value in outputs if value is not None])
        noteOperator(proto, path, [made.module for made in self.builder.made])
        wanted = [name for name in proto.output[len(outputs) :] if name]
        if wanted or any(name and v is None for name, v in zip(proto.output, outputs)):
            raise GraphError(f"{plural(len(proto.output), 'output')} cannot be read")
        return outputs[: len(proto.output)]

    def recognized(self, scope: NameScope, node: OnnxNode, inputs: list, value: OnnxValue) -> OnnxValue:
        """The output of a node, replaced by one module if the node completes a pattern."""
        isNew = value.array is None and value.origin is None and not value.readers
        if not isNew or value.dtype is None or any(v is value for v in inputs):
            return value
        origin = Origin(node.type, inputs, node.attributes, node.version, scope.values)
        value.origin = origin
        if value.dtype.kind not in "fiuV":
            return value
        replacement = recognized(node, value, self.known)
        if replacement is None:
            return value
        replacement.origin = origin
        return replacement

    def expanded(self, scope: NameScope, proto: Any, body: Any, inputs: list, path: str) -> Outputs | None:
        """The outputs of a function call: its nodes, with the caller's attributes."""
        values = {name: inputs[i] if i < len(inputs) else None for i, name in enumerate(body.inputs)}
        absent = {name for name, value in values.items() if value is None}
        inner = NameScope(dict(values), f"{path}:", {**scope.opsets, **body.opsets}, scope.depth + 1)
        faults = self.failures
        wanted = [inside for inside, outside in zip(body.outputs, proto.output) if outside]
        self.budget.spend("bytes of structure", body.size)
        self.nodes(inner, body.nodesFor(proto, absent), wanted)
        if self.failures != faults:
            return None
        return [inner.values[name] if name in wanted else None for name in body.outputs[: len(proto.output)]]

    def report(self) -> None:
        """Raise GraphError listing all nodes that could not be read, if any."""
        lines = []
        if self.unknown:
            count = sum(map(len, self.unknown.values()))
            lines.append(f"{plural(count, 'node')} with unknown operators:")
            lines += [f"  {name:.100}: {few(paths)}" for name, paths in sorted(self.unknown.items())]
            lines.append('write a function for each: @onnxOp("Name") of puregraph.onnx registers it')
            if any(name.startswith(f"{opregistry.MICROSOFT}.") for name in self.unknown):
                names = ", ".join(opregistry.NOTREAD)
                lines.append(
                    f"of onnxruntime's own operators these are not supported: {names}; nor are layouts of one machine, "
                    "com.microsoft.nchwc: save the model with ORT_ENABLE_EXTENDED"
                )
        if self.faults:
            lines.append(f"{plural(len(self.faults), 'node')} cannot be read:")
            lines += [f"  {fault.text}" for fault in self.faults[:LISTED]]
            lines += [f"  and {len(self.faults) - LISTED} more"] if len(self.faults) > LISTED else []
        if lines:
            raise GraphError("\n".join(lines))


def pathOf(scope: NameScope, proto: Any) -> str:
    """The path of a node: its name after the names of the nodes that contain it."""
    return f"{scope.path}{proto.name or next(filter(None, proto.output), proto.op_type)}"


def few(paths: list[str]) -> str:
    """The names of some nodes."""
    more = f" and {len(paths) - 5} more" if len(paths) > 5 else ""
    return ", ".join(quote(path) for path in paths[:5]) + more


def noteOperator(proto: Any, path: str, modules: list[Module]) -> None:
    """Set `operator` of the module that a node of the file became, for gradient rules registered for operators.

    If it became several modules and the operator has such a rule, warn that the rule is not used.
    """
    isStandard = proto.domain in ("", "ai.onnx")
    operator = proto.op_type if isStandard else f"{proto.domain}.{proto.op_type}"
    if len(modules) == 1:
        modules[0].operator = operator
    elif modules and any(kind == operator for kind, _ in REGISTRY):
        names = ", ".join(dict.fromkeys(type(module).__name__ for module in modules))
        warnUser(
            f"at {quote(path)} ({operator:.100}): several modules stand for it, so the gradient rule registered for "
            f"{operator:.100} is not used here: register one for {names}",
            GraphWarning,
        )


def quoted(name: str) -> str | None:
    """The name of the file's graph as a valid graph name; None if nothing is left of it."""
    clean = "".join(c if c.isprintable() and c not in "./" else "_" for c in name)
    return clean or None
