"""RuleWriter: write a module's rule as operators of ONNX, call by call."""

from __future__ import annotations

from typing import Any

import numpy as np

from puregraph.compile.trace.decompositions import decompositionOf
from puregraph.compile.trace.numpyrules import readerOf
from puregraph.compile.trace.recorder import RecordedArray, Recorder, UnreadableError
from puregraph.core.base.widen import forwardRule
from puregraph.core.errors import GraphError
from puregraph.graph.steps import ABSENT
from puregraph.onnx.onnxwriter import OnnxStep, kindOf
from puregraph.onnx.rules.formulacalls import formulas, ufunc
from puregraph.onnx.writers.layerwriters import reduced
from puregraph.ops.formula.interpreter import Interpreter
from puregraph.ops.ir.value import Call, Value
from puregraph.ops.operation import declared


def simplerOf(function: Any) -> Any:
    """The rule that writes a function as simpler ones, for ONNX alone or for the compiler; None if it has a writer."""
    if declared(function, "onnx") is not None:
        return None
    return declared(function, "words") or decompositionOf(function)


class RuleWriter:
    """Writer of a rule's calls; `names` maps value numbers to names."""

    def __init__(self, step: OnnxStep):
        self.step, self.op = step, step.op
        self.names: dict[int, str] = {}

    def name(self, x: Any, dtype: Any = None) -> str:
        """The name of a value or a number, converted to a dtype if one is passed."""
        if not isinstance(x, Value):
            return self.step.constant(x, dtype if dtype is not None else np.asarray(x).dtype)
        if x.number not in self.names and x.role == "constant":
            self.names[x.number] = self.step.constant(np.asarray(x.source, order="C"))
        valueName = self.names[x.number]
        return valueName if dtype is None or x.dtype == dtype else self.cast(valueName, dtype)

    def cast(self, x: str, dtype: Any) -> str:
        """A value in another dtype."""
        return self.op("Cast", x, to=kindOf(np.dtype(dtype)))

    def whole(self, *numbers: int) -> str:
        """Integers along one axis."""
        return self.step.whole(*numbers)

    def reduce(self, kind: str, x: str, axes: tuple[int, ...], keepdims: bool) -> str:
        """ReduceSum and the like, as the opset wants its axes."""
        return reduced(self.step, kind, x, axes, keepdims)

    def reshape(self, x: str, shape: Any) -> str:
        """A value in another shape."""
        return self.op("Reshape", x, self.whole(*shape), allowzero=1 if 0 in tuple(shape) else None)

    def write(self, call: Call) -> None:
        """Write the operators of one call.

        Raises    GraphError for a function without an ONNX equivalent
        """
        write = writerOf(call.function)
        if write is None:
            raise GraphError(f"its rule calls {call.name}, which has no ONNX equivalent")
        result = write(self, call)
        results = list(result) if isinstance(result, (list, tuple)) else [result]
        for y, name in zip(call.outs, results, strict=True):
            if y is not None and name is not None:
                self.names[y.number] = name


def writerOf(function: Any) -> Any:
    """The writer of calls of a function."""
    if isinstance(function, (Interpreter, np.ufunc)):
        return declared(function, "onnx") or (formulas if isinstance(function, Interpreter) else ufunc)
    owner = getattr(function, "__self__", None)
    if isinstance(owner, np.ufunc) and function.__name__ == "reduce":
        function = owner.reduce
    return declared(function, "onnx")


def writeRule(step: OnnxStep) -> None:
    """Write the evalMode forward rule of a step's module, for numeric input sizes.

    Raises    GraphError for a rule that cannot be traced, or calls a function without an ONNX equivalent
    """
    module, args = step.module, step.row.step.args
    recorder = Recorder(readerOf)
    recorder.decompositionOf, recorder.keepsComposite = simplerOf, lambda kernel: declared(kernel, "onnx") is not None
    writer = RuleWriter(step)
    values = [argument(step, recorder, writer, i, number) for i, number in enumerate(args)]
    wasTraining = module.isTraining
    module.isTraining = False
    try:
        handles = [recorder.handle(value) for value in values]
        result = forwardRule(module, handles, step.row.step.inputs)
        outputs = [taken(recorder, y) for y in (result if type(result) is tuple else (result,))]
    except (UnreadableError, TypeError, NotImplementedError) as error:
        raise GraphError(f"its rule cannot be written: {error}") from None
    finally:
        module.isTraining = wasTraining
    mark = len(step.writer.nodes)
    for call in recorder.calls:
        writer.write(call)
    for i, (value, out) in enumerate(zip(outputs, step.outputs)):
        if value is None:
            step.absent.add(out)
        else:
            step.kinds[out] = value.dtype
            nameOutput(step, writer.name(value), out, mark, isFirst=i == 0)


def argument(step: OnnxStep, recorder: Recorder, writer: RuleWriter, index: int, number: int) -> Value | None:
    """The value of an argument of the rule: an input, a parameter or a state."""
    count = step.row.step.inputs
    if number == ABSENT or index < count and step.inputs[index] is None:
        return None
    if index < count:
        value = recorder.value(tuple(map(int, step.shapes[index])), np.dtype(step.indtypes[index]), role="input")
        writer.names[value.number] = str(step.inputs[index])
        return value
    stored = step.module.ruleParams()[index - count]
    if stored is None:
        return None
    value = recorder.value(tuple(stored.shape), np.dtype(stored.dtype), role="param", source=stored)
    writer.names[value.number] = step.writer.weight(stored, f"{step.path}:{step.module.ruleNames[index - count]}")
    return value


def taken(recorder: Recorder, y: Any) -> Value | None:
    """The value of a result."""
    if y is None or type(y) is RecordedArray:
        return None if y is None else y.current
    if isinstance(y, (np.ndarray, np.generic)):
        return recorder.constant(y)
    raise UnreadableError(f"a result is {type(y).__name__}")


def nameOutput(step: OnnxStep, name: str, out: str, mark: int, isFirst: bool) -> None:
    """Make a value the output of a step: rename it if a node of the step makes it, else add an Identity."""
    nodes = step.writer.nodes[mark:]
    maker = next((node for node in nodes if name in node.output), None)
    if maker is None or name in step.outputs:
        step.op("Identity", name, out=out)
        return
    for node in nodes:
        for ends in (node.input, node.output):
            for i, end in enumerate(ends):
                ends[i] = out if end == name else end
    maker.name = step.path if isFirst else out
