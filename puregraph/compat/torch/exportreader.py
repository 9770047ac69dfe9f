"""Exportreader: a module of torch becomes a Graph (`fromTorch`), by the operations that torch.export finds in it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from puregraph.compat.torch.tensors import asArray
from puregraph.core.arguments import Flag, takes
from puregraph.core.errors import ArgumentError, GraphError, PuregraphError, ShapeError, plural
from puregraph.graph import Graph
from puregraph.graph.input import Input
from puregraph.graph.module import Module
from puregraph.graph.node import Node
from puregraph.modules import Cast, Constant, Dropout, Weight

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import torch

    from puregraph.core.rules import Rule

Operand: TypeAlias = "NodeValue | torch.Tensor | float"  # computed values, and constants
ROWS: dict[str, Callable[..., Any]] = {}  # by name of an ATen operation, the function that makes its nodes
MAX_LISTED_NODES = 20  # most nodes listed in an error


class NodeValue(NamedTuple):
    """An output of a node, with its shape for the example and its dtype."""

    node: Node
    slot: int
    shape: tuple[int, ...]
    dtype: np.dtype

    @property
    def edge(self) -> tuple[Node, int]:
        return self.node, self.slot


def aten(*names: str) -> Callable[[Any], Any]:
    """Register a function that makes the nodes of operations: `row(reader, *arguments, **options)`."""

    def register(row: Rule) -> Rule:
        ROWS.update(dict.fromkeys(names, row))
        return row

    return register


@takes(trainable=Flag)
def fromTorch(module: torch.nn.Module, example: torch.Tensor | Sequence[torch.Tensor], trainable: bool = True) -> Graph:
    """The Graph of a `torch.nn.Module`: ordinary modules with copies of its weights, named by their paths.

    `module`      of torch.nn, torchvision, transformers, or any other that `torch.export.export` can read
    `example`     a tensor, or a tuple of the tensors that it is called with
    `trainable`   whether parameters are trained

    The module is read in its eval mode, and the graph is in evalMode; dropout of `torch.nn.Dropout` is kept, and is
    active in trainMode. A node is named after the torch module that it belongs to, with _ for dots: `layer1_0_conv1`.
    The first axis of inputs may be of any size, unless the module computes with it, as masks do: an example of a single
    sample then often fits any number of samples. All other sizes are those of the example.

    Raises    GraphError listing every operation that cannot be read, with the path of its module; ArgumentError for
              another object than a module

    >>> net = fromTorch(torch.nn.Linear(3, 2), torch.ones(5, 3))    # doctest: +SKIP
    >>> net.dataShapeFrom(("N", 3))                                 # doctest: +SKIP
    ('N', 2)
    """
    import torch

    import_module("puregraph.compat.torch.exportrows")
    if not isinstance(module, torch.nn.Module):
        raise ArgumentError(f"fromTorch: wanted a torch.nn.Module, got {type(module).__name__}")
    example = tuple(example) if isinstance(example, (tuple, list)) else (example,)
    with evaluating(module), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns about its own modules
        try:
            program = torch.export.export(module, example, strict=False).run_decompositions({})
        except Exception as error:
            why = f"{type(error).__name__}: {error}".splitlines()[0]
            raise GraphError(f"fromTorch: torch.export cannot read {type(module).__name__}: {why:.300}") from error
        missing = {node.target for node in operations(program) if rowOf(node) is None}
        known = {op: rule for op, rule in torch._decomp.core_aten_decompositions().items() if op in missing}
        if known:  # operations that torch can decompose
            program = program.run_decompositions(known)
        return ExportReader(module, program, trainable).read()


@contextmanager
def evaluating(module: torch.nn.Module) -> Iterator[None]:
    """Have a module in eval mode, and its fused fast paths off, until the block ends."""
    import torch

    modes = [(part, part.training) for part in module.modules()]
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    module.eval()
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)
        for part, mode in modes:
            part.training = mode


def operations(program: torch.export.ExportedProgram) -> list[Any]:
    """The calls of a program that has been exported."""
    return [node for node in program.graph.nodes if node.op == "call_function"]


def nameOf(node: torch.fx.Node) -> str:
    """The name of an operation, such as `conv2d`."""
    return getattr(node.target, "overloadpacket", node.target).__name__


def rowOf(node: torch.fx.Node) -> Callable[..., Any] | None:
    """The maker of an operation's nodes, by its full name, such as `max.dim`, or by its short one."""
    overload = getattr(node.target, "_overloadname", "")
    return ROWS.get(f"{nameOf(node)}.{overload}") or ROWS.get(nameOf(node))


