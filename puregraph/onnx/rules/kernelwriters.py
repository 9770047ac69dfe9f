"""KernelCalls: convolutions, pools, tables and attention, and their gradients, as operators of ONNX."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from puregraph.compile.ir.value import Call
from puregraph.core.tracer import arrayLike
from puregraph.onnx.rules.rulewriter import RuleWriter, inWords, writesCall
from puregraph.ops.reference.attention import FLOOR, attend, attendGrad
from puregraph.ops.reference.convolution import convolve, convolveData, convolveWeight
from puregraph.ops.reference.labels import classIndex, fractions
from puregraph.ops.reference.pooling import area, maxPool, maxPoolGrad, meanPool, meanPoolGrad
from puregraph.ops.reference.recurrent import alive
from puregraph.ops.reference.reduce import firstIndex, unbroadcast
from puregraph.ops.reference.scatter import addAt, gather, putClass, scatterAdd, takeClass
from puregraph.ops.reference.windowgeometry import Window, window

ADDED = "add"


def flatPads(win: Window) -> list[int]:
    """The pads before all axes, then those after them."""
    return [before for before, _ in win.pad] + [after for _, after in win.pad]


@writesCall(convolve)
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


@writesCall(convolveData)
def convolutionData(writer: RuleWriter, call: Call) -> str:
    """ConvTranspose; trailing positions that no window reaches stay zero."""
    grad, W, shape, *geometry, groups = call.arguments
    return transposedConvolution(writer, call, writer.name(grad, call.outs[0].dtype), W, shape, geometry, groups)


def transposedConvolution(
    writer: RuleWriter, call: Call, grad: str, W: Any, shape: Any, geometry: Any, groups: int
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


@writesCall(convolveWeight)
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


@writesCall(maxPool)
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


@writesCall(addAt)
def added(writer: RuleWriter, call: Call) -> str:
    """ScatterElements that adds; an index of -1 adds 0."""
    values, index, size = call.arguments
    at, none = writer.name(index, np.int64), writer.step.constant(0, np.int64)
    zeros = writer.step.constant(np.zeros((values.shape[0], size), values.dtype))
    isThere = writer.op("GreaterOrEqual", at, none)
    updates = writer.op("Where", isThere, writer.name(values), writer.step.constant(0, values.dtype))
    return writer.op("ScatterElements", zeros, writer.op("Max", at, none), updates, axis=1, reduction=ADDED)


@writesCall(gather)
def rowsOf(writer: RuleWriter, call: Call) -> str:
    """Gather; zeros for -1."""
    table, index = call.arguments
    at, none = writer.name(index, np.int64), writer.step.constant(0, np.int64)
    rows = writer.op("Gather", writer.name(table), writer.op("Max", at, none))
    isThere = writer.reshape(writer.op("GreaterOrEqual", at, none), (*index.shape, *[1] * (table.ndim - 1)))
    return writer.op("Where", isThere, rows, writer.step.constant(0, table.dtype))


@writesCall(scatterAdd)
def scattered(writer: RuleWriter, call: Call) -> str:
    """ScatterND that adds to a table with one row more, for -1."""
    grad, index, rows = call.arguments
    width = grad.shape[index.ndim :]
    at = writer.reshape(writer.name(index, np.int64), (index.size, 1))
    isThere = writer.op("GreaterOrEqual", at, writer.step.constant(0, np.int64))
    at = writer.op("Where", isThere, at, writer.step.constant(rows, np.int64))
    table = writer.step.constant(np.zeros((rows + 1, *width), grad.dtype))
    sums = writer.op("ScatterND", table, at, writer.reshape(writer.name(grad), (index.size, *width)), reduction=ADDED)
    return writer.op("Slice", sums, writer.whole(0), writer.whole(rows), writer.whole(0))


@writesCall(classIndex)
def labels(writer: RuleWriter, call: Call) -> str:
    """The labels as int64, -1 for ignored ones; their range is not checked."""
    targets, _, *rest = call.arguments
    ignored = rest[0] if rest else call.options.get("ignored")
    index = writer.name(targets, np.int64)
    if ignored is None:
        return index
    isIgnored = writer.op("Equal", index, writer.step.constant(ignored, np.int64))
    return writer.op("Where", isIgnored, writer.step.constant(-1, np.int64), index)


@writesCall(fractions)
def targets(writer: RuleWriter, call: Call) -> str:
    """The targets as they are; that each is from 0 to 1 is not checked."""
    return writer.name(call.arguments[0])


@writesCall(alive)
def within(writer: RuleWriter, call: Call) -> str:
    """True at positions below each length."""
    lengths, count = call.arguments
    rows = writer.reshape(writer.name(lengths, np.int64), (lengths.shape[0], 1))
    return writer.op("Less", writer.step.constant(np.arange(count)), rows)


# In functions of numpy ------------------------------------------------------------------------------------------------


@inWords(meanPool)
def means(x: Any, size: Any, stride: Any, pad: Any, includePad: bool = True) -> Any:
    """A convolution of each channel with ones, divided by the areas."""
    win = window(x.shape[2:], size, stride, pad)
    n, c = x.shape[:2]
    ones = arrayLike(x, np.ones((1, 1, *win.size), x.dtype))
    sums = convolve(x.reshape(n * c, 1, *win.spatial), ones, win.stride, win.pad, win.dilation, 1)
    return (sums * arrayLike(x, 1 / np.asarray(area(win, includePad, x.dtype), x.dtype))).reshape(n, c, *win.count)


@inWords(meanPoolGrad)
def meansBack(grad: Any, shape: Any, size: Any, stride: Any, pad: Any, includePad: bool = True) -> Any:
    """The adjoint of that."""
    win = window(shape[2:], size, stride, pad)
    n, c = shape[:2]
    ones = arrayLike(grad, np.ones((1, 1, *win.size), grad.dtype))
    shares = grad.reshape(n * c, 1, *win.count) * arrayLike(grad, 1 / np.asarray(area(win, includePad, grad.dtype)))
    shares = shares.astype(grad.dtype, copy=False)
    return convolveData(shares, ones, (n * c, 1, *win.spatial), win.stride, win.pad, win.dilation, 1).reshape(shape)


@inWords(maxPoolGrad)
def maximaBack(grad: Any, indices: Any, shape: Any, *geometry: Any, **options: Any) -> Any:
    """Each gradient added at the position of its maximum."""
    rows = prod(shape[:2])
    flat = [a.reshape(rows, prod(a.shape[2:])) for a in (grad, indices)]
    return addAt(*flat, prod(shape[2:])).reshape(shape)


@inWords(firstIndex)
def first(x: Any, value: Any, axis: int) -> Any:
    """The first that is equal."""
    return np.argmax((x == value) | (x != x), axis)


@inWords(takeClass)
def chosen(x: Any, classes: Any) -> Any:
    """The elements of the classes, zeros for -1."""
    at = np.expand_dims(np.maximum(classes, 0), 1)
    y = np.squeeze(np.take_along_axis(x, at, 1), 1)
    return np.where(classes < 0, x.dtype.type(0), y)


@inWords(putClass)
def placed(values: Any, classes: Any, count: int) -> Any:
    """Each value at the index of its class, 0 elsewhere."""
    classNumbers = arrayLike(values, np.arange(count).reshape(1, -1, *[1] * (values.ndim - 1)))
    return np.where(np.expand_dims(classes, 1) == classNumbers, np.expand_dims(values, 1), values.dtype.type(0))


def scoresOf(q: Any, k: Any, mask: Any, causal: bool, scale: float) -> Any:
    """scale q k' + mask, FLOOR where a key is hidden; heads that share keys are rows of one."""
    t, s = q.shape[2], k.shape[2]
    scores = meet(q, k) * q.dtype.type(scale)
    low = q.dtype.type(2 * FLOOR)
    if mask is not None and mask.dtype == np.dtype(bool):
        scores = np.where(mask, scores, low)
    elif mask is not None:
        scores = scores + mask
    if causal:
        scores = np.where(arrayLike(q, np.tri(t, s, dtype=bool)), scores, low)
    return scores


