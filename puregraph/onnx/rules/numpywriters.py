"""NumpyCalls: functions of numpy, and formulas, as operators of ONNX."""

from __future__ import annotations

import operator
from math import prod
from typing import Any

import numpy as np

from puregraph.compile.ir.value import Call, Value, copy, fill, put, valuesIn
from puregraph.compile.trace.numpyrules import reducedAxes
from puregraph.core.errors import GraphError
from puregraph.core.tracer import astype
from puregraph.onnx.rules.rulewriter import RuleWriter, writesCall
from puregraph.onnx.writers.formulawriters import Expression, spelled
from puregraph.onnx.writers.layerwriters import reduced
from puregraph.ops.formula.expr import leaf, read, rebuild, term
from puregraph.ops.formula.formula import formulaOf
from puregraph.ops.formula.interpreter import Interpreter

MATH = {  # ufuncs as formulas
    np.add: "a + b",
    np.subtract: "a - b",
    np.multiply: "a * b",
    np.true_divide: "a / b",
    np.floor_divide: "a // b",
    np.remainder: "a % b",
    np.fmod: "fmod(a, b)",
    np.power: "a ** b",
    np.float_power: "a ** b",
    np.maximum: "maximum(a, b)",
    np.minimum: "minimum(a, b)",
    np.negative: "-a",
    np.absolute: "abs(a)",
    np.sign: "sign(a)",
    np.square: "a * a",
    np.reciprocal: "1 / a",
    np.rint: "round(a)",
    np.arctan2: "atan2(a, b)",
    np.logaddexp: "maximum(a, b) + log1p(exp(-abs(a - b)))",
    np.less: "a < b",
    np.less_equal: "a <= b",
    np.greater: "a > b",
    np.greater_equal: "a >= b",
    np.equal: "a == b",
    np.not_equal: "a != b",
    np.logical_and: "a and b",
    np.logical_or: "a or b",
    np.logical_not: "not a",
    **{
        getattr(np, name): f"{name}(a)"
        for name in """
        floor ceil trunc sqrt cbrt exp expm1 exp2 log log1p log2 log10 sin cos tan arcsin arccos arctan sinh cosh tanh
        arcsinh arccosh arctanh isnan isinf isfinite
        """.split()
    },
    **{getattr(np, name): f"{name}(a, b)" for name in ("hypot", "copysign")},
}
BOOLEAN = {np.bitwise_and: "And", np.bitwise_or: "Or", np.invert: "Not", np.bitwise_xor: "Xor"}
COMPARED = (np.less, np.less_equal, np.greater, np.greater_equal, np.equal, np.not_equal)
REDUCTIONS = {np.sum: "Sum", np.mean: "Mean", np.max: "Max", np.min: "Min", np.prod: "Prod"}
REDUCED = {np.add.reduce: np.sum, np.multiply.reduce: np.prod, np.maximum.reduce: np.max, np.minimum.reduce: np.min}


@writesCall(Interpreter)
def formulas(writer: RuleWriter, call: Call) -> list[str]:
    """The terms of an Interpreter."""
    evaluator, names = call.function, list(call.function.names)
    arguments = dict(zip(names, call.arguments))
    dtypes = tuple([x.dtype if isinstance(x, Value) or isinstance(x, np.generic) else None for x in call.arguments])
    work = evaluator.plan(dtypes).work
    known: dict[Any, Any] = {}
    for name, x in arguments.items():
        if not isinstance(x, Value):
            known[leaf(name)] = leaf(x.item() if isinstance(x, np.generic) else x)
    arrays = {name: (writer.name(x), x.dtype) for name, x in arguments.items() if isinstance(x, Value)}
    real = work or np.result_type(*[x.dtype for x in arguments.values() if isinstance(x, Value)])
    expression = Expression(writer.step, arrays, np.dtype(real))
    results = []
    for root, out in zip(evaluator.terms, call.outs):
        root = rebuild(root, known, term)
        name, isBool = expression.named(spelled(formulaOf(root)))
        results.append(name if out.dtype == (np.dtype(bool) if isBool else real) else writer.cast(name, out.dtype))
    return results


