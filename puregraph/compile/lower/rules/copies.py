"""Copy lowering: elements copied, reshaped, concatenated, stacked, assigned to slices, stored."""

from __future__ import annotations

from typing import Any

import numpy as np

from puregraph.compile.ir.strides import contiguous, isDense
from puregraph.compile.ir.value import Call, Value, copy, put, store
from puregraph.compile.lower.registry import lowers
from puregraph.compile.lower.rules.elementlayout import broadcastStrides, canCopy, copies, elementStrides, isRowMajor
from puregraph.compile.lower.workspace import Offset
from puregraph.compile.trace.abstract import hidden
from puregraph.native.llvm.kernelcall import KernelCall
from puregraph.native.ops.copy import fill


@lowers(copy)
def lowerCopy(call: Call, workspace: Any) -> list[KernelCall] | None:
    """The elements of x, broadcast where y is larger."""
    (x,), (y,) = call.values(), call.outs
    if not canCopy(x, y):
        return None
    return copies(x, y, y.shape, broadcastStrides(x, y.shape), elementStrides(y), x.dtype.itemsize)


@lowers(np.reshape)
def lowerReshape(call: Call, workspace: Any) -> list[KernelCall] | None:
    """The elements of x in row-major order."""
    x, (y,) = call.values()[0], call.outs
    if not canCopy(x, y) or not isRowMajor(y) or call.options:
        return None
    size = x.dtype.itemsize
    return copies(x, y, x.shape, elementStrides(x), tuple(s // size for s in contiguous(x.shape, size)), size)


@lowers(np.concatenate)
def lowerConcatenate(call: Call, workspace: Any) -> list[KernelCall] | None:
    """The parts one after another along an axis."""
    parts, (y,) = list(call.arguments[0]), call.outs
    axis = call.arguments[1] if len(call.arguments) > 1 else call.options.get("axis", 0)
    if axis is None or not all(type(x) is Value for x in parts):
        return None
    axis %= y.ndim
    if any(0 in x.shape for x in parts) or not canCopy(y, *parts):
        return None
    size, start, found = y.dtype.itemsize, 0, []
    for x in parts:
        found += copies(x, Offset(y, start * y.strides[axis]), x.shape, elementStrides(x), elementStrides(y), size)
        start += x.shape[axis]
    return found


@lowers(np.stack)
def lowerStack(call: Call, workspace: Any) -> list[KernelCall] | None:
    """Each part at its index of a new axis."""
    parts, (y,) = list(call.arguments[0]), call.outs
    axis = (call.arguments[1] if len(call.arguments) > 1 else call.options.get("axis", 0)) % y.ndim
    if not all(type(x) is Value for x in parts) or not canCopy(y, *parts):
        return None
    own = tuple(s for a, s in enumerate(elementStrides(y)) if a != axis)
    size = y.dtype.itemsize
    return [
        w
        for i, x in enumerate(parts)
        for w in copies(x, Offset(y, i * y.strides[axis]), x.shape, elementStrides(x), own, size)
    ]


@lowers(put)
def lowerPut(call: Call, workspace: Any) -> list[KernelCall] | None:
    """x, or a constant, with the part replaced that a basic index selects."""
    x, key, part = call.arguments
    (y,) = call.outs
    values = [v for v in (x, part) if type(v) is Value]
    if part not in values or not canCopy(y, *values) or not isBasicKey(key):
        return None
    stand = hidden(y)
    seen, size = stand[key], y.dtype.itemsize
    to = Offset(y, seen.__array_interface__["data"][0] - stand.__array_interface__["data"][0])
    steps = tuple([s // size if n > 1 else 0 for n, s in zip(seen.shape, seen.strides)])
    if 0 in seen.shape or part.ndim > seen.ndim:
        return None
    whole = (
        copies(x, y, y.shape, broadcastStrides(x, y.shape), elementStrides(y), size)
        if x in values
        else everywhere(y, x)
    )
    return (
        None
        if whole is None
        else [*whole, *copies(part, to, seen.shape, broadcastStrides(part, seen.shape), steps, size)]
    )


def isBasicKey(key: Any) -> bool:
    """Whether an index is basic: slices, integers, new axes and an ellipsis."""
    parts = key if isinstance(key, tuple) else (key,)
    return all(k is None or k is Ellipsis or isinstance(k, (int, slice)) and type(k) is not bool for k in parts)


def everywhere(y: Value, number: Any) -> list[KernelCall] | None:
    """A constant in every element."""
    kind = {"bool": "i8", "int64": "i64", "int32": "i32", "float32": "f32"}.get(y.dtype.name)
    isDenseThere = isDense(y.shape, y.strides, y.dtype.itemsize)
    return fill(kind, y, y.size, float(number)) if kind and isDenseThere else None


@lowers(store)
def lowerStore(x: Value, target: Value) -> list[KernelCall] | None:
    """The elements of x in the memory of a state."""
    if not canCopy(x, target) or x.shape != target.shape:
        return None
    return copies(x, target, target.shape, elementStrides(x), elementStrides(target), x.dtype.itemsize)
