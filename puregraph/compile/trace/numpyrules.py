"""Numpy rules: abstract evaluations of numpy functions whose result shapes depend on shapes alone."""

from __future__ import annotations

import operator
from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import DTypeLike

from puregraph.compile.trace.abstract import (
    broadcast,
    constantResult,
    dummy,
    isConstant,
    kindsOf,
    layoutOf,
    operand,
    readerOf,
    reads,
)
from puregraph.compile.trace.recorder import Fresh, Plain, Recorder, UnreadableError, isMask
from puregraph.core.tracer import astype
from puregraph.ops.ir import strides
from puregraph.ops.ir.value import Value, copy, fill, valuesIn
from puregraph.ops.ir.views import ArrayView, viewed

if TYPE_CHECKING:
    from puregraph.core.rules import ArrayFunction

__all__ = ["kindsOf", "readerOf"]
MAX_CONSTANT_BYTES = 1 << 14  # most bytes of a constant that is computed while tracing


def need(x: object) -> Value:
    """The first argument as a Value."""
    if type(x) is not Value:
        raise UnreadableError(f"expected an array, got {type(x).__name__}")
    return x


# Views ----------------------------------------------------------------------------------------------------------------


VIEWS = (np.transpose, np.swapaxes, np.moveaxis, np.squeeze, np.expand_dims, np.flip, np.broadcast_to, np.diagonal)


@reads(*VIEWS, np.lib.stride_tricks.sliding_window_view, makes=("view",))
def readView(recorder: Recorder, function: ArrayFunction, arguments: list, options: dict[str, Any]) -> Value:
    """A view: its shape and strides follow from those of its array."""
    x = need(arguments[0])
    if isConstant([x, arguments[1:]]):
        return constantResult(recorder, function, arguments, options)
    view = viewed(function, ArrayView(x.shape, x.strides, x.dtype.itemsize), *arguments[1:], **options)
    return recorder.view(function, tuple(arguments), options, x, view, view.offset)


@reads(operator.getitem, makes=("view", "other"))
def readItem(recorder: Recorder, function: ArrayFunction, arguments: list, options: dict[str, Any]) -> Value:
    """x[key]: a view, or a copy if the key has integer arrays."""
    x, key = need(arguments[0]), arguments[1]
    parts = key if type(key) is tuple else (key,)
    if isMask(key):
        raise UnreadableError("an index is a boolean mask")
    if any(type(k) in (Value, list) for k in parts):
        return readPicked(recorder, function, arguments, options)
    if any(type(k) is slice and any(valuesIn((k,))) for k in parts):
        raise UnreadableError("the ends of a slice depend on data")
    if isConstant([x]):
        return constantResult(recorder, function, arguments, options)
    key = parts if Ellipsis in parts else (*parts, Ellipsis)  # so that numpy returns a view, not a scalar
    return readView(recorder, function, [x, key], {})


def readPicked(recorder: Recorder, function: ArrayFunction, arguments: list, options: dict[str, Any]) -> Value:
    """x[index]: numpy computes the shape."""
    x, key = arguments
    parts = key if type(key) is tuple else (key,)
    if isConstant(arguments):
        return constantResult(recorder, function, arguments, options)
    stands = tuple([np.zeros(k.shape, k.dtype) if type(k) is Value else k for k in parts])
    lay = strides.like(x.shape, x.strides, 1)
    like = np.ndarray(x.shape, np.bool_, np.empty(max(1, x.size), np.bool_), 0, lay)[stands]
    layout = strides.like(like.shape, like.strides, x.dtype.itemsize)
    return recorder.made(function, (x, key), {}, "other", like.shape, x.dtype, layout)


@reads(np.reshape, makes=("view", "copy"))
def readReshape(recorder: Recorder, function: ArrayFunction, arguments: list, options: dict[str, Any]) -> Value:
    """A reshape: a view if the strides allow it, otherwise a copy."""
    x, shape = need(arguments[0]), arguments[1] if len(arguments) > 1 else options.pop("shape")
    if options.get("order", "C") != "C" or len(arguments) > 2:
        raise UnreadableError("reshape in another order")
    shape = strides.resolvedShape(x.size, shape)
    if prod(shape) != x.size:
        raise ValueError(f"cannot reshape {x.shape} into {shape}")
    if isConstant([x]):
        return constantResult(recorder, np.reshape, [x, shape], {})
    if shape == x.shape:
        return recorder.view(np.reshape, (x, shape), {}, x, x, 0)
    lay = strides.reshaped(x.shape, x.strides, shape, x.dtype.itemsize)
    if lay is None:
        return recorder.made(np.reshape, (x, shape), {}, "copy", shape, x.dtype)
    return recorder.view(np.reshape, (x, shape), {}, x, _Like(shape, lay), 0)