def meet(rows: Any, others: Any) -> Any:
    """Products of rows with the rows of their head."""
    (n, h, t, d), heads, s = rows.shape, others.shape[1], others.shape[2]
    return (rows.reshape(n, heads, h // heads * t, d) @ others.swapaxes(-1, -2)).reshape(n, h, t, s)


def gathered(weights: Any, values: Any) -> Any:
    """Sums of the values of a head with these weights."""
    (n, h, t, s), heads, e = weights.shape, values.shape[1], values.shape[3]
    return (weights.reshape(n, heads, h // heads * t, s) @ values).reshape(n, h, t, e)


@inWords(attend)
def attention(q: Any, k: Any, v: Any, mask: Any, causal: bool, scale: float) -> Any:
    """All scores at once."""
    scores = scoresOf(q, k, mask, causal, scale)
    top = np.maximum(scores.max(axis=-1, keepdims=True), q.dtype.type(FLOOR))
    p = np.exp(scores - top)
    total = p.sum(axis=-1, keepdims=True)
    seen = np.where(total > 0, total, q.dtype.type(1))
    return gathered(p, v) / seen, top + np.log(seen)


@inWords(attendGrad)
def attentionBack(
    grad: Any, q: Any, k: Any, v: Any, mask: Any, lse: Any, rest: Any, causal: bool, scale: float, ofMask: bool = False
) -> Any:
    """All scores at once."""
    (n, h, t, d), (_, heads, s, _), e = q.shape, k.shape, v.shape[3]
    p = np.exp(scoresOf(q, k, mask, causal, scale) - lse)
    ds = p * (meet(grad, v) - rest)
    rows = (n, heads, h // heads * t)
    transposed = [a.reshape(*rows, s).swapaxes(-1, -2) for a in (ds, p)]
    dk, dv = transposed[0] @ q.reshape(*rows, d), transposed[1] @ grad.reshape(*rows, e)
    factor = q.dtype.type(scale)
    grads = (gathered(ds, k) * factor, dk * factor, dv)
    return (*grads, unbroadcast(ds, mask.shape)) if ofMask else grads
