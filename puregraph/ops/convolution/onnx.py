"""Convolutions as operators of ONNX."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from puregraph.ops.convolution.reference import convolve, convolveData, convolveWeight
from puregraph.ops.convolution.windowgeometry import Window, window
from puregraph.ops.ir.value import Call
from puregraph.ops.operation import op

if TYPE_CHECKING:
    from collections.abc import Sequence

    from puregraph.onnx.rules.rulewriter import RuleWriter
    from puregraph.ops.ir.value import Value


def flatPads(win: Window) -> list[int]:
    """The pads before all axes, then those after them."""
    return [before for before, _ in win.pad] + [after for _, after in win.pad]


@op(convolve).onnx
def convolution(writer: RuleWriter, call: Call) -> str:
    """Conv."""
    x, W, *geometry, groups = call.arguments
    win, dtype = window(x.shape[2:], W.shape[2:], *geometry), call.outs[0].dtype
    return writer.op(
        "Conv",
        writer.name(x, dtype),
        writer.name(W, dtype),
        strides=list(win.stride),
        dilations=list(win.dilation),
        pads=flatPads(win),
        group=groups,
    )


@op(convolveData).onnx
def convolutionData(writer: RuleWriter, call: Call) -> str:
    """ConvTranspose; trailing positions that no window reaches stay zero."""
    grad, W, shape, *geometry, groups = call.arguments
    return transposedConvolution(writer, call, writer.name(grad, call.outs[0].dtype), W, shape, geometry, groups)


def transposedConvolution(
    writer: RuleWriter, call: Call, grad: str, W: Value, shape: Sequence[int], geometry: Any, groups: int
) -> str:
    """The full transposed convolution, cut to the positions of the input or continued with zeros."""
    win = window(shape[2:], W.shape[2:], *geometry)
    full = writer.op(
        "ConvTranspose",
        grad,
        writer.name(W, call.outs[0].dtype),
        strides=list(win.stride),
        dilations=list(win.dilation),
        group=groups,
    )
    reach = [(count - 1) * s + d * (k - 1) + 1 for count, s, d, k in zip(win.count, win.stride, win.dilation, win.size)]
    behind = [n - (r - before) for n, r, (before, _) in zip(win.spatial, reach, win.pad)]
    pads = [0, 0, *(-before for before, _ in win.pad), 0, 0, *behind]
    if not any(pads):
        return full
    return writer.op("Pad", full, writer.whole(*pads))


@op(convolveWeight).onnx
def convolutionWeight(writer: RuleWriter, call: Call) -> str:
    """A convolution of the input with the gradient as filters: channels and samples swap roles."""
    grad, x, size, *geometry, groups = call.arguments
    dtype = call.outs[0].dtype
    size = (size,) * (x.ndim - 2) if isinstance(size, int) else tuple(size)
    win = window(x.shape[2:], size, *geometry)
    n, channels, *spatial = x.shape
    groupChannels, last = channels // groups, list(range(3, x.ndim + 1))
    rows = writer.reshape(writer.name(x, dtype), (n, groups, groupChannels, *spatial))
    rows = writer.op("Transpose", rows, perm=[2, 1, 0, *last])
    rows = writer.reshape(rows, (groupChannels, groups * n, *spatial))
    filters = writer.op("Transpose", writer.name(grad, dtype), perm=[1, 0, *range(2, x.ndim)])
    gradient = writer.op(
        "Conv",
        rows,
        filters,
        strides=list(win.dilation),
        dilations=list(win.stride),
        pads=flatPads(win),
        group=groups,
    )
    axes = range(2, x.ndim)
    gradient = writer.op("Slice", gradient, writer.whole(*[0] * len(size)), writer.whole(*size), writer.whole(*axes))
    return writer.op("Transpose", gradient, perm=[1, 0, *axes])
