"""Kernels: what native work each Kernel of numpy becomes. What is not here is carried out by its numpy reference."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from puregraph.compile.layout import channelsLast
from puregraph.compile.lower import At, Frame, collapsed, lowers
from puregraph.compile.strides import contiguous
from puregraph.compile.value import Call, Value, copy, fill, put, store
from puregraph.formula import Formula
from puregraph.kernels.attention import attend, attendGrad
from puregraph.kernels.classes import classIndex
from puregraph.kernels.convolution import convolve, convolveData, convolveWeight
from puregraph.kernels.pooling import maxPool, maxPoolGrad, meanPool, meanPoolGrad
from puregraph.kernels.random import uniform
from puregraph.kernels.recurrent import (
    forward,
    gruBack,
    gruStep,
    lstmBack,
    lstmStep,
    reluBack,
    reluStep,
    tanhBack,
    tanhStep,
    throughTime,
)
from puregraph.kernels.scatter import gather, scatterAdd
from puregraph.native import attention, convolution, lookup, philox, pool, pooling, recurrent
from puregraph.native.attention import Heads, Mask, Sizes
from puregraph.native.geometry import geometry
from puregraph.native.move import fill as filled
from puregraph.native.move import move
from puregraph.native.nest import Nest, Operand, works
from puregraph.native.recurrent import Track
from puregraph.native.work import Finish, Work

SINGLE = np.dtype(np.float32)
KINDS = {1: "i8", 4: "f32", 8: "f64"}  # by bytes: as what numbers are moved


def pixelOf(value: Value) -> int | None:
    """How many numbers lie between neighbouring pixels of maps laid out channels last; None if they are not."""
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


def copies(
    x: Any, y: Any, shape: tuple[int, ...], xStrides: tuple[int, ...], yStrides: tuple[int, ...], size: int = 4
) -> list[Work]:
    """The numbers of x, of so many bytes each, in the order of y."""
    return move(KINDS[size], x, shape, xStrides, y, yStrides)


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
    if y.ndim not in (3, 4, 5) or not isSingle(y, *arrays) or pixelOf(y) is None:
        return None
    if call.function in (convolve, convolveData) and not isPlain(arrays[1]):
        return None
    return Frame((0, *range(2, y.ndim)), 1)


@lowers(convolve)
def lowerConvolve(call: Call, finish: Any, room: Any) -> list[Work] | None:
    x, W, stride, pad, dilation, groups = call.arguments
    g = geometry(x.shape, W.shape, stride, pad, dilation, groups)
    packed, pack = room.packed(W, convolution.forwardRoom(g), lambda to: convolution.packForward(W, to, g))
    where, pixel, before = laidLast(x, room)
    return [*before, *pack, *convolution.forward(where, packed, finish, g, pixel)]


@lowers(convolveData)
def lowerConvolveData(call: Call, finish: Any, room: Any) -> list[Work] | None:
    grad, W, shape, stride, pad, dilation, groups = call.arguments
    g = geometry(shape, W.shape, stride, pad, dilation, groups)
    packed, pack = room.packed(W, convolution.dataRoom(g), lambda to: convolution.packData(W, to, g))
    where, pixel, before = laidLast(grad, room)
    return [*before, *pack, *convolution.dataGradient(where, packed, finish, g, pixel)]


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


# Pooling ------------------------------------------------------------------------------------------------------------


def windowsOn(shape: Any, size: Any, stride: Any, pad: Any, dilation: Any = 1) -> Any:
    """How windows lie on maps, each map by itself."""
    c = shape[1]
    size = tuple(size) if isinstance(size, (tuple, list)) else (size,) * (len(shape) - 2)
    return geometry(shape, (c, 1, *size), stride, pad, dilation, c)


@lowers(maxPool)
def lowerMaxPool(call: Call, room: Any) -> list[Work] | None:
    x, size, stride, pad, *rest = call.arguments
    y, indices = call.outs
    if not isSingle(x, y) or x.ndim not in (3, 4, 5) or pixelOf(y) is None or pixelOf(indices) != x.shape[1]:
        return None
    where, pixel, before = laidLast(x, room)
    g = windowsOn(x.shape, size, stride, pad, rest[0] if rest else call.options.get("dilation", 1))
    return [*before, *pooling.maxForward(where, indices, Finish(y, pixelOf(y) or 0), g, pixel)]


@lowers(maxPoolGrad)
def lowerMaxPoolGrad(call: Call, finish: Any, room: Any) -> list[Work] | None:
    grad, indices, shape = call.arguments
    g = windowsOf(indices)
    where, pixel, before = laidLast(grad, room)
    return [*before, *pooling.maxGradient(where, indices, finish, g, pixel)]


def windowsOf(indices: Value) -> Any:
    """The windows that indices were found with."""
    made = indices.call
    if made is None or made.function is not maxPool or pixelOf(indices) != indices.shape[1]:
        return None
    x, size, stride, pad, *rest = made.arguments
    return windowsOn(x.shape, size, stride, pad, rest[0] if rest else made.options.get("dilation", 1))


def ofPeaks(call: Call) -> Frame | None:
    """As for other maps, where it is known with which windows the peaks were found."""
    grad, indices, _ = call.arguments
    (y,) = call.outs
    isKnown = isSingle(grad, y) and y.ndim in (3, 4, 5) and pixelOf(y) is not None and windowsOf(indices) is not None
    return Frame((0, *range(2, y.ndim)), 1) if isKnown else None


@lowers(meanPool)
def lowerMeanPool(call: Call, finish: Any, room: Any) -> list[Work] | None:
    x, size, stride, pad, *rest = call.arguments
    includePad = rest[0] if rest else call.options.get("includePad", True)
    where, pixel, before = laidLast(x, room)
    return [*before, *pooling.meanForward(where, finish, windowsOn(x.shape, size, stride, pad), includePad, pixel)]


@lowers(meanPoolGrad)
def lowerMeanPoolGrad(call: Call, finish: Any, room: Any) -> list[Work] | None:
    grad, shape, size, stride, pad, *rest = call.arguments
    includePad = rest[0] if rest else call.options.get("includePad", True)
    where, pixel, before = laidLast(grad, room)
    return [*before, *pooling.meanGradient(where, finish, windowsOn(shape, size, stride, pad), includePad, pixel)]


lowerMaxPoolGrad.frame = ofPeaks
lowerMeanPool.frame = lowerMeanPoolGrad.frame = ofMaps


# Attention ----------------------------------------------------------------------------------------------------------


def headsOf(value: Value) -> Heads | None:
    """Rows of numbers that lie side by side; None if they do not."""
    *lead, last = strided(value)
    return Heads(value, tuple(lead)) if last == 1 or value.shape[-1] == 1 else None


def plainly(value: Value, room: Any) -> tuple[Any, list[Work]]:
    """The numbers row by row: where they are, and the work that takes."""
    if isPlain(value):
        return value, []
    to = room(value.size)
    own = tuple(s // 4 for s in contiguous(value.shape, 4))
    return to, copies(value, to, value.shape, strided(value), own)


def sizesOf(q: Value, k: Value, v: Value) -> Sizes:
    n, h, t, d = q.shape
    return Sizes(n, h, k.shape[1], t, k.shape[2], d, v.shape[3])


def maskOf(mask: Any, q: Value, k: Value) -> Any:
    """The mask as native code takes it; False if it cannot be taken so."""
    if mask is None:
        return None
    kind = {"bool": "i8", "float32": "f32"}.get(mask.dtype.name)
    strides = spread(mask, (*q.shape[:3], k.shape[2]))
    return Mask(kind, mask, strides) if kind and strides[3] in (0, 1) else False


@lowers(attend)
def lowerAttend(call: Call, room: Any) -> list[Work] | None:
    q, k, v, mask, causal, scale = call.arguments
    y, lse = call.outs
    heads, hides = [headsOf(x) for x in (q, k, v, y)], maskOf(mask, q, k)
    if not isSingle(q, k, v, y, lse) or None in heads or hides is False or not isPlain(lse):
        return None
    return attention.attend(*heads, lse, sizesOf(q, k, v), causal, float(scale), hides)


@lowers(attendGrad)
def lowerAttendGrad(call: Call, room: Any) -> list[Work] | None:
    grad, q, k, v, mask, lse, rest, causal, scale, ofMask = call.arguments
    if ofMask or len(call.outs) != 3 or not isSingle(grad, q, k, v, lse, rest, *call.outs):
        return None
    heads, hides = [headsOf(x) for x in (q, k, v, *call.outs)], maskOf(mask, q, k)
    if None in heads or hides is False:
        return None
    before: list[Work] = []
    g = headsOf(grad)
    if g is None:
        where, before = plainly(grad, room)
        g = Heads(where, tuple(s // 4 for s in contiguous(grad.shape, 4)[:3]))
    lseAt, one = plainly(lse, room)
    restAt, two = plainly(rest, room)
    rows = heads[:3], heads[3:]
    work = attention.attendGrad(g, *rows[0], lseAt, restAt, *rows[1], sizesOf(q, k, v), causal, float(scale), hides)
    return [*before, *one, *two, *work]


# Recurrent cells ----------------------------------------------------------------------------------------------------

STEPS = {tanhStep: "tanh", reluStep: "relu", lstmStep: "lstm", gruStep: "gru"}
BACKS = {tanhBack: "tanh", reluBack: "relu", lstmBack: "lstm", gruBack: "gru"}


def trackOf(value: Value) -> Track | None:
    """Numbers of every sample and moment, those of one moment side by side."""
    n, t, last = strided(value)
    return Track(value, (n, t)) if last == 1 or value.shape[2] == 1 else None


def rowsOf(value: Value) -> tuple[Any, int] | None:
    """Numbers of every sample, side by side, and how far the next sample's are."""
    n, last = strided(value)
    return (value, n) if last == 1 or value.shape[1] == 1 else None


