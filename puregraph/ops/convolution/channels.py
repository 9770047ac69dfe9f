"""Channels: feature maps in the layout of native kernels: channels last, with one stride between pixels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from puregraph.ops.ir.channelslast import channelsLast
from puregraph.ops.ir.elementlayout import OutputTiling, copies, elementStrides, isReal
from puregraph.ops.ir.value import Call, Value
from puregraph.ops.native.llvm.kernelcall import KernelCall

if TYPE_CHECKING:
    from puregraph.compile.lower.workspace import LoweringWorkspace


def pixelStride(value: Value) -> int | None:
    """The stride in elements between pixels of channels-last feature maps; None for another layout."""
    size = value.dtype.itemsize
    n, c, *spatial = value.shape
    strides = [s // size for s in value.strides]
    if c > 1 and strides[1] != 1:
        return None
    axes = [(m, s) for m, s in zip((n, *spatial), (strides[0], *strides[2:])) if m > 1]
    pixel = axes[-1][1] if axes else c
    for (_, outer), (m, inner) in zip(axes, axes[1:]):
        if outer != m * inner:
            return None
    return pixel if pixel >= c else None


def toChannelsLast(value: Value, workspace: LoweringWorkspace) -> tuple[Any, int, list[KernelCall]]:
    """Feature maps as channels last: location, pixel stride, and the kernel calls that copy them if needed."""
    pixel = pixelStride(value)
    if pixel is not None:
        return value, pixel, []
    to, strides = workspace(value.size, value.dtype), channelsLast(value.shape)
    return to, value.shape[1], copies(value, to, value.shape, elementStrides(value), strides, value.dtype.itemsize)


def channelTiling(call: Call) -> OutputTiling | None:
    """The output tiling of feature maps: a row for each pixel, a column for each channel."""
    (y,) = call.outs
    arrays = [a for a in call.arguments if type(a) is Value]
    if y.ndim not in (3, 4, 5) or not isReal(y, *arrays) or pixelStride(y) is None:
        return None
    return OutputTiling((0, *range(2, y.ndim)), 1)
