"""Reductions and running sums as operators of ONNX."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from puregraph.ops.ir.strides import reducedAxes
from puregraph.ops.ir.value import Call
from puregraph.ops.operation import op
from puregraph.ops.reduction.cumulate import UFUNCS, cumulate, neutral, part, shifted
from puregraph.ops.reduction.reference import firstIndex

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

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


@op(cumulate).words
def scanned(x: Any, axis: int, kind: str = "sum", exclusive: bool = False, reverse: bool = False) -> Any:
    """CumSum; else a scan in log2 n steps: each element joined with the one 1, 2, 4, ... positions before it."""
    axis = axis % x.ndim
    x = np.flip(x, axis) if reverse else x
    x = shifted(x, axis, neutral(kind, x.dtype)) if exclusive else x
    far = 1
    while kind != "sum" and far < x.shape[axis]:
        joined = UFUNCS[kind](part(x, axis, 0, -far), part(x, axis, far, None))
        x, far = np.concatenate([part(x, axis, 0, far), joined], axis=axis), 2 * far
    x = np.cumsum(x, axis=axis, dtype=x.dtype) if kind == "sum" else x
    return np.flip(x, axis) if reverse else x


@op(np.cumprod).words
def products(x: Any, axis: int | None = None, dtype: DTypeLike | None = None) -> Any:
    """A cumulation, of all elements without an axis."""
    x = x.astype(np.cumprod(np.ones(1, x.dtype), dtype=dtype).dtype, copy=False)
    return scanned(x.reshape(-1) if axis is None else x, axis or 0, "product")


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