def momentsOf(on: Any) -> Any:
    """Which moments count, as native code takes it."""
    return None if on is None else Track(on, tuple(strided(on)))


@lowers(forward)
def lowerForward(call: Call, room: Any) -> list[Work] | None:
    step, p, weights, states, *rest = call.arguments
    on, reverse = [*rest, None, False][:2] if len(rest) < 2 else rest
    (U, *d), tracks = weights, [trackOf(v) for v in (p, *call.outs)]
    first, around = [rowsOf(s) for s in states], rowsOf(U)
    if step not in STEPS or not isSingle(p, U, *states, *[x for x in d if x is not None], *call.outs):
        return None
    if None in tracks or None in first or around is None or not all(x is None or isPlain(x) for x in d):
        return None
    kind, count = STEPS[step], len(states)
    sizes = recurrent.Sizes(p.shape[0], p.shape[1], states[0].shape[1])
    packed = room(recurrent.packedSize(kind, sizes.units))
    kept = tracks[1 + count] if len(tracks) > 1 + count else None
    return recurrent.run(
        kind,
        tracks[0],
        U,
        around[1],
        packed,
        first,
        tracks[1 : 1 + count],
        kept,
        sizes,
        pool.threads(),
        d[0] if d else None,
        momentsOf(on),
        bool(reverse),
    )


