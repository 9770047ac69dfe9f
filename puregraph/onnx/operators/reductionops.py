"""ReductionOps: sums, means, norms over axes; indices of extremes; cumulative sums and products."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from puregraph import modules
from puregraph.core.base.dtype import isFloating
from puregraph.core.dim import Dim
from puregraph.modules.cumulative import CumProd, CumSum
from puregraph.modules.reducealong import REDUCTIONS, reduction
from puregraph.onnx.opregistry import onnxOp

if TYPE_CHECKING:
    from puregraph.onnx.onnxnode import OnnxNode
    from puregraph.onnx.onnxvalue import OnnxValue

NAMES = [f"Reduce{kind}" for kind in REDUCTIONS]
FLOAT_KINDS = ("L2", "LogSum", "LogSumExp")  # which integers are converted for


@onnxOp(*NAMES)
def reduce(op: OnnxNode, x: OnnxValue, axes: Any = None) -> OnnxValue:
    """The axes are an attribute before opset 18 (13 for sums), then an input; without any, all of them."""
    kind, keepdims = op.type[6:], bool(op.get("keepdims", 1))
    dtype = x.dtype
    if kind in FLOAT_KINDS and not isFloating(dtype):
        x = op(modules.Cast("float64"), x)
    axisNumbers = op.get("axes") if axes is None else axes.numbers
    ifEmpty = bool(op.get("noop_with_empty_axes", 0))
    if axes is not None and axisNumbers is None:
        return typed(op, op(modules.ReduceAlong(kind, None, keepdims, ifEmpty), x, axes), dtype)
    if axisNumbers is None or len(axisNumbers) == 0:
        if ifEmpty:
            return typed(op, op(REDUCTIONS[kind]((), True), x), dtype)
        axisNumbers = range(op.rankOf(x))
    axes = tuple(int(axis) for axis in axisNumbers)
    mayBeEmpty = x.shape is None or any(isinstance(x.shape[axis], Dim) or x.shape[axis] == 0 for axis in axes)
    module = reduction(kind, axes, keepdims) if mayBeEmpty else REDUCTIONS[kind](axes, keepdims)
    return typed(op, op(module, x), dtype)


def typed(op: OnnxNode, y: OnnxValue, dtype: np.dtype) -> OnnxValue:
    """A value in a dtype."""
    return y if y.dtype == dtype else op(modules.Cast(dtype), y)


@onnxOp("ArgMax", "ArgMin")
def argExtreme(op: OnnxNode, x: OnnxValue) -> OnnxValue:
    """ArgMax, ArgMin."""
    axis, keepdims = op.get("axis", 0), bool(op.get("keepdims", 1))
    last = {"last": True} if op.get("select_last_index", 0) else {}
    return op((modules.ArgMax if op.type == "ArgMax" else modules.ArgMin)(axis, keepdims, **last), x)


@onnxOp("CumSum", "CumProd")
def cumulative(op: OnnxNode, x: OnnxValue, axis: OnnxValue) -> OnnxValue:
    """CumSum, CumProd."""
    exclusive, reverse = bool(op.get("exclusive", 0)), bool(op.get("reverse", 0))
    make = CumSum if op.type == "CumSum" else CumProd
    if axis.numbers is None:
        return op(make(None, exclusive, reverse), x, axis)
    return op(make(int(np.ravel(axis.numbers)[0]), exclusive, reverse), x)