class _Like:
    """A shape and its strides."""

    __slots__ = ("shape", "strides")

    def __init__(self, shape: tuple[int, ...], lay: tuple[int, ...]):
        self.shape, self.strides = shape, lay


@reads(np.ravel)
def readRavel(recorder: Recorder, function: ArrayFunction, arguments: list, options: dict[str, Any]) -> Value:
    """All elements along one axis."""
    if options or len(arguments) > 1:
        raise UnreadableError("ravel in another order")
    return readReshape(recorder, np.reshape, [arguments[0], (-1,)], {})


# Copies ---------------------------------------------------------------------------------------------------------------


@reads(astype, makes=("pointwise",))
def readCast(recorder: Recorder, function: ArrayFunction, arguments: list, options: dict[str, Any]) -> Any:
    """x.astype(dtype): x itself if copy=False and x has that dtype."""
    x, dtype, *extra = arguments
    again = extra[0] if extra else options.get("copy", True)
    x, dtype = need(x), np.dtype(dtype)
    if isConstant([x]) and x.size * dtype.itemsize <= MAX_CONSTANT_BYTES:
        return constantResult(recorder, astype, [x, dtype], {})
    if x.dtype == dtype and not again:
        return x
    layout = strides.like(x.shape, x.strides, dtype.itemsize)
    if x.dtype == dtype and strides.sameStrides(x.shape, x.strides, layout):
        return Fresh(x)
    return recorder.made(astype, (x, dtype), {}, "pointwise", x.shape, dtype, layout)


@reads(np.copy)
def readCopy(recorder: Recorder, function: ArrayFunction, arguments: list, options: dict[str, Any]) -> Any:
    """A copy; it is left out if its layout equals the original's."""
    x = need(arguments[0])
    order = options.get("order", "K")
    if order not in ("K", "C") or len(arguments) > 1 or not options.keys() <= {"order"}:
        raise UnreadableError("a copy in another order")
    if isConstant([x]) and x.nbytes <= MAX_CONSTANT_BYTES:
        return constantResult(recorder, np.copy, [x], {"order": order})
    size = x.dtype.itemsize
    layout = strides.contiguous(x.shape, size) if order == "C" else strides.like(x.shape, x.strides, size)
    if strides.sameStrides(x.shape, x.strides, layout):
        return Fresh(x)
    return recorder.made(copy, (x,), {}, "copy", x.shape, x.dtype, layout)


@reads(np.zeros_like, np.ones_like, np.empty_like, np.full_like)
def readFill(recorder: Recorder, function: ArrayFunction, arguments: list, options: dict[str, Any]) -> Value:
    """An array filled with one constant, shaped like another array or as `shape` says."""
    arguments = list(arguments)
    x = need(arguments.pop(0))
    number: Any = {np.ones_like: 1}.get(function, 0)
    if function is np.full_like:
        number = operand(recorder, arguments.pop(0) if arguments else options["fill_value"])
    dtype = np.dtype(arguments.pop(0) if arguments else options.get("dtype") or x.dtype)
    shape = options.get("shape")
    shape = x.shape if shape is None else (shape,) if isinstance(shape, int) else tuple(shape)
    if arguments or not options.keys() <= {"dtype", "shape", "fill_value"} or type(number) is Value:
        raise UnreadableError(f"{function.__name__} with more than shape and dtype")
    if prod(shape) == 1:
        return recorder.constant(np.full(shape, number, dtype))
    layout = strides.like(shape, x.strides, dtype.itemsize) if len(shape) == x.ndim else None
    return recorder.made(fill, (dtype.type(number).item(),), {}, "fill", shape, dtype, layout)


@reads(np.concatenate, makes=("copy",))
def readJoined(recorder: Recorder, function: ArrayFunction, arguments: list, options: dict[str, Any]) -> Value:
    """Parts concatenated along an axis."""
    axis = arguments[1] if len(arguments) > 1 else options.get("axis", 0)
    parts = [need(operand(recorder, x)) for x in arguments[0]]
    if axis is None or not options.keys() <= {"axis"} or len(arguments) > 2:
        raise UnreadableError("concatenate of flattened parts, or in another dtype")
    first = parts[0]
    axis = range(first.ndim)[axis]
    if any(x.shape[:axis] != first.shape[:axis] or x.shape[axis + 1 :] != first.shape[axis + 1 :] for x in parts):
        raise ValueError(f"concatenate along axis {axis} of {[x.shape for x in parts]}")
    shape = tuple([sum(x.shape[axis] for x in parts) if i == axis else n for i, n in enumerate(first.shape)])
    return concatenated(recorder, np.concatenate, parts, axis, shape, [(x.shape, x.strides) for x in parts])


