"""Kernels: what native work each Kernel of numpy becomes. What is not here is carried out by its numpy reference."""

from __future__ import annotations

from typing import Any

import numpy as np

from puregraph.compile.layout import channelsLast
from puregraph.compile.lower import Frame, lowers
from puregraph.compile.value import Call, Value
from puregraph.formula import Formula
from puregraph.kernels.convolution import convolve, convolveData, convolveWeight
from puregraph.native import convolution
from puregraph.native.geometry import geometry
from puregraph.native.nest import Nest, Operand, works
from puregraph.native.work import Work

SINGLE = np.dtype(np.float32)


def pixelOf(value: Value) -> int | None:
    """How many numbers lie between neighbouring pixels of maps that are laid out channels last; None if they are not."""
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


def laidLast(value: Value, room: Any) -> tuple[Any, int, list[Work]]:
    """The maps channels last: where they are, the distance of their pixels, and the work that takes."""
    pixel = pixelOf(value)
    if pixel is not None:
        return value, pixel, []
    to = room(value.size)
    return to, value.shape[1], copies(value, to, value.shape, strided(value), channelsLast(value.shape))


def strided(value: Value) -> tuple[int, ...]:
    """Strides in numbers, 0 along axes of length one."""
    return tuple([s // value.dtype.itemsize if n > 1 else 0 for n, s in zip(value.shape, value.strides)])


def copies(x: Any, y: Any, shape: tuple[int, ...], xStrides: tuple[int, ...], yStrides: tuple[int, ...]) -> list[Work]:
    """The numbers of x in the order of y."""
    nest = Nest(shape, {"x": Operand("f32", x, xStrides)}, (("y", Formula("x")),), {"y": Operand("f32", y, yStrides)})
    return works(nest, lambda count: None)


def isSingle(*values: Any) -> bool:
    return all(type(v) is Value and v.dtype == SINGLE and 0 not in v.shape for v in values)


def isPlain(value: Value) -> bool:
    """Whether the numbers lie row by row without gaps."""
    step = value.dtype.itemsize
    for n, s in zip(reversed(value.shape), reversed(value.strides)):
        if n > 1 and s != step:
            return False
        step *= n
    return True


# Convolution --------------------------------------------------------------------------------------------------------


def ofMaps(call: Call) -> Frame | None:
    """Sums of a convolution: a row for each pixel, a column for each map."""
    (y,) = call.outs
    arrays = [a for a in call.arguments if type(a) is Value]
    if y.ndim not in (3, 4, 5) or not isSingle(y, *arrays) or pixelOf(y) is None or not isPlain(arrays[1]):
        return None
    return Frame((0, *range(2, y.ndim)), 1)


@lowers(convolve)
def lowerConvolve(call: Call, finish: Any, room: Any) -> list[Work] | None:
    x, W, stride, pad, dilation, groups = call.arguments
    g = geometry(x.shape, W.shape, stride, pad, dilation, groups)
    packed = room(convolution.forwardRoom(g))
    where, pixel, before = laidLast(x, room)
    return [*before, *convolution.packForward(W, packed, g), *convolution.forward(where, packed, finish, g, pixel)]


@lowers(convolveData)
def lowerConvolveData(call: Call, finish: Any, room: Any) -> list[Work] | None:
    grad, W, shape, stride, pad, dilation, groups = call.arguments
    g = geometry(shape, W.shape, stride, pad, dilation, groups)
    packed = room(convolution.dataRoom(g))
    where, pixel, before = laidLast(grad, room)
    return [*before, *convolution.packData(W, packed, g), *convolution.dataGradient(where, packed, finish, g, pixel)]


lowerConvolve.frame = lowerConvolveData.frame = ofMaps


@lowers(convolveWeight)
def lowerConvolveWeight(call: Call, room: Any) -> list[Work] | None:
    grad, x, size, stride, pad, dilation, groups = call.arguments
    (dW,) = call.outs
    if not isSingle(grad, x, dW) or dW.ndim not in (3, 4, 5) or not isPlain(dW):
        return None
    g = geometry(x.shape, dW.shape, stride, pad, dilation, groups)
    gradAt, gradPixel, one = laidLast(grad, room)
    xAt, xPixel, two = laidLast(x, room)
    temporary = room(max(1, convolution.weightRoom(g)))
    return [*one, *two, *convolution.weightGradient(gradAt, xAt, dW, temporary, g, gradPixel, xPixel)]
