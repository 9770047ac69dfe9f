"""OnnxSummary: contents of an ONNX model, and a comparison of its graph with onnxruntime."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from puregraph.core.dim import Dim
from puregraph.core.errors import GraphError, plural, printable, show
from puregraph.graph.analysis.footprint import Footprint
from puregraph.graph.analysis.summary import render
from puregraph.onnx.modelfile import ModelFile
from puregraph.onnx.reader import ModelReader, declaredShape, opsetsOf

OPEN = 2  # the size of symbols in a trial


class OnnxSummary:
    """A model's opsets, operators and graph; if it cannot be read, `problem` says why."""

    def __init__(self, path: Any, shapes: list[Any] | None = None):
        file = ModelFile(path)
        self.path, self.graph, self.problem = path, None, ""
        proto = file.proto.graph
        known = {tensor.name for tensor in proto.initializer}
        ends = [info for info in proto.input if info.name not in known]
        self.opsets = {opset.domain or "ai.onnx": opset.version for opset in file.proto.opset_import}
        self.operators = Counter(f"{n.domain}.{n.op_type}" if n.domain else n.op_type for n in proto.node)
        self.producer = f"{file.proto.producer_name} {file.proto.producer_version}".strip()
        inputShapes = dict(zip([info.name for info in ends], shapes or []))
        self.shapes = shapes or [declaredShape(info) for info in ends]
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

    def compare(self) -> tuple[list[float], list[Any]]:
        """Compare outputs with onnxruntime on random data; returns their relative differences and the input shapes
        used.

        Raises    GraphError where onnxruntime is not installed, or refuses the model; where shapes are not known
        """
        try:
            import onnxruntime as runtime
        except ImportError:
            raise GraphError("--check compares with onnxruntime, which is not installed") from None
        if self.graph is None:
            raise GraphError(self.problem)
        if any(shape is None for shape in self.shapes):
            raise GraphError("--check: the shapes of its inputs are not known: give them, as in 1,3,224,224")
        rng, shapes = np.random.default_rng(0), []
        for shape in self.shapes:
            shapes.append(tuple(OPEN if isinstance(size, Dim) else size for size in shape))
        data = [
            rng.standard_normal(shape).astype(dtype) if dtype.kind == "f" else rng.integers(0, 2, shape).astype(dtype)
            for shape, dtype in zip(shapes, self.graph.inputTypes())
        ]
        wanted = expected(runtime, str(self.path), data)
        outputs = self.graph(*data)
        outputs = outputs if isinstance(outputs, list) else [outputs]
        wanted = [item for value in wanted for item in (value if isinstance(value, list) else [value])]  # of sequences
        return [distance(a, b) for a, b in zip(outputs, wanted)], [show(shape) for shape in shapes]


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