@reads(np.stack, makes=("copy",))
def readStack(recorder: Recorder, function: ArrayFunction, arguments: list, options: dict[str, Any]) -> Value:
    """Parts stacked along a new axis."""
    axis = arguments[1] if len(arguments) > 1 else options.get("axis", 0)
    parts = [need(operand(recorder, x)) for x in arguments[0]]
    first = parts[0]
    if not options.keys() <= {"axis"} or len(arguments) > 2 or any(x.shape != first.shape for x in parts):
        raise UnreadableError("stack in another dtype")
    axis = range(first.ndim + 1)[axis]
    shape = (*first.shape[:axis], len(parts), *first.shape[axis:])
    lays = [((*x.shape[:axis], 1, *x.shape[axis:]), (*x.strides[:axis], 0, *x.strides[axis:])) for x in parts]
    return concatenated(recorder, np.stack, parts, axis, shape, lays)


def concatenated(
    recorder: Recorder, function: ArrayFunction, parts: list[Value], axis: int, shape: tuple[int, ...], lays: list
) -> Value:
    """Add a concatenation; the result's axes are ordered in memory like those of the parts."""
    dtype = np.result_type(*[x.dtype for x in parts])
    if all(strides.isDescending(s, t) for s, t in lays):
        layout = None
    else:
        order = strides.joinedAxes([s for s, _ in lays], [t for _, t in lays])
        layout = strides.dense(shape, order, dtype.itemsize)
    return recorder.made(function, (parts,), {"axis": axis}, "copy", shape, dtype, layout)


# Choices and reductions -----------------------------------------------------------------------------------------------


@reads(np.where, makes=("pointwise",))
def readWhere(recorder: Recorder, function: ArrayFunction, arguments: list, options: dict[str, Any]) -> Value:
    """A selection between two values, element by element."""
    if len(arguments) != 3 or options:
        raise UnreadableError("np.where with one argument: its result shapes depend on data")
    c, a, b = (operand(recorder, x) for x in arguments)
    values = [x for x in (c, a, b) if type(x) is Value]
    shape = broadcast([x.shape for x in values])
    dtype = np.result_type(*[x.dtype if type(x) is Value else x for x in (a, b)])
    if isConstant(values) and prod(shape) * dtype.itemsize <= MAX_CONSTANT_BYTES:
        return constantResult(recorder, np.where, [c, a, b], {})
    layout = layoutOf(recorder, shape, values, dtype.itemsize)
    return recorder.made(np.where, (c, a, b), {}, "pointwise", shape, dtype, layout)


REDUCTIONS = (
    np.sum,
    np.mean,
    np.max,
    np.min,
    np.prod,
    np.var,
    np.std,
    np.any,
    np.all,
    np.amax,
    np.amin,
    np.count_nonzero,
)


@reads(*REDUCTIONS, makes=("reduce",))
def readReduction(recorder: Recorder, function: ArrayFunction, arguments: list, options: dict[str, Any]) -> Value:
    """A reduction: numpy decides the dtype, on an array of one element."""
    x, *extra = arguments
    x = need(x)
    options = dict(zip(("axis", "dtype"), extra), **options)
    known = options.keys() <= {"axis", "dtype", "keepdims", "ddof"}
    if len(extra) > 2 or not known or any(valuesIn((*options.values(),))):
        raise UnreadableError(f"{function.__name__} with more than axis, dtype, keepdims")
    options = {k: v for k, v in options.items() if v is not None or k == "axis"}
    axis = options.get("axis", 0 if hasattr(function, "__self__") else None)  # np.add.reduce takes the first axis
    axes = strides.reducedAxes(axis, x.ndim)
    keeps = bool(options.get("keepdims", False))
    dtype = reducedDtype(function, x.dtype, options.get("dtype"))
    if isConstant([x]) and x.nbytes <= MAX_CONSTANT_BYTES:
        return constantResult(recorder, function, [x], options)
    shape = tuple([1 if i in axes else n for i, n in enumerate(x.shape) if keeps or i not in axes])
    order = strides.sortedAxes([strides.aligned(x.shape, x.strides, x.ndim)], x.ndim)
    left = [i for i in range(x.ndim) if keeps or i not in axes]
    layout = strides.dense(shape, [left.index(i) for i in order if i in left], dtype.itemsize)
    return recorder.made(function, (x,), {**options, "axis": axis}, "reduce", shape, dtype, layout)


@lru_cache(maxsize=4096)
def reducedDtype(function: ArrayFunction, dtype: np.dtype, wanted: DTypeLike | None) -> np.dtype:
    """The dtype of a reduction."""
    options = {} if wanted is None else {"dtype": wanted}
    return np.asarray(function(np.ones(2, dtype), **options)).dtype


