"""Convolution: its sums, and those of its two gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from puregraph.compile.ir.value import Call
from puregraph.compile.lower.matmul import OutputTiling
from puregraph.compile.lower.registry import lowers
from puregraph.compile.lower.rules.channels import laidLast, ofMaps
from puregraph.compile.lower.rules.elementlayout import isPlain, isSingle
from puregraph.kernels.convolution import convolve, convolveData, convolveWeight
from puregraph.native.conv import convolution
from puregraph.native.conv.geometry import Geometry, geometry
from puregraph.native.llvm.kernelcall import KernelCall


def ofSums(call: Call) -> OutputTiling | None:
    """As for other maps, where the filters lie without gaps."""
    return ofMaps(call) if isPlain(call.arguments[1]) else None


@lowers(convolve)
def lowerConvolve(call: Call, finish: Any, room: Any) -> list[KernelCall] | None:
    """y = x * W: filters packed, maps channels last, what follows done as the sums are finished."""
    x, W, stride, pad, dilation, groups = call.arguments
    g = geometry(x.shape, W.shape, stride, pad, dilation, groups)
    if isPlain(x) and convolution.takesPlanes(g):
        where, pixel, before = x, 1, []
    else:
        where, pixel, before = laidLast(x, room)

    def use(packed: Any, turn: int | None) -> list[KernelCall]:
        return convolution.forward(where, packed, finish, g, pixel, turn)

    return [*before, *inTurns(W, g, room, False, use)]


@lowers(convolveData)
def lowerConvolveData(call: Call, finish: Any, room: Any) -> list[KernelCall] | None:
    """dx of y = x * W: every pixel of x gathers the gradients of the windows that it lies in."""
    grad, W, shape, stride, pad, dilation, groups = call.arguments
    g = geometry(shape, W.shape, stride, pad, dilation, groups)
    where, pixel, before = laidLast(grad, room)

    def use(packed: Any, turn: int | None) -> list[KernelCall]:
        return convolution.dataGradient(where, packed, finish, g, pixel, turn)

    return [*before, *inTurns(W, g, room, True, use)]


def inTurns(
    W: Any, g: Geometry, room: Any, isData: bool, use: Callable[[Any, int | None], list[KernelCall]]
) -> list[KernelCall]:
    """What packs a weight, and what then uses it: once, or where it is large and made for one use, part by part."""
    size = convolution.dataPackedSize if isData else convolution.forwardPackedSize
    pack = convolution.packData if isData else convolution.packForward
    turns, part = convolution.weightChunks(g, isData)
    if turns == 1 or room.keeps(W):
        packed, first = room.packed(W, size(g), lambda to: pack(W, to, g))
        return [*first, *use(packed, None)]
    to = room(part)
    return [work for turn in range(turns) for work in (*pack(W, to, g, turn), *use(to, turn))]


lowerConvolve.frame = lowerConvolveData.frame = ofSums


@lowers(convolveWeight)
def lowerConvolveWeight(call: Call, room: Any) -> list[KernelCall] | None:
    """dW of y = x * W: for each tap, sums over the samples and pixels of grad times x."""
    grad, x, size, stride, pad, dilation, groups = call.arguments
    (dW,) = call.outs
    if not isSingle(grad, x, dW) or dW.ndim not in (3, 4, 5) or not isPlain(dW):
        return None
    g = geometry(x.shape, dW.shape, stride, pad, dilation, groups)
    gradAt, gradPixel, one = laidLast(grad, room)
    xAt, xPixel, two = laidLast(x, room)
    temporary = room(max(1, convolution.weightWorkspace(g)))
    return [*one, *two, *convolution.weightGradient(gradAt, xAt, dW, temporary, g, gradPixel, xPixel)]