@lowers(throughTime)
def lowerThroughTime(call: Call, room: Any) -> list[Work] | None:
    back, U, before, after, kept, gy, grads, *rest = call.arguments
    on, reverse = [*rest, None, False][:2] if len(rest) < 2 else rest
    if back not in BACKS:
        return None
    kind, count = BACKS[back], len(after)
    made, ends = list(call.outs[:-count]), list(call.outs[-count:])
    tracks = [trackOf(v) for v in (*after, *kept, gy, *made)]
    begins, around = [trackOf(b) for b in before], rowsOf(U)
    if not isSingle(U, gy, *before, *after, *kept, *grads, *call.outs) or None in tracks + begins or around is None:
        return None
    if not all(map(isPlain, ends)):
        return None
    n, t, units = after[0].shape
    at = t - 1 if reverse else 0
    first = [(At(b, at * b.strides[1]), strided(b)[0]) for b in before]
    starts = [w for g, e in zip(grads, ends) for w in copies(g, e, e.shape, spread(g, e.shape), strided(e))]
    packed = room(recurrent.packedSize(kind, units))
    inner = tracks[: count + len(kept)]
    if kind == "gru":  # of the states it only reads those before, which after a gap are not those of the last moment
        shift = -before[0].strides[1] if reverse else before[0].strides[1]
        inner[0] = begins[0]._replace(what=At(before[0], shift))
    works = recurrent.back(
        kind,
        U,
        around[1],
        packed,
        first,
        inner[:count],
        inner[count] if kept else None,
        tracks[count + len(kept)],
        tracks[count + len(kept) + 1],
        tracks[-1] if len(made) > 1 else None,
        ends,
        recurrent.Sizes(n, t, units),
        pool.threads(),
        momentsOf(on),
        bool(reverse),
    )
    return [*starts, *works]