class ExportReader:
    """Reads the operations of a program in order; records those that it cannot read instead of stopping.

    `values` has the value of each node of torch: a NodeValue, or what is constant: a tensor, a number, a list of these.
    """

    def __init__(self, module: torch.nn.Module, program: torch.export.ExportedProgram, trainable: bool):
        self.module, self.program, self.trainable = module, program, trainable
        self.values: dict[Any, Any] = {}
        self.paths: dict[int, str] = {}  # of parameters and buffers, by identity of the tensor
        self.taken: set[str] = set()
        self.layers: dict[Any, Module] = {}
        self.weights: dict[int, NodeValue] = {}
        self.faults: list[str] = []
        self.path = self.kind = self.operation = ""
        self.result: Any = None

    def read(self) -> Graph:
        """The whole program as a graph."""
        inputs = self.placeholders()
        for node in operations(self.program):
            arguments = [self.valueOf(a) for a in node.args]
            options = {name: self.valueOf(a) for name, a in node.kwargs.items()}
            self.locate(node)
            if isLost([*arguments, *options.values()]):
                self.values[node] = LOST
                if rowOf(node) is None and nameOf(node) != "getitem":
                    self.faults.append(f"at '{self.path}': {nameOf(node)}: it is not known")
                continue
            try:
                self.values[node] = self.apply(node, arguments, options)
            except (PuregraphError, NotImplementedError) as error:
                self.values[node] = LOST
                self.faults.append(f"at '{self.path}': {nameOf(node)}: {error}")
        if self.faults:
            more = [f"  and {len(self.faults) - MAX_LISTED_NODES} more"] if len(self.faults) > MAX_LISTED_NODES else []
            head = f"fromTorch: {plural(len(self.faults), 'operation')} of {type(self.module).__name__} cannot be read:"
            raise GraphError("\n".join([head, *(f"  {fault}" for fault in self.faults[:MAX_LISTED_NODES]), *more]))
        return self.graph(inputs)

    def graph(self, inputs: list[NodeValue]) -> Graph:
        """The graph of the nodes, with a symbol for the first axis of inputs if its rules allow one."""
        (last,) = [node for node in self.program.graph.nodes if node.op == "output"]
        spec = [
            s.arg.name
            for s in self.program.graph_signature.output_specs
            if s.kind.name == "USER_OUTPUT"
            if hasattr(s.arg, "name")
        ]
        ends = [n for n in last.args[0] if getattr(n, "name", None) in spec]
        outputs = [self.asValue(self.values[n]).edge for n in ends]
        if not outputs:
            raise GraphError("fromTorch: the module returns no tensor")
        name = type(self.module).__name__
        made = Graph([value.node for value in inputs], outputs[0] if len(outputs) == 1 else outputs, name=name)
        shapes = [value.shape for value in inputs]
        try:
            made.dataShapeFrom([("N", *shape[1:]) if shape else shape for shape in shapes])
        except ShapeError:
            made.dataShapeFrom(list(shapes))
        return made.evalMode()

    def placeholders(self) -> list[NodeValue]:
        """Note parameters, buffers and constants, and make the nodes of inputs."""
        signature, program, inputs = self.program.graph_signature, self.program, []
        tensors = {**program.constants, **program.state_dict}
        specs = {spec.arg.name: spec for spec in signature.input_specs if hasattr(spec.arg, "name")}
        for node in program.graph.nodes:
            if node.op != "placeholder":
                continue
            spec, value = specs[node.name], node.meta.get("val")
            if spec.kind.name == "USER_INPUT":
                if not hasattr(value, "shape"):
                    self.values[node] = value  # a number, as in the example
                    continue
                dtype = dtypeOf(value)
                entry = Input(dtype=dtype, name=self.fresh(node.name)).node()
                self.values[node] = made = NodeValue(entry, 0, tuple(value.shape), dtype)
                inputs.append(made)
            else:
                tensor = tensors[spec.target]
                self.values[node] = tensor
                self.paths[id(tensor)] = spec.target
        return inputs

    def locate(self, node: torch.fx.Node) -> None:
        """Note the path and class of the torch module that a node belongs to, and what it gives."""
        stack = list((node.meta.get("nn_module_stack") or {}).values())
        self.path, kind = stack[-1] if stack else ("", "")
        self.kind = kind if isinstance(kind, str) else f"{kind.__module__}.{kind.__qualname__}"
        self.operation, self.result = nameOf(node), node.meta.get("val")

    def apply(self, node: torch.fx.Node, arguments: list[Any], options: Mapping[str, object]) -> Any:
        """Return the value of an operation: torch computes it for constants, otherwise its row makes nodes."""
        name = nameOf(node)
        if name == "getitem":
            return arguments[0][arguments[1]]
        if not any(isGraphValue(a, self) for a in (*arguments, *options.values())):
            return node.target(*arguments, **options)
        row = rowOf(node)
        if row is None:
            raise NotImplementedError("it is not known")
        return row(self, *arguments, **options)

    def valueOf(self, argument: Any) -> Any:
        """An argument with values in place of nodes of torch."""
        if isinstance(argument, (list, tuple)):
            return [self.valueOf(a) for a in argument]
        return self.values[argument] if hasattr(argument, "op") and hasattr(argument, "target") else argument

    # Making nodes -----------------------------------------------------------------------------------------------------

    def fresh(self, text: str) -> str:
        """A name that no other node has, from a path."""
        base = text.strip(".").replace(".", "_").replace("/", "_") or type(self.module).__name__
        name, count = base, 1
        while name in self.taken:
            count += 1
            name = f"{base}:{count}"
        self.taken.add(name)
        return name

    def make(
        self, module: Module, *inputs: Any, owner: str | None = None, dtype: torch.dtype | None = None
    ) -> NodeValue:
        """The first output of a new node; its name is its module's path, with the operation where that has others."""
        isLeaf = not any(True for _ in self.submodule(self.path).children())
        name = self.path if isLeaf and self.path else owner or f"{self.path}.{self.operation}"
        values = [None if x is None else self.asValue(x) for x in inputs]
        edges = [None if v is None else v.edge for v in values]
        while edges and edges[-1] is None:
            edges.pop()
        node = Node(module.evalMode(), edges, self.fresh(name))
        shapes = [v.shape for v in values if v is not None]
        dtypes = [v.dtype for v in values if v is not None]
        shape, kind = module.dataShapeFrom(*shapes), module.dataTypeFrom(*dtypes)
        first = shape[0] if isinstance(shape, list) else shape
        kind = kind[0] if isinstance(kind, list) else kind
        return NodeValue(node, 0, tuple(first), np.dtype(dtype or kind or dtypes[0]))

    def several(self, module: Module, *inputs: Any, owner: str | None = None) -> list[NodeValue]:
        """All outputs of a new node."""
        values = [self.asValue(x) for x in inputs]
        first = self.make(module, *inputs, owner=owner)
        shapes, dtypes = (
            module.dataShapeFrom(*[v.shape for v in values]),
            module.dataTypeFrom(*[v.dtype for v in values]),
        )
        dtypes = dtypes if isinstance(dtypes, list) else [dtypes] * len(shapes)
        pairs = enumerate(zip(shapes, dtypes))
        return [NodeValue(first.node, i, tuple(s), np.dtype(d or first.dtype)) for i, (s, d) in pairs]

    def submodule(self, path: str) -> Any:
        """Return the torch module at a path; the root if there is none, as for an indexed list."""
        try:
            return self.module.get_submodule(path)
        except AttributeError:
            return self.module

    def asValue(self, x: Any, like: NodeValue | None = None) -> NodeValue:
        """Return a value of the graph; a parameter becomes a Weight, other tensors and numbers a Constant."""
        if isinstance(x, NodeValue):
            return x
        if not hasattr(x, "detach"):
            array = np.asarray(
                x, None if like is None or isinstance(x, float) and like.dtype.kind != "f" else like.dtype
            )
            array = array.astype(np.float32) if array.dtype == np.float64 and like is None else array
            return self.constant(array, f"{self.path}.constant")
        if id(x) in self.weights:
            return self.weights[id(x)]
        array, path = asArray(x), self.paths.get(id(x))
        if path is not None and x.is_floating_point() and isParameter(x):
            module = Weight(array.shape, array.dtype)
            self.fill(module, W=x)
            node = Node(module, None, self.fresh(path))
            made = NodeValue(node, 0, array.shape, array.dtype)
        else:
            made = self.constant(array, path or f"{self.path}.constant")
        if path is not None:
            self.weights[id(x)] = made
        return made

    def constant(self, array: Any, name: str) -> NodeValue:
        """A node that gives an array."""
        return NodeValue(Node(Constant(array.copy()), None, self.fresh(name)), 0, array.shape, array.dtype)

    def layer(self, key: object, tensors: Sequence[object], make: Callable[[], Module]) -> Module:
        """Return a module with weights; the same module if the same weights are used again in the same way."""
        full = (key, *[id(t) for t in tensors])
        if full not in self.layers:
            self.layers[full] = make()
        return self.layers[full]

    def owner(self, *tensors: torch.Tensor | None) -> str | None:
        """The path of the module of torch that a weight belongs to."""
        paths = [self.paths[id(t)] for t in tensors if id(t) in self.paths]
        return paths[0].rpartition(".")[0] or None if paths else None

    def fill(self, module: Module, **tensors: Any) -> Module:
        """Copy tensors, or arrays, into the parameters and states of a module by name."""
        for name, tensor in tensors.items():
            stored = getattr(module, name)
            if stored is not None and tensor is not None:
                array = asArray(tensor) if hasattr(tensor, "detach") else np.asarray(tensor)
                stored.calcMode(array.dtype) if array.dtype.kind == "f" else None
                stored.data = array.reshape(stored.shape)
                if hasattr(stored, "trainable") and not self.trainable:
                    stored.trainable = False
        return module

    def cast(self, x: Operand, dtype: torch.dtype | None) -> NodeValue:
        """A value in another dtype."""
        value = self.asValue(x)
        return value if value.dtype == np.dtype(dtype) else self.make(Cast(np.dtype(dtype)), value, dtype=dtype)

    def kept(self, x: Any) -> Any:
        """Return a value, passed through a Dropout if it is the output of a torch.nn.Dropout."""
        if self.kind.endswith("dropout.Dropout") and isinstance(x, NodeValue):
            return self.make(Dropout(self.submodule(self.path).p), x)
        return x


LOST = object()  # the value of an unsupported operation, or of one that reads such a value


def isLost(arguments: Sequence[object]) -> bool:
    """True if an argument is the value of an unsupported operation."""
    return any(a is LOST or isinstance(a, list) and isLost(a) for a in arguments)


def isParameter(x: Operand) -> bool:
    """True for a parameter of torch."""
    return type(x).__name__ == "Parameter"


def isGraphValue(x: Operand, reader: ExportReader) -> bool:
    """True if a value, or an element of a list, depends on an input or a parameter."""
    if isinstance(x, (list, tuple)) and not isinstance(x, NodeValue):
        return any(isGraphValue(part, reader) for part in x)
    return isinstance(x, NodeValue) or isParameter(x)


def dtypeOf(tensor: torch.Tensor) -> np.dtype:
    """The dtype of numpy that a tensor's elements have."""
    return np.dtype(str(tensor.dtype).removeprefix("torch."))
