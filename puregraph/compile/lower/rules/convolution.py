"""Convolution lowering: the convolution and its two gradients as native kernel calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from puregraph.compile.ir.value import Call
from puregraph.compile.lower.matmul import OutputTiling
from puregraph.compile.lower.registry import lowers
from puregraph.compile.lower.rules.channels import channelTiling, toChannelsLast
from puregraph.compile.lower.rules.elementlayout import isRowMajor, isSingle
from puregraph.kernels.convolution import convolve, convolveData, convolveWeight
from puregraph.native.conv import convolution
from puregraph.native.conv.geometry import Geometry, geometry
from puregraph.native.llvm.kernelcall import KernelCall


def convolutionTiling(call: Call) -> OutputTiling | None:
    """The output tiling of a convolution, if its filters are contiguous."""
    return channelTiling(call) if isRowMajor(call.arguments[1]) else None


@lowers(convolve)
def lowerConvolve(call: Call, epilogue: Any, workspace: Any) -> list[KernelCall] | None:
    """y = x * W: filters packed, feature maps channels last, with an epilogue."""
    x, W, stride, pad, dilation, groups = call.arguments
    g = geometry(x.shape, W.shape, stride, pad, dilation, groups)
    if isRowMajor(x) and convolution.takesPlanes(g):
        before: list[KernelCall] = []
        where, pixel = x, 1
    else:
        where, pixel, before = toChannelsLast(x, workspace)

    def use(packed: Any, chunk: int | None) -> list[KernelCall]:
        return convolution.forward(where, packed, epilogue, g, pixel, chunk)

    return [*before, *inChunks(W, g, workspace, False, use)]


@lowers(convolveData)
def lowerConvolveData(call: Call, epilogue: Any, workspace: Any) -> list[KernelCall] | None:
    """dx of y = x * W: every pixel of x gathers the gradients of the windows that contain it."""
    grad, W, shape, stride, pad, dilation, groups = call.arguments
    g = geometry(shape, W.shape, stride, pad, dilation, groups)
    where, pixel, before = toChannelsLast(grad, workspace)

    def use(packed: Any, chunk: int | None) -> list[KernelCall]:
        return convolution.dataGradient(where, packed, epilogue, g, pixel, chunk)

    return [*before, *inChunks(W, g, workspace, True, use)]


def inChunks(
    W: Any, g: Geometry, workspace: Any, isData: bool, use: Callable[[Any, int | None], list[KernelCall]]
) -> list[KernelCall]:
    """The calls that pack a weight and those that use it; chunk by chunk where it is large and packed for one use."""
    size = convolution.dataPackedSize if isData else convolution.forwardPackedSize
    pack = convolution.packData if isData else convolution.packForward
    chunks, part = convolution.weightChunks(g, isData)
    if chunks == 1 or workspace.keeps(W):
        packed, first = workspace.packed(W, size(g), lambda to: pack(W, to, g))
        return [*first, *use(packed, None)]
    to = workspace(part)
    return [work for chunk in range(chunks) for work in (*pack(W, to, g, chunk), *use(to, chunk))]


lowerConvolve.tiling = lowerConvolveData.tiling = convolutionTiling


@lowers(convolveWeight)
def lowerConvolveWeight(call: Call, workspace: Any) -> list[KernelCall] | None:
    """dW of y = x * W: for each tap, the sum over samples and pixels of grad times x."""
    grad, x, size, stride, pad, dilation, groups = call.arguments
    (dW,) = call.outs
    if not isSingle(grad, x, dW) or dW.ndim not in (3, 4, 5) or not isRowMajor(dW):
        return None
    g = geometry(x.shape, dW.shape, stride, pad, dilation, groups)
    gradAt, gradPixel, one = toChannelsLast(grad, workspace)
    xAt, xPixel, two = toChannelsLast(x, workspace)
    temporary = workspace(max(1, convolution.weightWorkspace(g)))
    return [*one, *two, *convolution.weightGradient(gradAt, xAt, dW, temporary, g, gradPixel, xPixel)]
