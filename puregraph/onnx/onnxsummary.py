"""OnnxSummary: contents of an ONNX model, and a comparison of its graph with onnxruntime."""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

import numpy as np

from puregraph.core.dim import Dim
from puregraph.core.errors import GraphError, PuregraphError, plural, printable, show
from puregraph.graph.analysis.footprint import Footprint
from puregraph.graph.analysis.summary import render
from puregraph.onnx.modelfile import ModelFile
from puregraph.onnx.modelinputs import declaredShape, opsetsOf
from puregraph.onnx.reader import ModelReader

OPEN_SIZE = 1  # the size that symbols get in a comparison
CUT = 300  # maximum characters of another program's message


class Comparison(NamedTuple):
    """The relative differences of outputs from onnxruntime's, of the graph and of its compiled form.

    `shapes`  of the inputs that both were given, as text
    """

    eager: list[float]
    compiled: list[float]
    shapes: list[str]


class OnnxSummary:
    """A model's opsets, operators and graph; if it cannot be read, `problem` says why."""

    def __init__(self, path: Any, shapes: list[Any] | None = None, named: dict[str, Any] | None = None):
        file = ModelFile(path)
        self.path, self.graph, self.problem = path, None, ""
        proto = file.proto.graph
        known = {tensor.name for tensor in proto.initializer}
        ends = [info for info in proto.input if info.name not in known]
        self.opsets = {opset.domain or "ai.onnx": opset.version for opset in file.proto.opset_import}
        self.operators = Counter(f"{n.domain}.{n.op_type}" if n.domain else n.op_type for n in proto.node)
        self.producer = f"{file.proto.producer_name} {file.proto.producer_version}".strip()
        inputShapes = {**dict(zip([info.name for info in ends], shapes or [])), **(named or {})}
        self.names = [info.name for info in ends]
        self.shapes = [inputShapes.get(info.name, declaredShape(info)) for info in ends]
        try:
            opsetsOf(file.proto)
            self.graph = ModelReader(file).read(inputShapes)
        except GraphError as error:
            self.problem = str(error)

    def text(self, width: int | None, color: bool) -> str:
        """The table of the graph's nodes, and facts about the file."""
        facts = [
            f"{self.path}: opset {', '.join(f'{v} of {d}' for d, v in self.opsets.items())}"
            + (f", written by {self.producer}" if self.producer else ""),
            f"{plural(sum(self.operators.values()), 'node')} of {plural(len(self.operators), 'operator')}: "
            + ", ".join(f"{name} {count}" for name, count in sorted(self.operators.items())),
        ]
        facts = [printable(fact) for fact in facts]
        if self.graph is None:
            return "\n".join([*facts, "", self.problem])
        if any(shape is None for shape in self.shapes):
            return "\n".join([*facts, "", "the shapes of its inputs are not known: give them"])
        return "\n".join([render(Footprint(self.graph, *self.shapes), width, color), "", *facts])

    def compare(self) -> Comparison:
        """Compare outputs with onnxruntime on random data, with 1 for open sizes.

        Raises    GraphError if onnxruntime is not installed or refuses the model, or if shapes must be given
        """
        try:
            import onnxruntime as runtime
        except ImportError:
            raise GraphError("--check compares with onnxruntime, which is not installed") from None
        if self.graph is None:
            raise GraphError(self.problem)
        unknown = [name for name, shape in zip(self.names, self.shapes) if shape is None]
        if unknown:
            hint = f"--shape {printable(unknown[0])}=1,3,224,224"
            raise GraphError(f"--check: the shapes of its inputs are not known: give them, as in {hint}")
        rng = np.random.default_rng(0)
        shapes = [tuple(OPEN_SIZE if isinstance(size, Dim) else size for size in shape) for shape in self.shapes]
        dtypes = self.graph.inputTypes()
        data = [
            rng.standard_normal(shape).astype(dtype) if dtype.kind == "f" else rng.integers(0, 2, shape).astype(dtype)
            for shape, dtype in zip(shapes, dtypes)
        ]
        with np.errstate(all="ignore"):
            try:
                wanted = expected(runtime, str(self.path), data)
                eager = listed(self.graph(*data))
            except PuregraphError as error:
                raise self.asking(error) from error
            try:
                compiled = listed(self.graph.compile(shapes, train=False, dtypes=dtypes).run(*data))
            except PuregraphError as error:
                raise GraphError(f"--check: the compiled graph fails: {error}") from error
        wanted = [item for value in wanted for item in listed(value)]  # flattens sequences
        first, second = ([distance(a, b) for a, b in zip(outputs, wanted)] for outputs in (eager, compiled))
        return Comparison(first, second, [show(shape) for shape in shapes])

    def asking(self, error: Exception) -> GraphError:
        """The error of a failed comparison; if sizes are open, it asks for them."""
        rows = [row for row in zip(self.names, self.shapes) if any(isinstance(size, Dim) for size in row[1])]
        if not rows:
            return GraphError(str(error))
        reason = " ".join(str(error).removeprefix("--check: ").split())
        reason = reason if len(reason) <= CUT else f"{reason[:CUT]}..."
        options = " ".join(f"--shape {printable(name)}={','.join(map(str, shape))}" for name, shape in rows)
        return GraphError(
            f"--check: the model does not run with {OPEN_SIZE} for each open size. Give sizes: numbers for the names "
            f"in {options}\n  {printable(reason)}"
        )


def listed(outputs: Any) -> list[Any]:
    """The outputs of a graph or of a sequence as a list."""
    return list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]


def expected(runtime: Any, path: str, data: list[Any]) -> list[Any]:
    """The outputs that onnxruntime gives.

    Raises    GraphError with its reason where it refuses the model or the data
    """
    options = runtime.SessionOptions()
    setattr(options, "log_severity_level", 4)  # noqa: B010 - the error reports it anyway
    try:
        session = runtime.InferenceSession(path, options, ["CPUExecutionProvider"])
        return list(session.run(None, {info.name: x for info, x in zip(session.get_inputs(), data)}))
    except Exception as error:  # its own errors have no common base
        why = " ".join(str(error).split())
        isNew = "opset" in why.lower() or "NOT_IMPLEMENTED" in why
        hint = "; write it in an older opset, as toOnnx(..., opset=21) does" if isNew else ""
        raise GraphError(f"--check: onnxruntime {runtime.__version__} refuses the model: {why}{hint}") from error


def distance(actual: Any, wanted: Any) -> float:
    """The largest difference, relative to the largest expected value; infinite if the shapes differ."""
    if actual.shape != wanted.shape:
        return float("inf")
    a, b = (np.asarray(x, np.float64) for x in (actual, wanted))
    return float(np.abs(a - b).max(initial=0) / max(1e-30, np.abs(b).max(initial=0)))
