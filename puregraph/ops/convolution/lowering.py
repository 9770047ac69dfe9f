"""Convolution lowering: the convolution and its two gradients as native kernel calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from puregraph.core.opensize import largest
from puregraph.ops.convolution.channels import channelTiling, toChannelsLast
from puregraph.ops.convolution.native import convolution
from puregraph.ops.convolution.native.geometry import geometry
from puregraph.ops.convolution.native.roundpixels import roundPixels
from puregraph.ops.convolution.reference import convolve, convolveData, convolveWeight
from puregraph.ops.ir.elementlayout import OutputTiling, isReal, isRowMajor, realOf, roundsFactors
from puregraph.ops.ir.value import Call
from puregraph.ops.native.llvm import jit
from puregraph.ops.native.llvm.kernelcall import EpilogueSpec, KernelCall
from puregraph.ops.operation import op
from puregraph.ops.product.native.gemm import gemm, worthRounding

if TYPE_CHECKING:
    from puregraph.compile.lower.workspace import LoweringWorkspace
    from puregraph.ops.ir.value import Value


def convolutionTiling(call: Call) -> OutputTiling | None:
    """The output tiling of a convolution, if its filters are contiguous."""
    return channelTiling(call) if isRowMajor(call.arguments[1]) else None


@op(convolve).lower
def lowerConvolve(call: Call, epilogue: EpilogueSpec, workspace: LoweringWorkspace) -> list[KernelCall] | None:
    """y = x * W: filters packed, feature maps channels last, with an epilogue."""
    x, W, stride, pad, dilation, groups = call.arguments
    g = geometry(x.shape, W.shape, stride, pad, dilation, groups, real=realOf(x), halves=roundsFactors(call))
    if isRowMajor(x) and convolution.takesPlanes(g):
        before: list[KernelCall] = []
        where, pixel = x, 1
    else:
        where, pixel, before = toChannelsLast(x, workspace)
    return [*before, *convolved(x, W, convolution.filtersOf(g, False), workspace, where, epilogue, pixel)]


@op(convolveData).lower
def lowerConvolveData(call: Call, epilogue: EpilogueSpec, workspace: LoweringWorkspace) -> list[KernelCall] | None:
    """dx of y = x * W: every pixel of x gathers the gradients of the windows that contain it."""
    grad, W, shape, stride, pad, dilation, groups = call.arguments
    g = geometry(shape, W.shape, stride, pad, dilation, groups, real=realOf(grad), halves=roundsFactors(call))
    where, pixel, before = toChannelsLast(grad, workspace)
    return [*before, *convolved(grad, W, convolution.filtersOf(g, True), workspace, where, epilogue, pixel)]


def convolved(
    maps: Value,
    W: Value,
    filters: convolution.Filters,
    workspace: LoweringWorkspace,
    x: Any,
    epilogue: EpilogueSpec,
    pixel: int,
) -> list[KernelCall]:
    """The calls that convolve feature maps, stored channels last at x, after they are rounded if filters ask for it."""
    if not filters.halves:
        return inChunks(W, filters, workspace, x, epilogue, pixel)
    channels = maps.shape[1]
    pairs, pixels = workspace(maps.size // 2, maps.dtype), maps.size // channels
    works = inChunks(W, filters, workspace, pairs, epilogue, channels // 2)
    return [roundPixels(x, pixels, channels, pixel, pairs), *works]


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
    g = geometry(x.shape, dW.shape, stride, pad, dilation, groups, real=realOf(x), halves=roundsFactors(call))
    gradAt, gradPixel, gradCopies = toChannelsLast(grad, workspace)
    xAt, xPixel, xCopies = toChannelsLast(x, workspace)
    before = [*gradCopies, *xCopies]
    sizes = g.o, g.c, g.n * g.pixels
    if g.halves and g.isPointwise and g.groups == 1 and worthRounding(*sizes):  # a product over all pixels
        steps, to, lanes = ((1, gradPixel), (xPixel, 1)), EpilogueSpec(dW, g.c), jit.lanes(4)
        return [*before, *gemm(gradAt, xAt, to, *sizes, *steps, lanes=lanes, workspace=workspace, halves=True)]
    temporary = workspace(largest(1, convolution.weightWorkspace(g)), dW.dtype)
    return [*before, *convolution.weightGradient(gradAt, xAt, dW, temporary, g, gradPixel, xPixel)]
