"""Copy launches: elements copied, concatenated, stacked, assigned to slices, filled."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from puregraph.compile.gpu.lower.nestlaunch import FLOATS, KINDS, WHOLE, named
from puregraph.compile.ir.strides import contiguous
from puregraph.compile.ir.value import Call, Value, copy, fill, put
from puregraph.compile.lower.workspace import Offset
from puregraph.compile.trace.abstract import hidden
from puregraph.cuda.nests import launches
from puregraph.formula import Formula
from puregraph.formula.loopnest import LoopNest, Operand

BITS = {1: "u8", 2: "u16", 4: "f32", 8: "f64"}  # by bytes: the type that elements are copied as, bit for bit
KEYS = (int, slice)


def kindOf(dtype: Any) -> str:
    """The type that elements are copied as."""
    return FLOATS.get(named(dtype)) or BITS[dtype.itemsize]


def isMoved(*values: Any) -> bool:
    """Whether all are Values of one dtype, stored at multiples of its size."""
    if not all(type(v) is Value and v.role != "object" and v.dtype == values[0].dtype for v in values):
        return False
    size = values[0].dtype.itemsize
    return size in BITS and not any(s % size for v in values for s in v.strides)


def strided(value: Value) -> tuple[int, ...]:
    """Strides in elements, 0 along axes of length one."""
    return tuple([s // value.dtype.itemsize if n > 1 else 0 for n, s in zip(value.shape, value.strides)])


def spread(value: Value, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The strides of a value that is broadcast to a shape."""
    return (0,) * (len(shape) - value.ndim) + strided(value)


def copies(x: Any, y: Any, dtype: Any, shape: tuple[int, ...], own: tuple[int, ...], other: tuple[int, ...]) -> list:
    """The launches that copy the elements of x, stored with some strides, to where those of y are stored."""
    if 0 in shape:
        return []
    kind = kindOf(dtype)
    loads, stores = {"x": Operand(kind, x, own)}, {"y": Operand(kind, y, other)}
    whole = LoopNest(shape, loads, (("y", Formula("x")),), stores, "f64" if kind == "f64" else "f32")
    return [each._replace(name="copy") for each in launches.launches(whole)]