@writesCall(np.ufunc)
def ufunc(writer: RuleWriter, call: Call) -> str:
    """A ufunc, of operands that have its dtype."""
    out = call.outs[0]
    kinds = [x.dtype if isinstance(x, (Value, np.generic)) else type(x) for x in call.arguments]
    joint = np.result_type(*[np.empty(0, k) if isinstance(k, np.dtype) else k(1) for k in kinds])
    if call.function in BOOLEAN and out.dtype == np.dtype(bool):
        return writer.op(BOOLEAN[call.function], *[writer.name(x, bool) for x in call.arguments])
    text = MATH.get(call.function)
    if text is None:
        raise GraphError(f"its rule calls {call.name}, which has no ONNX equivalent")
    real = joint if call.function in COMPARED or out.dtype == np.dtype(bool) else out.dtype
    if call.function in (np.logical_and, np.logical_or, np.logical_not):
        real = np.dtype(bool)
    if real == np.dtype(bool) and call.function in COMPARED:
        real = np.dtype(np.int32)
    arrays = {name: (writer.name(x, real), np.dtype(real)) for name, x in zip("ab", call.arguments)}
    name, isBool = Expression(writer.step, arrays, np.dtype(real)).named(spelled(formulaFrom(text)))
    return name if out.dtype == (np.dtype(bool) if isBool else real) else writer.cast(name, out.dtype)


def formulaFrom(text: str) -> Any:
    """The formula of a text."""
    return formulaOf(read(text))


@writesCall(np.matmul)
def product(writer: RuleWriter, call: Call) -> str:
    """MatMul."""
    return writer.op("MatMul", *[writer.name(x, call.outs[0].dtype) for x in call.arguments])


@writesCall(np.einsum)
def einsum(writer: RuleWriter, call: Call) -> str:
    """Einsum."""
    equation, *xs = call.arguments
    return writer.op("Einsum", *[writer.name(x, call.outs[0].dtype) for x in xs], equation=equation.replace(" ", ""))


@writesCall(astype)
def cast(writer: RuleWriter, call: Call) -> str:
    """Cast."""
    return writer.cast(writer.name(call.arguments[0]), call.outs[0].dtype)


@writesCall(np.where)
def where(writer: RuleWriter, call: Call) -> str:
    """Where, element by element."""
    condition, a, b = call.arguments
    dtype = call.outs[0].dtype
    return writer.op("Where", writer.name(condition, bool), writer.name(a, dtype), writer.name(b, dtype))


@writesCall(np.copy, copy)
def copied(writer: RuleWriter, call: Call) -> str:
    """A copy: ONNX has no memory layouts; `copy` may also broadcast and convert."""
    x, out = call.arguments[0], call.outs[0]
    name = writer.name(x, out.dtype)
    return name if tuple(x.shape) == out.shape else writer.op("Expand", name, writer.whole(*out.shape))


@writesCall(fill)
def filled(writer: RuleWriter, call: Call) -> str:
    """ConstantOfShape."""
    from onnx import numpy_helper

    out = call.outs[0]
    value = numpy_helper.from_array(np.array([call.arguments[0]], out.dtype))
    return writer.op("ConstantOfShape", writer.whole(*out.shape), value=value)


# Reductions -----------------------------------------------------------------------------------------------------------


@writesCall(*REDUCTIONS, *REDUCED, np.amax, np.amin)
def reduction(writer: RuleWriter, call: Call) -> str:
    """ReduceSum and the like, of elements that have the dtype of the result."""
    function = call.function
    kind = {np.amax: "Max", np.amin: "Min", **REDUCTIONS}[REDUCED.get(function, function)]
    x, out = call.arguments[0], call.outs[0]
    axes = tuple(sorted(reducedAxes(call.options.get("axis"), x.ndim)))
    return reduced(writer.step, f"Reduce{kind}", writer.name(x, out.dtype), axes, bool(call.options.get("keepdims")))


@writesCall(np.argmax, np.argmin)
def argExtreme(writer: RuleWriter, call: Call) -> str:
    """ArgMax, ArgMin; of booleans as integers."""
    x, *rest = call.arguments
    axis = rest[0] if rest else call.options.get("axis")
    name = writer.name(x, np.int32 if x.dtype == np.dtype(bool) else None)
    name = name if axis is not None else writer.reshape(name, (-1,))
    kind = "ArgMax" if call.function is np.argmax else "ArgMin"
    return writer.op(kind, name, axis=axis or 0, keepdims=int(bool(call.options.get("keepdims"))))


@writesCall(np.cumprod)
def products(writer: RuleWriter, call: Call) -> str:
    """A scan in log2 n steps: each element times the one 1, 2, 4, ... positions before it."""
    x, *rest = call.arguments
    axis = rest[0] if rest else call.options.get("axis")
    if axis is None:
        raise GraphError("its rule multiplies all elements in their order, which has no ONNX equivalent")
    axis, dtype, far = axis % x.ndim, call.outs[0].dtype, 1
    product, shape, last = writer.name(x, dtype), list(x.shape), writer.whole(axis)
    while far < x.shape[axis]:
        shape[axis] = far
        before = writer.op("Slice", product, writer.whole(0), writer.whole(-far), last)
        before = writer.op("Concat", writer.step.constant(np.ones(shape, dtype)), before, axis=axis)
        product, far = writer.op("Mul", product, before), 2 * far
    return product


