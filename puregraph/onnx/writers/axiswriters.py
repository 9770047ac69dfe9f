"""AxisWriters: modules with an axis or a count that may be an input, and modules that need several operators."""

from __future__ import annotations

import numpy as np

from puregraph import modules
from puregraph.core.errors import GraphError
from puregraph.modules.cumulative import CumProd, CumSum
from puregraph.modules.normreduction import LpNorm
from puregraph.modules.pooling import MaxUnpool
from puregraph.modules.selection import TopKValues, Trilu
from puregraph.onnx.onnxwriter import OnnxStep, isWhole, writesOnnx
from puregraph.onnx.writers.layerwriters import axesOf, reduced
from puregraph.onnx.writers.operatorwriters import Attributes, checkTypes


@writesOnnx(CumSum, CumProd)
def cumulative(step: OnnxStep) -> None:
    """CumSum, CumProd."""
    module, kind = step.module, type(step.module).__name__
    options: Attributes = {"exclusive": int(module.exclusive) or None, "reverse": int(module.reverse) or None}
    checkTypes(step, kind)
    axis = step.inputs[1] if module.axis is None else step.constant(module.axis, np.int64)
    step.op(kind, step.x, axis, out=step.y, name=step.path, **options)


@writesOnnx(TopKValues)
def topElements(step: OnnxStep) -> None:
    """TopK."""
    module = step.module
    options = {"axis": module.axis, "largest": int(module.largest)}
    count = step.inputs[1] if module.count is None else step.whole(module.count)
    step.op("TopK", step.x, count, out=list(step.outputs), name=step.path, **options)


@writesOnnx(Trilu)
def trilu(step: OnnxStep) -> None:
    """Trilu."""
    checkTypes(step, "Trilu")
    diagonal = step.constant(step.module.diagonal, np.int64) if step.module.diagonal else None
    if step.module.diagonal is None:
        diagonal = step.inputs[1]
    step.op("Trilu", step.x, diagonal, out=step.y, upper=int(step.module.upper))


@writesOnnx(modules.ReduceAlong)
def reduce(step: OnnxStep) -> None:
    """ReduceSum, ReduceMean and the like, whose axes may be an input."""
    module, rank = step.module, len(step.shapes[0])
    kind = f"Reduce{module.kind}"
    if module.axes is None and len(step.inputs) > 1:
        checkTypes(step, kind)
        options = {"keepdims": int(module.keepdims), "noop_with_empty_axes": int(module.ifEmpty) or None}
        step.op(kind, *step.inputs, out=step.y, name=step.path, **options)
        return
    axes = tuple(axis % rank for axis in module.axes or ())
    isAll = not axes and not module.ifEmpty
    reduced(step, kind, step.x, tuple(range(rank)) if isAll else axes, module.keepdims, step.y)


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


@writesOnnx(modules.GroupedMatMul)
def groupedMatMul(step: OnnxStep) -> None:
    """MatMul with the matrix of each block, gathered: block b is in the last group that begins at b or before."""
    x, W, counts = step.inputs
    zero, one = step.constant(0, np.int64), step.constant(1, np.int64)
    first = step.op("CumSum", step.op("Cast", counts, to=7), zero, exclusive=1)
    blocks = step.op("Gather", step.op("Shape", x), zero)
    numbers = step.op("Unsqueeze", step.op("Range", zero, blocks, one), step.whole(1))
    begins = step.op("Cast", step.op("LessOrEqual", first, numbers), to=7)
    group = step.op("Sub", step.op("ReduceSum", begins, step.whole(1), keepdims=0), one)
    step.op("MatMul", x, step.op("Gather", W, group), out=step.y)
