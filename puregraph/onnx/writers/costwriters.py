"""CostWriters: costs as elementwise operators and sums. Checks of targets and labels are not written."""

from __future__ import annotations

from typing import Any

import numpy as np

from puregraph.core.base.widen import isNarrow
from puregraph.core.shape import product
from puregraph.modules.costs import CrossEntropy, LinearCrossEntropy, PointwiseCost
from puregraph.onnx.onnxwriter import OnnxStep, isWhole, kindOf, writesOnnx
from puregraph.onnx.writers.formulawriters import Expression, spelled
from puregraph.onnx.writers.layerwriters import reduced


@writesOnnx(PointwiseCost)
def pointwiseCost(step: OnnxStep) -> None:
    """The formula, weighted by sample, summed and divided by the number of elements."""
    real = computedIn(step)
    operands = dict(zip(("x", "target"), zip(step.inputs, step.indtypes)))
    terms = Expression(step, operands, real).number(spelled(step.module.formula))
    average(step, terms, countOf(step, 0, real), len(step.shapes[0]), real)


@writesOnnx(CrossEntropy)
def crossEntropy(step: OnnxStep) -> None:
    """LogSoftmax, gathered at the labels, weighted and summed."""
    module, real, rank = step.module, computedIn(step), len(step.shapes[0])
    axis = module.axis % rank
    labels, isCounted = labelsOf(step)
    logs = step.op("LogSoftmax", scoresOf(step, real), axis=axis)
    chosen = step.op("GatherElements", logs, step.op("Unsqueeze", labels, step.whole(axis)), axis=axis or None)
    terms = step.op("Neg", step.op("Squeeze", chosen, step.whole(axis)))
    weights = None if module.weights is None else module.weights.materialize()
    share, count = None, None
    if weights is not None:
        share = step.op("Gather", step.constant(weights, real), labels)
        terms = step.op("Mul", terms, share)
    if module.smoothing:
        classLosses = step.op("Neg", logs)
        if weights is not None:
            classLosses = step.op(
                "Mul", classLosses, step.constant(weights.reshape(-1, *[1] * (rank - 1 - axis)), real)
            )
        mean = reduced(step, "ReduceMean", classLosses, (axis,))
        terms, mean = (
            step.op("Mul", part, step.constant(by, real))
            for part, by in ((terms, 1 - module.smoothing), (mean, module.smoothing))
        )
        if weights is not None and not weights.all():  # a class of weight 0 is ignored, also in smoothing
            mean = step.op("Where", step.op("Greater", share, step.constant(0, real)), mean, step.constant(0, real))
        terms = step.op("Add", terms, mean)
    if isCounted is not None:
        zero = step.constant(0, real)
        terms = step.op("Where", isCounted, terms, zero)
        share = step.op("Where", isCounted, share or step.constant(1, real), zero)
    if share is not None:
        total = reduced(step, "ReduceSum", share, tuple(range(rank - 1)))
        count = step.op("Where", step.op("Equal", total, step.constant(0, real)), step.constant(1, real), total)
    average(step, terms, count or countOf(step, 1, real), rank - 1, real)


def scoresOf(step: OnnxStep, real: Any) -> str:
    """The scores in the dtype computed in: the input, or what the layer of a LinearCrossEntropy makes of it."""
    module, x = step.module, converted(step, step.x, step.indtypes[0], real)
    if not isinstance(module, LinearCrossEntropy):
        return x
    weight = converted(step, step.param("W"), module.W.dtype, real)
    weight = step.op("Transpose", weight, perm=[1, 0]) if module.transpose else weight
    scores = step.op("MatMul", x, weight)
    return (
        scores if module.b is None else step.op("Add", scores, converted(step, step.param("b"), module.b.dtype, real))
    )


def labelsOf(step: OnnxStep) -> tuple[str, str | None]:
    """Labels as int64 with ignored ones set to 0, and the mask of labels that count (None: all)."""
    ignored = step.module.ignoreIndex
    labels = converted(step, step.inputs[1], step.indtypes[1], np.dtype(np.int64))
    if ignored is None:
        return labels, None
    isIgnored = step.op("Equal", labels, step.constant(ignored, np.int64))
    labels = step.op("Where", isIgnored, step.constant(0, np.int64), labels)
    return labels, step.op("Not", isIgnored)


def average(step: OnnxStep, terms: str, count: str, rank: int, real: Any) -> None:
    """Weight the terms by sample if there are weights, and reduce them as the cost says, by default to their mean."""
    reduction = step.module.reduction
    if len(step.inputs) > 2 and step.inputs[2] is not None:
        weight = converted(step, step.inputs[2], step.indtypes[2], real)
        weight = step.op("Unsqueeze", weight, step.whole(*range(1, rank))) if rank > 1 else weight
        terms = step.op("Mul", terms, weight)
    isLast = real == step.dtypes[0]
    out = step.y if isLast else None
    if reduction == "none":
        y = step.op("Identity", terms, out=out) if isLast else terms
    elif reduction == "sum":
        y = reduced(step, "ReduceSum", terms, tuple(range(rank)), out=out)
    else:
        y = step.op("Div", reduced(step, "ReduceSum", terms, tuple(range(rank))), count, out=out)
    if not isLast:
        step.op("Cast", y, out=step.y, to=kindOf(step.dtypes[0]))


def countOf(step: OnnxStep, index: int, real: Any) -> str:
    """The number of elements of an input, or 1 if there are none."""
    if all(map(isWhole, step.shapes[index])):
        return step.constant(max(product(step.shapes[index]), 1), real)
    count = step.op("Max", step.op("Size", step.inputs[index]), step.constant(1, np.int64))
    return step.op("Cast", count, to=kindOf(real))


def computedIn(step: OnnxStep) -> Any:
    """The dtype that the cost is computed in."""
    return np.dtype(np.float32) if isNarrow(step.dtypes[0]) else step.dtypes[0]


def converted(step: OnnxStep, x: str | None, inDtype: Any, dtype: Any) -> str:
    """A value in a dtype."""
    return str(x) if inDtype == dtype else step.op("Cast", x, to=kindOf(dtype))