# Lookups ------------------------------------------------------------------------------------------------------------

FAULT = np.zeros(1, np.int64)  # where kernels note an index that is out of range; indices are checked before they run


def isIndex(value: Any) -> bool:
    """Whether indices can be checked before a step begins: they are an input, or a view of one."""
    return type(value) is Value and value.dtype == np.int64 and value.root.role == "input" and 0 not in value.shape


def indicesOf(value: Value, room: Any) -> tuple[Any, list[Work]]:
    """The indices row by row: where they are, and the work that takes."""
    if isPlain(value):
        return value, []
    to = room(2 * value.size)
    own = tuple(s // 8 for s in contiguous(value.shape, 8))
    return to, copies(value, to, value.shape, strided(value), own, 8)


def within(low: int, high: int) -> Any:
    """A check of indices: whether all lie from low to below high."""
    return lambda index: not index.size or (index.min() >= low and index.max() < high)


def rowLike(value: Value, lead: int) -> int | None:
    """The distance of rows that lie without gaps each, `lead` axes counting them; None if they do not."""
    step = value.dtype.itemsize
    for n, s in zip(reversed(value.shape[lead:]), reversed(value.strides[lead:])):
        if n > 1 and s != step:
            return None
        step *= n
    axes = [(n, s // 4) for n, s in zip(value.shape[:lead], value.strides[:lead])]
    stride = collapsed(axes)
    return None if stride is None else stride or step // 4


@lowers(gather)
def lowerGather(call: Call, room: Any) -> list[Work] | None:
    table, index = call.arguments
    (y,) = call.outs
    if not isSingle(table, y) or not isIndex(index) or not isPlain(y):
        return None
    stride, width = rowLike(table, 1), math.prod(table.shape[1:])
    if stride is None:
        return None
    room.check(index, within(-1, table.shape[0]))
    where, before = indicesOf(index, room)
    return [*before, *lookup.gather(table, stride, table.shape[0], where, index.size, y, width, FAULT)]


@lowers(scatterAdd)
def lowerScatterAdd(call: Call, room: Any) -> list[Work] | None:
    grad, index, rows = call.arguments
    (table,) = call.outs
    if not isSingle(grad, table) or not isIndex(index) or not isPlain(table):
        return None
    stride = rowLike(grad, index.ndim)
    if stride is None:
        return None
    room.check(index, within(-1, rows))
    where, before = indicesOf(index, room)
    width = math.prod(table.shape[1:])
    return [*before, *lookup.scatterAdd(grad, where, index.size, table, rows, width, FAULT, stride)]


@lowers(classIndex)
def lowerClassIndex(call: Call, room: Any) -> list[Work] | None:
    """The labels, with -1 for those that are ignored; by way of float64, which holds them exactly."""
    labels, classes, *rest = call.arguments
    ignored = rest[0] if rest else call.options.get("ignored")
    (index,) = call.outs
    if not isIndex(labels) or not isPlain(labels) or not isPlain(index) or index.dtype != np.int64:
        return None

    def good(x: Any) -> bool:
        return bool(np.all(((x >= 0) & (x < classes)) | (x == ignored)))

    room.check(labels, good)
    line = Formula("x0") if ignored is None else Formula(f"where(x0 == {int(ignored)}, -1, x0)")
    loads, stores = {"x0": Operand("i64", labels, (1,))}, {"y0": Operand("i64", index, (1,))}
    return works(Nest((labels.size,), loads, (("y0", line),), stores, "f64"), room)


@lowers(uniform)
def lowerUniform(call: Call, room: Any) -> list[Work] | None:
    _, key, counter, *_ = call.arguments
    (y,) = call.outs
    if type(key) is not Value or type(counter) is not Value or not isSingle(y) or not isPlain(y):
        return None
    return philox.uniform(y, y.size, key, counter)


@lowers(fill)
def lowerFill(call: Call, room: Any) -> list[Work] | None:
    (number,), (y,) = call.arguments, call.outs
    kind = {"bool": "i8", "int64": "i64", "int32": "i32", "float32": "f32"}.get(y.dtype.name)
    if kind is None or not isPlain(y) or not isinstance(number, (bool, int, float, np.generic)):
        return None
    return filled(kind, y, y.size, float(number))


# Moving -------------------------------------------------------------------------------------------------------------


def isMoved(*values: Value) -> bool:
    """Whether numbers can be moved by native code: all of one kind, none lies between numbers."""
    kinds = {v.dtype for v in values}
    size = values[0].dtype.itemsize
    known = size in (4, 8) and values[0].dtype.kind in "fiu" or values[0].dtype.kind == "b"
    return len(kinds) == 1 and known and all(0 not in v.shape and not any(s % size for s in v.strides) for v in values)


def spread(value: Value, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The strides of a value that is repeated to fill a shape."""
    return (0,) * (len(shape) - value.ndim) + strided(value)


@lowers(copy)
def lowerCopy(call: Call, room: Any) -> list[Work] | None:
    (x,), (y,) = call.values(), call.outs
    if not isMoved(x, y):
        return None
    return copies(x, y, y.shape, spread(x, y.shape), strided(y), x.dtype.itemsize)


@lowers(np.reshape)
def lowerReshape(call: Call, room: Any) -> list[Work] | None:
    x, (y,) = call.values()[0], call.outs
    if not isMoved(x, y) or not isPlain(y) or call.options:
        return None
    size = x.dtype.itemsize
    return copies(x, y, x.shape, strided(x), tuple(s // size for s in contiguous(x.shape, size)), size)


@lowers(np.concatenate)
def lowerConcatenate(call: Call, room: Any) -> list[Work] | None:
    parts, (y,) = list(call.arguments[0]), call.outs
    axis = call.arguments[1] if len(call.arguments) > 1 else call.options.get("axis", 0)
    if axis is None or not all(type(x) is Value for x in parts):
        return None
    axis %= y.ndim
    if any(0 in x.shape for x in parts) or not isMoved(y, *parts):
        return None
    size, start, found = y.dtype.itemsize, 0, []
    for x in parts:
        found += copies(x, At(y, start * y.strides[axis]), x.shape, strided(x), strided(y), size)
        start += x.shape[axis]
    return found


@lowers(np.stack)
def lowerStack(call: Call, room: Any) -> list[Work] | None:
    parts, (y,) = list(call.arguments[0]), call.outs
    axis = (call.arguments[1] if len(call.arguments) > 1 else call.options.get("axis", 0)) % y.ndim
    if not all(type(x) is Value for x in parts) or not isMoved(y, *parts):
        return None
    own = tuple(s for a, s in enumerate(strided(y)) if a != axis)
    size = y.dtype.itemsize
    return [
        w for i, x in enumerate(parts) for w in copies(x, At(y, i * y.strides[axis]), x.shape, strided(x), own, size)
    ]


@lowers(put)
def lowerPut(call: Call, room: Any) -> list[Work] | None:
    """x with a part replaced that slices and numbers say."""
    x, key, part = call.arguments
    (y,) = call.outs
    key = key if isinstance(key, tuple) else (key,)
    if any(k is Ellipsis for k in key):
        at = next(i for i, k in enumerate(key) if k is Ellipsis)
        key = (*key[:at], *[slice(None)] * (y.ndim - len(key) + 1), *key[at + 1 :])
    if type(x) is not Value or type(part) is not Value or not isMoved(x, y, part):
        return None
    if not all(isinstance(k, (int, slice)) for k in key) or any(type(k) is bool for k in key):
        return None
    strides, shape, offset = list[int](), list[int](), 0
    for n, s, k in zip(y.shape, y.strides, (*key, *[slice(None)] * (y.ndim - len(key)))):
        if isinstance(k, int):
            offset += (k % n) * s
            continue
        start, stop, step = k.indices(n)
        count = len(range(start, stop, step))
        offset += start * s
        shape.append(count)
        strides.append(s * step // y.dtype.itemsize if count > 1 else 0)
    if 0 in shape or part.ndim > len(shape):
        return None
    size = y.dtype.itemsize
    whole = copies(x, y, y.shape, spread(x, y.shape), strided(y), size)
    return [*whole, *copies(part, At(y, offset), tuple(shape), spread(part, tuple(shape)), tuple(strides), size)]


@lowers(store)
def lowerStore(x: Value, target: Value) -> list[Work] | None:
    """The numbers of x where a state lies."""
    if not isMoved(x, target) or x.shape != target.shape:
        return None
    return copies(x, target, target.shape, strided(x), strided(target), x.dtype.itemsize)
