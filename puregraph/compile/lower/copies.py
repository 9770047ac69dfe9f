"""Copies: rules for copy, concatenate, stack, assignment to slices and fill, for all backends."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from puregraph.compile.lower.registry import lowers
from puregraph.compile.passes.nestlines import INTS
from puregraph.ops.ir.elementlayout import broadcastStrides, canCopy, elementStrides, isRowMajor
from puregraph.ops.ir.elementlayout import copies as nativeCopies
from puregraph.ops.ir.strides import contiguous, isDense
from puregraph.ops.ir.value import Call, Offset, Value, copy, fill, put, store
from puregraph.ops.ir.views import ArrayView, viewed
from puregraph.ops.native.llvm.kernelcall import KernelCall
from puregraph.ops.native.nests.copy import fill as nativeFill

Strides = tuple[int, ...]


class CopyWriter:
    """Writes copies and fills as native kernel calls; a subclass writes GPU launches."""

    def canCopy(self, *values: Value) -> bool:
        """True if elements of these Values can be copied to one another."""
        return canCopy(*values)

    def copies(self, x: Any, y: Any, dtype: np.dtype, shape: Strides, xStrides: Strides, yStrides: Strides) -> Any:
        """Copy elements of x, with these strides, to elements of y; None if this is not supported."""
        return None if 0 in shape else nativeCopies(x, y, shape, xStrides, yStrides, dtype.itemsize)

    def fills(self, number: Any, y: Any, dtype: np.dtype, shape: Strides, strides: Strides) -> Any:
        """Write a constant into elements of y; None if this is not supported."""
        kind = {"bool": "i8", "float32": "f32", "float64": "f64", **INTS}.get(dtype.name)
        isWhole = type(y) is Value and isDense(shape, y.strides, dtype.itemsize)
        isNumber = isinstance(number, (bool, int, float, np.generic))
        number = float(number) if dtype.kind == "f" and isNumber else number
        return nativeFill(kind, y, y.size, number) if kind and isWhole and isNumber else None


def copied(call: Call, writer: CopyWriter) -> Any:
    """Copy the elements of x, broadcast if y is larger."""
    (x,), (y,) = call.values(), call.outs
    if not writer.canCopy(x, y):
        return None
    return writer.copies(x, y, y.dtype, y.shape, broadcastStrides(x, y.shape), elementStrides(y))


def reshaped(call: Call, writer: CopyWriter) -> Any:
    """Copy the elements of x in row-major order."""
    x, (y,) = call.values()[0], call.outs
    if not writer.canCopy(x, y) or not isRowMajor(y) or call.options:
        return None
    size = x.dtype.itemsize
    steps = tuple([s // size for s in contiguous(x.shape, size)])
    return writer.copies(x, y, y.dtype, x.shape, elementStrides(x), steps)


def concatenated(call: Call, writer: CopyWriter) -> Any:
    """Concatenate the parts along an axis."""
    parts, (y,) = list(call.arguments[0]), call.outs
    axis = call.arguments[1] if len(call.arguments) > 1 else call.options.get("axis", 0)
    if axis is None or not all(type(x) is Value for x in parts) or not writer.canCopy(y, *parts):
        return None
    axis, start, works = axis % y.ndim, 0, []
    for x in parts:
        to = Offset(y, start * y.strides[axis])
        works += writer.copies(x, to, y.dtype, x.shape, elementStrides(x), elementStrides(y))
        start += x.shape[axis]
    return works


def stacked(call: Call, writer: CopyWriter) -> Any:
    """Stack the parts along a new axis."""
    parts, (y,) = list(call.arguments[0]), call.outs
    axis = (call.arguments[1] if len(call.arguments) > 1 else call.options.get("axis", 0)) % y.ndim
    if not all(type(x) is Value for x in parts) or not writer.canCopy(y, *parts):
        return None
    steps, works = tuple([s for a, s in enumerate(elementStrides(y)) if a != axis]), []
    for i, x in enumerate(parts):
        works += writer.copies(x, Offset(y, i * y.strides[axis]), y.dtype, x.shape, elementStrides(x), steps)
    return works


def assigned(call: Call, writer: CopyWriter) -> Any:
    """Copy x, or fill with a constant, then assign to the part that a basic index selects."""
    x, key, part = call.arguments
    (y,) = call.outs
    if not writer.canCopy(y, *[v for v in (x, part) if type(v) is Value]) or not isBasicKey(key):
        return None
    size = y.dtype.itemsize
    seen = viewed(operator.getitem, ArrayView(y.shape, y.strides, size), key)
    to = Offset(y, seen.offset)
    steps = tuple([s // size if n > 1 else 0 for n, s in zip(seen.shape, seen.strides)])
    before = written(x, y, y.dtype, y.shape, elementStrides(y), writer)
    after = written(part, to, y.dtype, seen.shape, steps, writer)
    return None if before is None or after is None else [*before, *after]


def written(x: Any, y: Any, dtype: np.dtype, shape: Strides, strides: Strides, writer: CopyWriter) -> Any:
    """Write a broadcast Value or a constant into some elements of an array."""
    if type(x) is not Value:
        return writer.fills(x, y, dtype, shape, strides)
    return writer.copies(x, y, dtype, shape, broadcastStrides(x, shape), strides) if x.ndim <= len(shape) else None


def isBasicKey(key: object) -> bool:
    """True if an index is basic: slices, integers, new axes and an ellipsis."""
    parts = key if isinstance(key, tuple) else (key,)
    return all(k is None or k is Ellipsis or isinstance(k, (int, slice)) and type(k) is not bool for k in parts)


def filled(call: Call, writer: CopyWriter) -> Any:
    """Write a constant into every element."""
    (number,), (y,) = call.arguments, call.outs
    return writer.fills(number, y, y.dtype, y.shape, elementStrides(y))


COPYING = {
    copy: copied,
    np.reshape: reshaped,
    np.concatenate: concatenated,
    np.stack: stacked,
    put: assigned,
    fill: filled,
}
NATIVE = CopyWriter()
for function, rule in COPYING.items():
    lowers(function)(lambda call, workspace, rule=rule: rule(call, NATIVE))


@lowers(store)
def lowerStore(x: Value, target: Value) -> list[KernelCall] | None:
    """Copy the elements of x to the memory of a state."""
    if not canCopy(x, target) or x.shape != target.shape:
        return None
    return nativeCopies(x, target, target.shape, elementStrides(x), elementStrides(target), x.dtype.itemsize)