def stored(value: Value, array: Any) -> list[Any]:
    """The launches that copy the elements of a Value to an array."""
    shape, size = array.shape, array.dtype.itemsize
    if value.dtype == array.dtype:
        return copies(value, array, array.dtype, shape, spread(value, shape), tuple([s // size for s in array.strides]))
    loads = {"x": Operand(KINDS[named(value.dtype)], value, spread(value, shape))}
    stores = {"y": Operand(KINDS[named(array.dtype)], array, tuple([s // size for s in array.strides]))}
    return launches.launches(LoopNest(shape, loads, (("y", Formula("x")),), stores, "f64"))


def startsOf(plan: Any) -> list[Any]:
    """The launches and library calls of a plan, also where there is no GPU to start them on."""
    native = [call.function for call in plan.schedule.calls if call.kind.isNative]
    ends = [launch for target, value in plan.copies for launch in stored(value, target.array)]
    return [*(task.what for each in native for task in each.works), *ends]


def copied(call: Call) -> list[Any] | None:
    """The elements of x, broadcast where y is larger."""
    (x,), (y,) = call.values(), call.outs
    return copies(x, y, y.dtype, y.shape, spread(x, y.shape), strided(y)) if isMoved(x, y) else None


def reshaped(call: Call) -> list[Any] | None:
    """The elements of x in row-major order."""
    x, (y,) = call.values()[0], call.outs
    size = x.dtype.itemsize
    isPlain = all(n == 1 or s == t for n, s, t in zip(y.shape, y.strides, contiguous(y.shape, size)))
    if not isMoved(x, y) or not isPlain or call.options:
        return None
    return copies(x, y, y.dtype, x.shape, strided(x), tuple([s // size for s in contiguous(x.shape, size)]))


def concatenated(call: Call) -> list[Any] | None:
    """The parts one after another along an axis."""
    parts, (y,) = list(call.arguments[0]), call.outs
    axis = call.arguments[1] if len(call.arguments) > 1 else call.options.get("axis", 0)
    if axis is None or not isMoved(y, *parts):
        return None
    axis, start, found = axis % y.ndim, 0, []
    for x in parts:
        found += copies(x, Offset(y, start * y.strides[axis]), y.dtype, x.shape, strided(x), strided(y))
        start += x.shape[axis]
    return found


def stacked(call: Call) -> list[Any] | None:
    """Each part at its index of a new axis."""
    parts, (y,) = list(call.arguments[0]), call.outs
    axis = (call.arguments[1] if len(call.arguments) > 1 else call.options.get("axis", 0)) % y.ndim
    if not isMoved(y, *parts):
        return None
    own = tuple([s for a, s in enumerate(strided(y)) if a != axis])
    each = [copies(x, Offset(y, i * y.strides[axis]), y.dtype, x.shape, strided(x), own) for i, x in enumerate(parts)]
    return [launch for found in each for launch in found]


def putInto(call: Call) -> list[Any] | None:
    """x, or a constant, with the part replaced that a basic index selects."""
    x, key, part = call.arguments
    (y,) = call.outs
    given = [v for v in (x, part) if type(v) is Value]
    if not isMoved(y, *given) or not isPlainKey(key) or not all(type(v) is Value or isNumber(v) for v in (x, part)):
        return None
    stand, size = hidden(y), y.dtype.itemsize
    seen = stand[key]
    to = Offset(y, seen.__array_interface__["data"][0] - stand.__array_interface__["data"][0])
    steps = tuple([s // size if n > 1 else 0 for n, s in zip(seen.shape, seen.strides)])
    found = laid(x, y, y.dtype, y.shape, strided(y)), laid(part, to, y.dtype, seen.shape, steps)
    return None if None in found else [launch for each in found for launch in each]


def laid(x: Any, to: Any, dtype: Any, shape: tuple[int, ...], steps: tuple[int, ...]) -> list[Any] | None:
    """The launches that write a Value, or a constant, into some elements of an array."""
    if type(x) is not Value:
        return everywhere(x, to, dtype, shape, steps)
    return copies(x, to, dtype, shape, spread(x, shape), steps) if x.ndim <= len(shape) else None


def isNumber(x: Any) -> bool:
    """Whether something is a number of a dtype that formulas have."""
    return isinstance(x, (bool, int, float, np.generic)) and not math.isnan(x)


def isPlainKey(key: Any) -> bool:
    """Whether an index is basic: slices, integers, new axes and an ellipsis."""
    parts = key if isinstance(key, tuple) else (key,)
    return all(k is None or k is Ellipsis or (isinstance(k, KEYS) and type(k) is not bool) for k in parts)


def filled(call: Call) -> list[Any] | None:
    """A constant in every element."""
    (number,), (y,) = call.arguments, call.outs
    return everywhere(number, y, y.dtype, y.shape, strided(y)) if isNumber(number) else None


def everywhere(number: Any, to: Any, dtype: Any, shape: tuple[int, ...], steps: tuple[int, ...]) -> list[Any] | None:
    """The launches that write a constant into every element."""
    kind = KINDS.get(named(dtype))
    if kind is None:
        return None
    if 0 in shape:
        return []
    work = "f64" if kind == "f64" or kind in WHOLE.values() else "f32"
    whole = LoopNest(shape, {}, (("y", Formula(float(number))),), {"y": Operand(kind, to, steps)}, work)
    return [each._replace(name=f"fill {number}") for each in launches.launches(whole)]


MOVES = {
    copy: copied,
    np.reshape: reshaped,
    np.concatenate: concatenated,
    np.stack: stacked,
    put: putInto,
    fill: filled,
}


def moved(call: Call) -> list[Any] | None:
    """The launches that copy elements; None where there are none for these strides."""
    return MOVES[call.function](call) if call.function in MOVES else None
