"""Reductions and running sums as operators of ONNX."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from puregraph.core.errors import GraphError
from puregraph.ops.ir.strides import reducedAxes
from puregraph.ops.ir.value import Call
from puregraph.ops.operation import op
from puregraph.ops.reduction.reference import firstIndex

if TYPE_CHECKING:
    from puregraph.onnx.rules.rulewriter import RuleWriter

KINDS: dict[Any, str] = {
    **dict.fromkeys((np.sum, np.add.reduce), "ReduceSum"),
    np.mean: "ReduceMean",
    **dict.fromkeys((np.max, np.amax, np.maximum.reduce), "ReduceMax"),
    **dict.fromkeys((np.min, np.amin, np.minimum.reduce), "ReduceMin"),
    **dict.fromkeys((np.prod, np.multiply.reduce), "ReduceProd"),
}


@op(*KINDS).onnx
def reduction(writer: RuleWriter, call: Call) -> str:
    """ReduceSum and the like, of elements that have the dtype of the result."""
    x, out = call.arguments[0], call.outs[0]
    axes = tuple(sorted(reducedAxes(call.options.get("axis"), x.ndim)))
    return writer.reduce(KINDS[call.function], writer.name(x, out.dtype), axes, bool(call.options.get("keepdims")))


@op(np.argmax, np.argmin).onnx
def argExtreme(writer: RuleWriter, call: Call) -> str:
    """ArgMax, ArgMin; of booleans as integers."""
    x, *rest = call.arguments
    axis = rest[0] if rest else call.options.get("axis")
    name = writer.name(x, np.int32 if x.dtype == np.dtype(bool) else None)
    name = name if axis is not None else writer.reshape(name, (-1,))
    kind = "ArgMax" if call.function is np.argmax else "ArgMin"
    return writer.op(kind, name, axis=axis or 0, keepdims=int(bool(call.options.get("keepdims"))))


@op(np.cumprod).onnx
def products(writer: RuleWriter, call: Call) -> str:
    """A scan in log2 n steps: each element times the one 1, 2, 4, ... positions before it."""
    x, *rest = call.arguments
    axis = rest[0] if rest else call.options.get("axis")
    if axis is None:
        raise GraphError("its rule multiplies all elements in their order, which has no ONNX equivalent")
    axis, dtype, far = axis % x.ndim, call.outs[0].dtype, 1
    product, shape, last = writer.name(x, dtype), list(x.shape), writer.whole(axis)
    while far < x.shape[axis]:
        shape[axis] = far
        before = writer.op("Slice", product, writer.whole(0), writer.whole(-far), last)
        before = writer.op("Concat", writer.step.constant(np.ones(shape, dtype)), before, axis=axis)
        product, far = writer.op("Mul", product, before), 2 * far
    return product


@op(np.cumsum).onnx
def cumulative(writer: RuleWriter, call: Call) -> str:
    """CumSum."""
    x, *rest = call.arguments
    axis = rest[0] if rest else call.options.get("axis")
    name = writer.name(x, call.outs[0].dtype)
    name = name if axis is not None else writer.reshape(name, (-1,))
    return writer.op("CumSum", name, writer.step.constant(axis or 0, np.int64))


@op(firstIndex).words
def first(x: Any, value: Any, axis: int) -> Any:
    """The first index at which x is the value, or nan."""
    return np.argmax((x == value) | (x != x), axis)