# Whatever else depends on shapes alone --------------------------------------------------------------------------------


@reads(np.shape, np.ndim, np.size, np.result_type)
def readShape(recorder: Recorder, function: ArrayFunction, arguments: list, options: dict[str, Any]) -> Plain:
    """A function of shapes and dtypes alone, such as np.shape: it runs now and adds no call."""
    return Plain(function(*[dummy(x) if type(x) is Value else x for x in arguments], **options))


OTHERS = (
    *(np.argmax, np.argmin, np.argsort, np.sort, np.cumsum, np.cumprod, np.diff, np.clip, np.round, np.around),
    *(np.take, np.take_along_axis, np.repeat, np.tile, np.pad, np.roll, np.rot90, np.tril, np.triu, np.trace),
    *(np.dot, np.inner, np.outer, np.vdot, np.tensordot, np.einsum, np.kron, np.cross, np.convolve, np.interp),
    *(np.hstack, np.vstack, np.dstack, np.isclose, np.nan_to_num, np.median, np.average, np.ptp),
    *(np.nansum, np.nanmean, np.nanmax, np.nanmin),
)
PRODUCTS = {np.dot, np.inner, np.vdot, np.tensordot, np.outer}
AS_THEY_ARE = {np.clip, np.tril, np.triu, np.nan_to_num, np.sort, np.round}
COUNTED = {np.repeat, np.tile, np.roll, np.pad}


@reads(*PRODUCTS, makes=("product",))
@reads(np.clip, makes=("pointwise",))
@reads(*[function for function in OTHERS if function not in PRODUCTS and function is not np.clip], makes=("other",))
def readOther(recorder: Recorder, function: ArrayFunction, arguments: list, options: dict[str, Any]) -> Value:
    """The shape, dtype and layout of a result, inferred by running numpy on ones."""
    if function in COUNTED and any(valuesIn([arguments[1:], list(options.values())])):
        raise UnreadableError(f"{function.__name__} with sizes that depend on data")
    if isConstant([arguments, list(options.values())]) and all(
        x.nbytes <= MAX_CONSTANT_BYTES for x in valuesIn([arguments])
    ):
        return constantResult(recorder, function, arguments, options)
    layout = None
    if function is np.einsum:
        shape, dtype, layout = contracted(arguments, options)
    else:
        stands = [standsFor(a) for a in arguments]
        like = np.asarray(function(*stands, **{k: standsFor(v) for k, v in options.items()}))
        shape, dtype = like.shape, like.dtype
        if function in AS_THEY_ARE and type(arguments[0]) is Value and arguments[0].shape == shape:
            layout = strides.like(shape, arguments[0].strides, dtype.itemsize)
    (kind,) = kindsOf(function)
    return recorder.made(function, tuple(arguments), options, kind, shape, dtype, layout)


def standsFor(a: Any) -> Any:
    """Stand-ins for Values: ones, or zeros for integers, which may be indices."""
    if type(a) is Value:
        return np.broadcast_to(np.zeros((), a.dtype) if a.dtype.kind in "iu" else np.ones((), a.dtype), a.shape)
    return type(a)([standsFor(item) for item in a]) if type(a) in (tuple, list) else a


def contracted(arguments: list, options: dict[str, Any]) -> tuple[Any, Any, Any]:
    """Shape, dtype and layout of an einsum, inferred by running it with every axis at most two long."""
    equation, *xs = arguments
    if not isinstance(equation, str) or "..." in equation or not options.keys() <= {"optimize"}:
        raise UnreadableError("an einsum that is not written as letters")
    left, _, right = equation.replace(" ", "").partition("->")
    sizes = {letter: n for letters, x in zip(left.split(","), xs) for letter, n in zip(letters, x.shape)}
    stands = []
    for x in xs:
        short = tuple([min(n, 2) for n in x.shape])
        order = sorted(range(x.ndim), key=[-abs(step) for step in x.strides].__getitem__)
        lay = strides.dense(short, order, x.dtype.itemsize)
        stands.append(np.ndarray(short, x.dtype, np.ones(max(1, prod(short)), x.dtype), 0, lay))
    like = np.asarray(np.einsum(equation, *stands, **options))
    shape = tuple([sizes[letter] for letter in right]) if "->" in equation else None
    if shape is None or len(shape) != like.ndim:
        raise UnreadableError("an einsum without an arrow")
    order = sorted(range(like.ndim), key=lambda i: -abs(like.strides[i]))
    return shape, like.dtype, strides.dense(shape, order, like.dtype.itemsize)
