"""Elements read and written by index, and class labels, as operators of ONNX."""

from __future__ import annotations

import operator
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from puregraph.core.errors import GraphError
from puregraph.core.tracer import arrayLike
from puregraph.ops.gather.alongaxis import putAlong, takeAlong, wrapIndex
from puregraph.ops.gather.labels import classIndex, fractions
from puregraph.ops.gather.reference import addAt, gather, putClass, scatterAdd, takeClass
from puregraph.ops.ir.value import Call, Value, put, valuesIn
from puregraph.ops.operation import op

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import DTypeLike

    from puregraph.core.protocols import AnyArray
    from puregraph.onnx.rules.rulewriter import RuleWriter

ADDED = "add"


@op(addAt).onnx
def added(writer: RuleWriter, call: Call) -> str:
    """ScatterElements that adds; an index of -1 adds 0."""
    values, index, size = call.arguments
    at, none = writer.name(index, np.int64), writer.step.constant(0, np.int64)
    zeros = writer.step.constant(np.zeros((values.shape[0], size), values.dtype))
    isThere = writer.op("GreaterOrEqual", at, none)
    updates = writer.op("Where", isThere, writer.name(values), writer.step.constant(0, values.dtype))
    return writer.op("ScatterElements", zeros, writer.op("Max", at, none), updates, axis=1, reduction=ADDED)


@op(gather).onnx
def rowsOf(writer: RuleWriter, call: Call) -> str:
    """Gather; zeros for -1."""
    table, index = call.arguments
    at, none = writer.name(index, np.int64), writer.step.constant(0, np.int64)
    rows = writer.op("Gather", writer.name(table), writer.op("Max", at, none))
    isThere = writer.reshape(writer.op("GreaterOrEqual", at, none), (*index.shape, *[1] * (table.ndim - 1)))
    return writer.op("Where", isThere, rows, writer.step.constant(0, table.dtype))


@op(scatterAdd).onnx
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


@op(classIndex).onnx
def labels(writer: RuleWriter, call: Call) -> str:
    """The labels as int64, -1 for ignored ones; their range is not checked."""
    targets, _, *rest = call.arguments
    ignored = rest[0] if rest else call.options.get("ignored")
    index = writer.name(targets, np.int64)
    if ignored is None:
        return index
    isIgnored = writer.op("Equal", index, writer.step.constant(ignored, np.int64))
    return writer.op("Where", isIgnored, writer.step.constant(-1, np.int64), index)


@op(fractions).onnx
def targets(writer: RuleWriter, call: Call) -> str:
    """The targets as they are; that each is from 0 to 1 is not checked."""
    return writer.name(call.arguments[0])


@op(takeClass).words
def chosen(x: Any, classes: AnyArray) -> AnyArray:
    """The elements of the classes, zeros for -1."""
    at = np.expand_dims(np.maximum(classes, 0), 1)
    y = np.squeeze(np.take_along_axis(x, at, 1), 1)
    return np.where(classes < 0, x.dtype.type(0), y)


@op(putClass).words
def placed(values: AnyArray, classes: AnyArray, count: int) -> AnyArray:
    """Each value at the index of its class, 0 elsewhere."""
    classNumbers = arrayLike(values, np.arange(count).reshape(1, -1, *[1] * (values.ndim - 1)))
    return np.where(np.expand_dims(classes, 1) == classNumbers, np.expand_dims(values, 1), values.dtype.type(0))


@op(operator.getitem).onnx
def item(writer: RuleWriter, call: Call) -> str:
    """Slice for basic indexing; Gather for elements by index."""
    x, key = call.arguments
    if any(isinstance(k, Value) for k in (key if isinstance(key, tuple) else (key,))):
        return picked(writer, call)
    starts, ends, axes, steps = [], [], [], []
    axis = 0
    parts = key if isinstance(key, tuple) else (key,)
    named = sum(part is not None and part is not Ellipsis for part in parts)
    for part in parts:
        if part is None:
            continue
        if part is Ellipsis:
            axis += x.ndim - named
            continue
        if isinstance(part, slice):
            start, end, step = part.indices(x.shape[axis])
        else:
            start = int(part) % x.shape[axis]
            end, step = start + 1, 1
        if (start, end, step) != (0, x.shape[axis], 1):
            starts.append(start)
            ends.append(end if end >= 0 else -(1 << 62))
            axes.append(axis)
            steps.append(step)
        axis += 1
    name = writer.name(x)
    if axes:
        name = writer.op("Slice", name, *(writer.whole(*values) for values in (starts, ends, axes, steps)))
    shape = call.outs[0].shape
    return writer.reshape(name, shape) if any(not isinstance(part, slice) for part in parts) else name


def picked(writer: RuleWriter, call: Call) -> str:
    """Elements by arrays of integers: along one axis, or at the positions of all axes from the first on."""
    x, key = call.arguments
    parts = [part for part in (key if isinstance(key, tuple) else (key,)) if part is not Ellipsis]
    indices = [part for part in parts if isinstance(part, Value)]
    others = [part for part in parts if not isinstance(part, Value)]
    if len(indices) == 1 and all(part == slice(None) for part in others) and Ellipsis not in keyOf(key):
        index, axis = indices[0], parts.index(indices[0])
        return writer.op("Gather", writer.name(x), writer.name(index, np.int64), axis=axis)
    if others or Ellipsis in keyOf(key):
        raise GraphError("its rule picks elements in a way that has no ONNX equivalent")
    shape = np.broadcast_shapes(*[index.shape for index in indices])
    columns = [
        writer.reshape(writer.op("Expand", writer.name(index, np.int64), writer.whole(*shape)), (*shape, 1))
        for index in indices
    ]
    return writer.op("GatherND", writer.name(x), writer.op("Concat", *columns, axis=-1))


