"""Convolution lowering: the convolution and its two gradients as native kernel calls."""

from __future__ import annotations

from typing import TYPE_CHECKING

from puregraph.ops.convolution.channels import channelTiling, toChannelsLast
from puregraph.ops.convolution.native import convolution
from puregraph.ops.convolution.native.geometry import geometry
from puregraph.ops.convolution.reference import convolve, convolveData, convolveWeight
from puregraph.ops.ir.elementlayout import OutputTiling, isReal, isRowMajor, realOf
from puregraph.ops.ir.value import Call
from puregraph.ops.native.llvm.kernelcall import KernelCall
from puregraph.ops.operation import op

if TYPE_CHECKING:
    from puregraph.compile.lower.workspace import LoweringWorkspace
    from puregraph.ops.ir.value import Value
    from puregraph.ops.native.llvm.kernelcall import EpilogueSpec


def convolutionTiling(call: Call) -> OutputTiling | None:
    """The output tiling of a convolution, if its filters are contiguous."""
    return channelTiling(call) if isRowMajor(call.arguments[1]) else None


@op(convolve).lower
def lowerConvolve(call: Call, epilogue: EpilogueSpec, workspace: LoweringWorkspace) -> list[KernelCall] | None:
    """y = x * W: filters packed, feature maps channels last, with an epilogue."""
    x, W, stride, pad, dilation, groups = call.arguments
    g = geometry(x.shape, W.shape, stride, pad, dilation, groups, real=realOf(x))
    if isRowMajor(x) and convolution.takesPlanes(g):
        before: list[KernelCall] = []
        where, pixel = x, 1
    else:
        where, pixel, before = toChannelsLast(x, workspace)
    return [*before, *inChunks(W, convolution.filtersOf(g, False), workspace, where, epilogue, pixel)]


@op(convolveData).lower
def lowerConvolveData(call: Call, epilogue: EpilogueSpec, workspace: LoweringWorkspace) -> list[KernelCall] | None:
    """dx of y = x * W: every pixel of x gathers the gradients of the windows that contain it."""
    grad, W, shape, stride, pad, dilation, groups = call.arguments
    g = geometry(shape, W.shape, stride, pad, dilation, groups, real=realOf(grad))
    where, pixel, before = toChannelsLast(grad, workspace)
    return [*before, *inChunks(W, convolution.filtersOf(g, True), workspace, where, epilogue, pixel)]


def inChunks(
    W: Value, filters: convolution.Filters, workspace: LoweringWorkspace, x: Value, epilogue: EpilogueSpec, pixel: int
) -> list[KernelCall]:
    """The calls that pack a weight, then those that use it; in chunks if it is large and packed for a single use."""
    if filters.chunks == 1 or workspace.keeps(W):
        packed, first = workspace.packed(W, filters.size, lambda to: filters.pack(W, to))
        return [*first, *filters.convolve(x, packed, epilogue, pixel)]
    to = workspace(filters.part, W.dtype)
    return [
        work
        for chunk in range(filters.chunks)
        for work in (*filters.pack(W, to, chunk), *filters.convolve(x, to, epilogue, pixel, chunk))
    ]


op(convolve, convolveData).declare(tiling=convolutionTiling)


@op(convolveWeight).lower
def lowerConvolveWeight(call: Call, workspace: LoweringWorkspace) -> list[KernelCall] | None:
    """dW of y = x * W: for each tap, the sum over samples and pixels of grad times x."""
    grad, x, size, stride, pad, dilation, groups = call.arguments
    (dW,) = call.outs
    if not isReal(grad, x, dW) or dW.ndim not in (3, 4, 5) or not isRowMajor(dW):
        return None
    g = geometry(x.shape, dW.shape, stride, pad, dilation, groups, real=realOf(x))
    gradAt, gradPixel, gradCopies = toChannelsLast(grad, workspace)
    xAt, xPixel, xCopies = toChannelsLast(x, workspace)
    temporary = workspace(max(1, convolution.weightWorkspace(g)), dW.dtype)
    return [*gradCopies, *xCopies, *convolution.weightGradient(gradAt, xAt, dW, temporary, g, gradPixel, xPixel)]