@writesCall(np.cumsum)
def cumulative(writer: RuleWriter, call: Call) -> str:
    """CumSum."""
    x, *rest = call.arguments
    axis = rest[0] if rest else call.options.get("axis")
    name = writer.name(x, call.outs[0].dtype)
    name = name if axis is not None else writer.reshape(name, (-1,))
    return writer.op("CumSum", name, writer.step.constant(axis or 0, np.int64))


# Elements moved -------------------------------------------------------------------------------------------------------


def positionsOf(call: Call) -> np.ndarray:
    """For each element of a view the position in its argument."""
    x = call.arguments[0]
    at = np.arange(x.size).reshape(x.shape)
    return np.asarray(call.function(at, *call.arguments[1:], **call.options))


@writesCall(np.flip)
def flipped(writer: RuleWriter, call: Call) -> str:
    """Slice with steps of -1."""
    x, *rest = call.arguments
    axes = sorted(reducedAxes(rest[0] if rest else call.options.get("axis"), x.ndim))
    limits = [[number] * len(axes) for number in (-1, -(1 << 62), -1)]
    starts, ends, steps = (writer.whole(*values) for values in limits)
    return writer.op("Slice", writer.name(x), starts, ends, writer.whole(*axes), steps) if axes else writer.name(x)


@writesCall(np.diagonal, np.lib.stride_tricks.sliding_window_view)
def gathered(writer: RuleWriter, call: Call) -> str:
    """Any view, as a Gather of elements."""
    flat = writer.reshape(writer.name(call.arguments[0]), (-1,))
    return writer.op("Gather", flat, writer.step.constant(positionsOf(call)))


@writesCall(np.transpose, np.swapaxes, np.moveaxis)
def transposed(writer: RuleWriter, call: Call) -> str:
    """Transpose."""
    x = call.arguments[0]
    sizes = np.empty([i + 2 for i in range(x.ndim)], bool)  # of which no two are equal
    order = [n - 2 for n in call.function(sizes, *call.arguments[1:], **call.options).shape]
    return writer.op("Transpose", writer.name(x), perm=order)


@writesCall(np.reshape, np.squeeze, np.expand_dims)
def reshaped(writer: RuleWriter, call: Call) -> str:
    """Reshape."""
    x, out = call.arguments[0], call.outs[0]
    return writer.name(x) if x.shape == out.shape else writer.reshape(writer.name(x), out.shape)


@writesCall(np.broadcast_to)
def expanded(writer: RuleWriter, call: Call) -> str:
    """Expand."""
    return writer.op("Expand", writer.name(call.arguments[0]), writer.whole(*call.outs[0].shape))


@writesCall(np.concatenate)
def joined(writer: RuleWriter, call: Call) -> str:
    """Concat."""
    parts = [writer.name(x, call.outs[0].dtype) for x in call.arguments[0]]
    return writer.op("Concat", *parts, axis=call.options["axis"])


@writesCall(np.stack)
def stacked(writer: RuleWriter, call: Call) -> str:
    """Concat along a new axis."""
    out, axis = call.outs[0], call.options["axis"]
    shape = (*out.shape[:axis], 1, *out.shape[axis + 1 :])
    parts = [writer.reshape(writer.name(x, out.dtype), shape) for x in call.arguments[0]]
    return writer.op("Concat", *parts, axis=axis)


@writesCall(operator.getitem)
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


def keyOf(key: Any) -> tuple:
    """A key as a tuple, without arrays."""
    return tuple(part for part in (key if isinstance(key, tuple) else (key,)) if not isinstance(part, Value))


@writesCall(put)
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


def spreadOver(writer: RuleWriter, y: Any, dtype: Any, shape: Any, broadcast: Any = None) -> str:
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


@writesCall(np.take_along_axis)
def alongAxis(writer: RuleWriter, call: Call) -> str:
    """GatherElements."""
    x, index, *rest = call.arguments
    axis = rest[0] if rest else call.options.get("axis", -1)
    lead = tuple(n if i == axis % x.ndim else max(n, m) for i, (n, m) in enumerate(zip(index.shape, x.shape)))
    name = writer.name(index, np.int64)
    name = name if lead == tuple(index.shape) else writer.op("Expand", name, writer.whole(*lead))
    return writer.op("GatherElements", writer.name(x), name, axis=axis or None)


@writesCall(np.take)
def taken(writer: RuleWriter, call: Call) -> str:
    """Gather."""
    x, index, *rest = call.arguments
    axis = rest[0] if rest else call.options.get("axis")
    name = writer.name(x) if axis is not None else writer.reshape(writer.name(x), (-1,))
    return writer.op("Gather", name, writer.name(index, np.int64), axis=axis or None)


@writesCall(np.round)
def rounded(writer: RuleWriter, call: Call) -> str:
    """Round."""
    return writer.op("Round", writer.name(call.arguments[0]))
