"""Convolution: its sums, and those of its two gradients."""

from __future__ import annotations

from typing import Any

from puregraph.compile.lower import Frame, lowers
from puregraph.compile.lowerings.maps import laidLast, ofMaps
from puregraph.compile.lowerings.numbers import isPlain, isSingle
from puregraph.compile.value import Call
from puregraph.kernels.convolution import convolve, convolveData, convolveWeight
from puregraph.native import convolution
from puregraph.native.geometry import geometry
from puregraph.native.work import Work


def ofSums(call: Call) -> Frame | None:
    """As for other maps, where the filters lie without gaps."""
    return ofMaps(call) if isPlain(call.arguments[1]) else None


@lowers(convolve)
def lowerConvolve(call: Call, finish: Any, room: Any) -> list[Work] | None:
    """y = x * W: filters packed, maps channels last, what follows done as the sums are finished."""
    x, W, stride, pad, dilation, groups = call.arguments
    g = geometry(x.shape, W.shape, stride, pad, dilation, groups)
    packed, pack = room.packed(W, convolution.forwardRoom(g), lambda to: convolution.packForward(W, to, g))
    if isPlain(x) and convolution.takesPlanes(g):
        where, pixel, before = x, 1, []
    else:
        where, pixel, before = laidLast(x, room)
    return [*before, *pack, *convolution.forward(where, packed, finish, g, pixel)]


@lowers(convolveData)
def lowerConvolveData(call: Call, finish: Any, room: Any) -> list[Work] | None:
    """dx of y = x * W: every pixel of x gathers the gradients of the windows that it lies in."""
    grad, W, shape, stride, pad, dilation, groups = call.arguments
    g = geometry(shape, W.shape, stride, pad, dilation, groups)
    packed, pack = room.packed(W, convolution.dataRoom(g), lambda to: convolution.packData(W, to, g))
    where, pixel, before = laidLast(grad, room)
    return [*before, *pack, *convolution.dataGradient(where, packed, finish, g, pixel)]


lowerConvolve.frame = lowerConvolveData.frame = ofSums


@lowers(convolveWeight)
def lowerConvolveWeight(call: Call, room: Any) -> list[Work] | None:
    """dW of y = x * W: for each tap, sums over the samples and pixels of grad times x."""
    grad, x, size, stride, pad, dilation, groups = call.arguments
    (dW,) = call.outs
    if not isSingle(grad, x, dW) or dW.ndim not in (3, 4, 5) or not isPlain(dW):
        return None
    g = geometry(x.shape, dW.shape, stride, pad, dilation, groups)
    gradAt, gradPixel, one = laidLast(grad, room)
    xAt, xPixel, two = laidLast(x, room)
    temporary = room(max(1, convolution.weightRoom(g)))
    return [*one, *two, *convolution.weightGradient(gradAt, xAt, dW, temporary, g, gradPixel, xPixel)]
