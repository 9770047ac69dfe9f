"""ReductionOps: sums, means, norms over axes; indices of extremes; cumulative sums and products."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from puregraph import modules
from puregraph.core.base.dtype import isFloating
from puregraph.core.dim import Dim
from puregraph.modules.cumulative import CumProd, CumSum
from puregraph.onnx.modules.controlled import CumulativeAxis, ReduceAxes
from puregraph.onnx.modules.extremeindex import LastExtreme
from puregraph.onnx.modules.reduceaxes import OFFLOATS, OPEN, REDUCTIONS, ReduceFilled
from puregraph.onnx.opregistry import onnxOp

if TYPE_CHECKING:
    from puregraph.onnx.onnxnode import OnnxNode
    from puregraph.onnx.onnxvalue import OnnxValue

NAMES = [f"Reduce{kind}" for kind in REDUCTIONS]


@onnxOp(*NAMES)
def reduce(op: OnnxNode, x: OnnxValue, axes: Any = None) -> OnnxValue:
    """The axes are an attribute before opset 18 (13 for sums), then an input; without any, all of them."""
    kind, keepdims = op.type[6:], bool(op.get("keepdims", 1))
    dtype = x.dtype
    if kind in OFFLOATS and not isFloating(dtype):
        x = op(modules.Cast("float64"), x)
    axisNumbers = op.get("axes") if axes is None else axes.numbers
    ifEmpty = bool(op.get("noop_with_empty_axes", 0))
    if axes is not None and axisNumbers is None:
        return typed(op, op(ReduceAxes(kind, keepdims, ifEmpty), x, axes), dtype)
    if axisNumbers is None or len(axisNumbers) == 0:
        if ifEmpty:
            return typed(op, op(REDUCTIONS[kind]((), True), x), dtype)
        axisNumbers = range(op.rankOf(x))
    axes = tuple(int(axis) for axis in axisNumbers)
    isEmpty = x.shape is not None and any(x.shape[axis] == 0 for axis in axes)
    isOpen = x.shape is None or any(isinstance(x.shape[axis], Dim) for axis in axes)
    make = OPEN.get(kind, REDUCTIONS[kind]) if isOpen else REDUCTIONS[kind]
    y = op(ReduceFilled(kind, axes, keepdims) if isEmpty else make(axes, keepdims), x)
    return typed(op, y, dtype)


def typed(op: OnnxNode, y: OnnxValue, dtype: np.dtype) -> OnnxValue:
    """A value in a dtype."""
    return y if y.dtype == dtype else op(modules.Cast(dtype), y)


@onnxOp("ArgMax", "ArgMin")
def argExtreme(op: OnnxNode, x: OnnxValue) -> OnnxValue:
    """ArgMax, ArgMin."""
    axis, keepdims = op.get("axis", 0), bool(op.get("keepdims", 1))
    if op.get("select_last_index", 0):
        return op(LastExtreme(axis, keepdims, op.type == "ArgMax"), x)
    return op((modules.ArgMax if op.type == "ArgMax" else modules.ArgMin)(axis, keepdims), x)


@onnxOp("CumSum", "CumProd")
def cumulative(op: OnnxNode, x: OnnxValue, axis: OnnxValue) -> OnnxValue:
    """CumSum, CumProd."""
    exclusive, reverse = bool(op.get("exclusive", 0)), bool(op.get("reverse", 0))
    if axis.numbers is None:
        return op(CumulativeAxis("sum" if op.type == "CumSum" else "product", exclusive, reverse), x, axis)
    make = CumSum if op.type == "CumSum" else CumProd
    return op(make(int(np.ravel(axis.numbers)[0]), exclusive, reverse), x)