def keyOf(key: object) -> tuple:
    """A key as a tuple, without arrays."""
    return tuple(part for part in (key if isinstance(key, tuple) else (key,)) if not isinstance(part, Value))


@op(put).onnx
def assigned(writer: RuleWriter, call: Call) -> str:
    """x[key] = y: elements scattered to known positions, per sample if the leading axes are kept in full."""
    x, key, y = call.arguments
    out = call.outs[0]
    if any(valuesIn((key,))):
        raise GraphError("its rule writes to positions that come with the data")
    region = regionOf(key, out.shape)
    if region is not None and all(part == slice(0, n, 1) for part, n in zip(region, out.shape)):
        return spreadOver(writer, y, out.dtype, out.shape)
    if region is not None and not isinstance(x, Value) and all(part.step == 1 for part in region):
        kept = [part.stop - part.start for part in region]
        spread = spreadOver(writer, y, out.dtype, kept, keptShape(key, out.shape))
        pads = [part.start for part in region] + [n - part.stop for part, n in zip(region, out.shape)]
        return writer.op("Pad", spread, writer.whole(*pads), writer.step.constant(x, out.dtype))
    count = 0 if region is None else next(i for i, (p, n) in enumerate(zip(region, out.shape)) if p != slice(0, n, 1))
    inner, lead = out.shape[count:], prod(out.shape[:count])
    where = np.arange(prod(inner)).reshape(inner)[() if region is None else tuple(region[count:])]
    if region is None:
        where = np.arange(out.size).reshape(out.shape)[key]
    rows = (lead, prod(inner))
    start = writer.name(x, out.dtype) if isinstance(x, Value) else writer.step.constant(np.full(rows, x, out.dtype))
    flat = writer.reshape(start, rows) if isinstance(x, Value) else start
    updateShape = where.shape if region is None else (*out.shape[:count], *where.shape)
    updates = spreadOver(writer, y, out.dtype, updateShape, None if region is None else keptShape(key, out.shape))
    updates = writer.reshape(updates, (lead, where.size))
    index = writer.op("Expand", writer.step.constant(where.reshape(1, -1)), writer.whole(lead, where.size))
    return writer.reshape(writer.op("ScatterElements", flat, index, updates, axis=1), out.shape)


def spreadOver(writer: RuleWriter, y: AnyArray, dtype: DTypeLike, shape: Sequence[int], broadcast: Any = None) -> str:
    """y over all of a shape; or over `broadcast`, which lacks axes of length one, and then in that shape."""
    wanted = tuple(shape if broadcast is None else broadcast)
    name = writer.name(y, dtype)
    if not isinstance(y, Value) or tuple(y.shape) != wanted:
        name = writer.op("Expand", name, writer.whole(*wanted))
    return name if wanted == tuple(shape) else writer.reshape(name, shape)


def regionOf(key: Any, shape: tuple[int, ...]) -> list[slice] | None:
    """The slices of a key along all axes, with integers as slices of length one; None for other keys."""
    parts = list(key) if isinstance(key, tuple) else [key]
    if not all(part is Ellipsis or isinstance(part, (slice, int, np.integer)) for part in parts):
        return None
    if Ellipsis not in parts:
        parts.append(Ellipsis)
    at = parts.index(Ellipsis)
    parts[at : at + 1] = [slice(None)] * (len(shape) - len(parts) + 1)
    slices = []
    for part, n in zip(parts, shape, strict=True):
        start, stop, step = part.indices(n) if isinstance(part, slice) else (int(part) % n, int(part) % n + 1, 1)
        if step < 1:
            return None
        slices.append(slice(start, max(start, stop), step))
    return slices


def keptShape(key: Any, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of what a key of slices and integers chooses."""
    return np.broadcast_to(np.empty((), bool), shape)[key].shape


@op(takeAlong, np.take_along_axis).onnx
def alongAxis(writer: RuleWriter, call: Call) -> str:
    """GatherElements."""
    x, index, *rest = call.arguments
    axis = rest[0] if rest else call.options.get("axis", -1)
    lead = tuple(n if i == axis % x.ndim else max(n, m) for i, (n, m) in enumerate(zip(index.shape, x.shape)))
    name = writer.name(index, np.int64)
    name = name if lead == tuple(index.shape) else writer.op("Expand", name, writer.whole(*lead))
    return writer.op("GatherElements", writer.name(x), name, axis=axis or None)


REDUCTIONS = {"set": "none", "add": ADDED, "multiply": "mul", "minimum": "min", "maximum": "max"}


@op(putAlong).onnx
def writtenAlong(writer: RuleWriter, call: Call) -> str:
    """ScatterElements."""
    x, index, updates, axis, *rest = call.arguments
    kind = rest[0] if rest else call.options.get("kind", "set")
    names = (writer.name(x), writer.name(index, np.int64), writer.name(updates))
    return writer.op("ScatterElements", *names, axis=axis % x.ndim or None, reduction=REDUCTIONS[kind])


@op(wrapIndex).words
def fromStart(index: Any, n: int) -> AnyArray:
    """Indices counted from the start."""
    return np.where(index < 0, index + n, index)


@op(np.take).onnx
def taken(writer: RuleWriter, call: Call) -> str:
    """Gather."""
    x, index, *rest = call.arguments
    axis = rest[0] if rest else call.options.get("axis")
    name = writer.name(x) if axis is not None else writer.reshape(writer.name(x), (-1,))
    return writer.op("Gather", name, writer.name(index, np.int64), axis=axis or None)
