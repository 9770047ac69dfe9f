"""Moving: numbers copied, put side by side, put into others, stored."""

from __future__ import annotations

from typing import Any

import numpy as np

from puregraph.compile.lower import At, lowers
from puregraph.compile.lowerings.numbers import copies, isMoved, isPlain, spread, strided
from puregraph.compile.strides import contiguous
from puregraph.compile.value import Call, Value, copy, put, store
from puregraph.native.work import Work


@lowers(copy)
def lowerCopy(call: Call, room: Any) -> list[Work] | None:
    """The numbers of x, repeated where y is larger."""
    (x,), (y,) = call.values(), call.outs
    if not isMoved(x, y):
        return None
    return copies(x, y, y.shape, spread(x, y.shape), strided(y), x.dtype.itemsize)


@lowers(np.reshape)
def lowerReshape(call: Call, room: Any) -> list[Work] | None:
    """The numbers of x, row by row, whatever order they lay in."""
    x, (y,) = call.values()[0], call.outs
    if not isMoved(x, y) or not isPlain(y) or call.options:
        return None
    size = x.dtype.itemsize
    return copies(x, y, x.shape, strided(x), tuple(s // size for s in contiguous(x.shape, size)), size)


@lowers(np.concatenate)
def lowerConcatenate(call: Call, room: Any) -> list[Work] | None:
    """Each part behind the one before."""
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
    """Each part at its place of a new axis."""
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
