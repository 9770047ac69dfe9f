"""Pooling lowering: maxima and means of windows, and their gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from puregraph.ops.convolution.channels import channelTiling, pixelStride, toChannelsLast
from puregraph.ops.convolution.native.geometry import geometry
from puregraph.ops.gather import native as gather
from puregraph.ops.gather.reference import addAt
from puregraph.ops.ir.elementlayout import OutputTiling, isReal, isRowMajor, realOf, toRowMajor
from puregraph.ops.ir.value import Call, Value
from puregraph.ops.native.llvm.kernelcall import EpilogueSpec, KernelCall
from puregraph.ops.operation import op
from puregraph.ops.pooling import native as pooling
from puregraph.ops.pooling.reference import maxPool, maxPoolGrad, meanPool, meanPoolGrad

if TYPE_CHECKING:
    from puregraph.compile.lower.workspace import LoweringWorkspace


def windowsOn(x: Value, shape: Any, size: Any, stride: Any, pad: Any, dilation: Any = 1) -> Any:
    """The geometry of windows over feature maps, one channel at a time."""
    c = shape[1]
    size = tuple(size) if isinstance(size, (tuple, list)) else (size,) * (len(shape) - 2)
    return geometry(shape, (c, 1, *size), stride, pad, dilation, c, real=realOf(x))


def windowsOf(call: Call) -> Any:
    """The geometry of the windows whose maxima the indices of a gradient locate; None if unknown."""
    grad, indices, shape, *window = call.arguments
    if len(window) < 3 or window[0] is None or pixelStride(indices) != indices.shape[1] or indices.dtype != np.int32:
        return None
    size, stride, pad, *optional = window
    return windowsOn(grad, shape, size, stride, pad, optional[0] if optional else call.options.get("dilation", 1))


def maxPoolGradTiling(call: Call) -> OutputTiling | None:
    """The output tiling of the gradient of max pooling, if the windows of its indices are known."""
    grad, indices, *_ = call.arguments
    (y,) = call.outs
    isKnown = isReal(grad, y) and y.ndim in (3, 4, 5) and pixelStride(y) is not None and windowsOf(call) is not None
    return OutputTiling((0, *range(2, y.ndim)), 1) if isKnown else None


@op(maxPool).lower
def lowerMaxPool(call: Call, workspace: LoweringWorkspace) -> list[KernelCall] | None:
    """y = max of each window, and its index in the window."""
    x, size, stride, pad, *optional = call.arguments
    y, indices = call.outs
    if not isReal(x, y) or x.ndim not in (3, 4, 5) or pixelStride(y) is None or pixelStride(indices) != x.shape[1]:
        return None
    where, pixel, before = toChannelsLast(x, workspace)
    g = windowsOn(x, x.shape, size, stride, pad, optional[0] if optional else call.options.get("dilation", 1))
    return [*before, *pooling.maxForward(where, indices, EpilogueSpec(y, pixelStride(y) or 0, (), g.real), g, pixel)]


@op(maxPoolGrad).lower
def lowerMaxPoolGrad(call: Call, epilogue: Any, workspace: LoweringWorkspace) -> list[KernelCall] | None:
    """Add each gradient at the maximum of its window."""
    grad, indices, *_ = call.arguments
    g = windowsOf(call)
    where, pixel, before = toChannelsLast(grad, workspace)
    return [*before, *pooling.maxGradient(where, indices, epilogue, g, pixel)]


@op(meanPool).lower
def lowerMeanPool(call: Call, epilogue: Any, workspace: LoweringWorkspace) -> list[KernelCall] | None:
    """y = mean of each window."""
    x, size, stride, pad, *optional = call.arguments
    includePad = optional[0] if optional else call.options.get("includePad", True)
    where, pixel, before = toChannelsLast(x, workspace)
    return [*before, *pooling.meanForward(where, epilogue, windowsOn(x, x.shape, size, stride, pad), includePad, pixel)]


@op(meanPoolGrad).lower
def lowerMeanPoolGrad(call: Call, epilogue: Any, workspace: LoweringWorkspace) -> list[KernelCall] | None:
    """Divide each gradient evenly over its window."""
    grad, shape, size, stride, pad, *optional = call.arguments
    includePad = optional[0] if optional else call.options.get("includePad", True)
    where, pixel, before = toChannelsLast(grad, workspace)
    return [
        *before,
        *pooling.meanGradient(where, epilogue, windowsOn(grad, shape, size, stride, pad), includePad, pixel),
    ]


@op(addAt).lower
def lowerAddAt(call: Call, workspace: LoweringWorkspace) -> list[KernelCall] | None:
    """Add elements at their indices, row by row."""
    values, index, size = call.arguments
    (y,) = call.outs
    if not isReal(values, y) or index.dtype != np.int32 or not isRowMajor(y):
        return None
    where, before = toRowMajor(values, workspace)
    index, also = toRowMajor(index, workspace)
    rows, count = values.shape
    return [*before, *also, *gather.addAt(where, index, y, rows, count, size, realOf(y))]


op(maxPoolGrad).declare(tiling=maxPoolGradTiling)
op(meanPool, meanPoolGrad).declare(tiling=channelTiling)
