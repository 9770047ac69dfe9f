"""Views, copies and joined arrays as operators of ONNX."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from puregraph.ops.ir.strides import reducedAxes
from puregraph.ops.ir.value import Call, copy, fill
from puregraph.ops.operation import op

if TYPE_CHECKING:
    from puregraph.onnx.rules.rulewriter import RuleWriter


@op(np.copy, copy).onnx
def copied(writer: RuleWriter, call: Call) -> str:
    """A copy: ONNX has no memory layouts; `copy` may also broadcast and convert."""
    x, out = call.arguments[0], call.outs[0]
    name = writer.name(x, out.dtype)
    return name if tuple(x.shape) == out.shape else writer.op("Expand", name, writer.whole(*out.shape))


@op(fill).onnx
def filled(writer: RuleWriter, call: Call) -> str:
    """ConstantOfShape."""
    from onnx import numpy_helper

    out = call.outs[0]
    value = numpy_helper.from_array(np.array([call.arguments[0]], out.dtype))
    return writer.op("ConstantOfShape", writer.whole(*out.shape), value=value)


def positionsOf(call: Call) -> np.ndarray:
    """The flat index in the argument of each element of a view."""
    x = call.arguments[0]
    at = np.arange(x.size).reshape(x.shape)
    return np.asarray(call.function(at, *call.arguments[1:], **call.options))


@op(np.flip).onnx
def flipped(writer: RuleWriter, call: Call) -> str:
    """Slice with steps of -1."""
    x, *rest = call.arguments
    axes = sorted(reducedAxes(rest[0] if rest else call.options.get("axis"), x.ndim))
    limits = [[number] * len(axes) for number in (-1, -(1 << 62), -1)]
    starts, ends, steps = (writer.whole(*values) for values in limits)
    return writer.op("Slice", writer.name(x), starts, ends, writer.whole(*axes), steps) if axes else writer.name(x)


@op(np.diagonal, np.lib.stride_tricks.sliding_window_view).onnx
def gathered(writer: RuleWriter, call: Call) -> str:
    """Any view, as a Gather of elements."""
    flat = writer.reshape(writer.name(call.arguments[0]), (-1,))
    return writer.op("Gather", flat, writer.step.constant(positionsOf(call)))


@op(np.transpose, np.swapaxes, np.moveaxis).onnx
def transposed(writer: RuleWriter, call: Call) -> str:
    """Transpose."""
    x = call.arguments[0]
    sizes = np.empty([i + 2 for i in range(x.ndim)], bool)  # distinct sizes reveal the order
    order = [n - 2 for n in call.function(sizes, *call.arguments[1:], **call.options).shape]
    return writer.op("Transpose", writer.name(x), perm=order)


@op(np.reshape, np.squeeze, np.expand_dims).onnx
def reshaped(writer: RuleWriter, call: Call) -> str:
    """Reshape."""
    x, out = call.arguments[0], call.outs[0]
    return writer.name(x) if x.shape == out.shape else writer.reshape(writer.name(x), out.shape)


@op(np.broadcast_to).onnx
def expanded(writer: RuleWriter, call: Call) -> str:
    """Expand."""
    return writer.op("Expand", writer.name(call.arguments[0]), writer.whole(*call.outs[0].shape))


@op(np.concatenate).onnx
def joined(writer: RuleWriter, call: Call) -> str:
    """Concat."""
    parts = [writer.name(x, call.outs[0].dtype) for x in call.arguments[0]]
    return writer.op("Concat", *parts, axis=call.options["axis"])


@op(np.stack).onnx
def stacked(writer: RuleWriter, call: Call) -> str:
    """Concat along a new axis."""
    out, axis = call.outs[0], call.options["axis"]
    shape = (*out.shape[:axis], 1, *out.shape[axis + 1 :])
    parts = [writer.reshape(writer.name(x, out.dtype), shape) for x in call.arguments[0]]
    return writer.op("Concat", *parts, axis=axis)
