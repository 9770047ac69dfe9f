"""AxisWriters: modules with options as inputs, which only the reader makes, and modules that need several operators."""

from __future__ import annotations

import numpy as np

from puregraph import modules
from puregraph.core.errors import GraphError
from puregraph.modules.cumulative import CumProd, CumSum
from puregraph.modules.normreduction import LpNorm
from puregraph.modules.pooling import MaxUnpool
from puregraph.modules.selection import TopKValues, Trilu
from puregraph.onnx.modules.reduceaxes import ReduceFilled
from puregraph.onnx.onnxwriter import OnnxStep, isWhole, writesOnnx
from puregraph.onnx.writers.layerwriters import axesOf, reduced
from puregraph.onnx.writers.operatorwriters import Attributes, checkTypes


@writesOnnx(CumSum, CumProd)
def cumulative(step: OnnxStep) -> None:
    """CumSum, CumProd."""
    module, kind = step.module, type(step.module).__name__
    options: Attributes = {"exclusive": int(module.exclusive) or None, "reverse": int(module.reverse) or None}
    checkTypes(step, kind)
    step.op(kind, step.x, step.constant(module.axis, np.int64), out=step.y, **options)


@writesOnnx(TopKValues)
def topElements(step: OnnxStep) -> None:
    """TopK."""
    module = step.module
    options = {"axis": module.axis, "largest": int(module.largest)}
    step.op("TopK", step.x, step.whole(module.count), out=list(step.outputs), name=step.path, **options)


@writesOnnx(Trilu)
def trilu(step: OnnxStep) -> None:
    """Trilu."""
    checkTypes(step, "Trilu")
    diagonal = step.constant(step.module.diagonal, np.int64) if step.module.diagonal else None
    step.op("Trilu", step.x, diagonal, out=step.y, upper=int(step.module.upper))


@writesOnnx(ReduceFilled)
def reduceFilled(step: OnnxStep) -> None:
    """The reduction, which is over no elements."""
    reduced(step, f"Reduce{step.module.kind}", step.x, step.module.axes, step.module.keepdims, step.y)


@writesOnnx(LpNorm)
def reduceLp(step: OnnxStep) -> None:
    """ReduceL1, ReduceL2, or the sum of powers."""
    module, axes, real = step.module, axesOf(step), step.dtypes[0]
    if module.p in (1, 2):
        reduced(step, f"ReduceL{int(module.p)}", step.x, axes, module.keepdims, step.y)
        return
    powers = step.op("Pow", step.op("Abs", step.x), step.constant(module.p, real))
    total = reduced(step, "ReduceSum", powers, axes, module.keepdims)
    step.op("Pow", total, step.constant(1 / module.p, real), out=step.y)


@writesOnnx(modules.Full)
def full(step: OnnxStep) -> None:
    """ConstantOfShape."""
    from onnx import numpy_helper

    value = numpy_helper.from_array(np.array([step.module.value], step.module.dtype))
    step.op("ConstantOfShape", step.x, out=step.y, value=value)


@writesOnnx(MaxUnpool)
def unpool(step: OnnxStep) -> None:
    """MaxUnpool, with windows that give the natural lengths, in which the indices count."""
    module, (n, c, *lengths) = step.module, step.shapes[0]
    if not all(map(isWhole, (n, c, *lengths))):
        raise GraphError("its sizes have symbols")
    size = [natural - length + 1 for natural, length in zip(module.natural, lengths)]
    sizes = () if module.lengths == module.natural else (step.whole(n, c, *module.lengths),)
    step.op("MaxUnpool", *step.inputs, *sizes, out=step.y, kernel_shape=size)
