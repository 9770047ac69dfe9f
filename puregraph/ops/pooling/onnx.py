"""Pooling as operators of ONNX: MaxPool; means as convolutions with ones."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from puregraph.core.tracer import arrayLike
from puregraph.ops.convolution.onnx import flatPads
from puregraph.ops.convolution.reference import convolve, convolveData
from puregraph.ops.convolution.windowgeometry import window
from puregraph.ops.gather.reference import addAt
from puregraph.ops.ir.value import Call
from puregraph.ops.operation import op
from puregraph.ops.pooling.reference import area, maxPool, maxPoolGrad, meanPool, meanPoolGrad

if TYPE_CHECKING:
    from collections.abc import Sequence

    from puregraph.core.protocols import AnyArray
    from puregraph.onnx.rules.rulewriter import RuleWriter


@op(maxPool).onnx
def maxima(writer: RuleWriter, call: Call) -> list[str]:
    """MaxPool, whose indices count through all samples and channels."""
    x, *geometry = call.arguments
    win = window(x.shape[2:], *geometry)
    names = [writer.step.fresh("maxpool"), writer.step.fresh("indices")]
    writer.op(
        "MaxPool",
        writer.name(x),
        out=names,
        kernel_shape=list(win.size),
        strides=list(win.stride),
        dilations=list(win.dilation) if set(win.dilation) != {1} else None,
        pads=flatPads(win),
    )
    planeSize = writer.step.constant(prod(win.spatial), np.int64)
    return [names[0], writer.cast(writer.op("Mod", names[1], planeSize), np.int32)]


@op(meanPool).words
def means(
    x: AnyArray, size: Sequence[int], stride: Sequence[int], pad: Sequence[Sequence[int]], includePad: bool = True
) -> Any:
    """A convolution of each channel with ones, divided by the areas."""
    win = window(x.shape[2:], size, stride, pad)
    n, c = x.shape[:2]
    ones = arrayLike(x, np.ones((1, 1, *win.size), x.dtype))
    sums = convolve(x.reshape(n * c, 1, *win.spatial), ones, win.stride, win.pad, win.dilation, 1)
    return (sums * arrayLike(x, 1 / np.asarray(area(win, includePad, x.dtype), x.dtype))).reshape(n, c, *win.count)


@op(meanPoolGrad).words
def meansBack(
    grad: AnyArray,
    shape: Sequence[int],
    size: tuple[int, ...],
    stride: Sequence[int],
    pad: Sequence[Sequence[int]],
    includePad: bool = True,
) -> AnyArray:
    """The gradient of mean pooling: the transposed convolution with ones, of gradients divided by the areas."""
    win = window(shape[2:], size, stride, pad)
    n, c = shape[:2]
    ones = arrayLike(grad, np.ones((1, 1, *win.size), grad.dtype))
    shares = grad.reshape(n * c, 1, *win.count) * arrayLike(grad, 1 / np.asarray(area(win, includePad, grad.dtype)))
    shares = shares.astype(grad.dtype, copy=False)
    return convolveData(shares, ones, (n * c, 1, *win.spatial), win.stride, win.pad, win.dilation, 1).reshape(shape)


@op(maxPoolGrad).words
def maximaBack(grad: AnyArray, indices: AnyArray, shape: Sequence[int], *geometry: Any, **options: object) -> AnyArray:
    """Each gradient added at the position of its maximum."""
    rows = prod(shape[:2])
    flat = [a.reshape(rows, prod(a.shape[2:])) for a in (grad, indices)]
    return addAt(*flat, prod(shape[2:])).reshape(shape)
