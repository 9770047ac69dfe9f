"""ElementwiseOps: arithmetic, functions, comparisons and logic, element by element; casts between dtypes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from puregraph import modules
from puregraph.core.base.dtype import isFloating
from puregraph.core.dim import Dim
from puregraph.core.shape import valueOf
from puregraph.graph.pointwise import Pointwise
from puregraph.modules.bits import BitShift, Bitwise
from puregraph.onnx.modelfile import NUMERIC, dtypeOf, notNumeric
from puregraph.onnx.opregistry import onnxOp
from puregraph.ops.formula.optable import FUNCTIONS, TABLE

if TYPE_CHECKING:
    from puregraph.onnx.onnxnode import OnnxNode
    from puregraph.onnx.onnxvalue import OnnxValue

OTHERS = ("IsInf", "Sigmoid", "Softplus", "Tanh")  # operators with attributes, or with modules
ROWS = {row.onnx: name for name, row in TABLE.items() if name in FUNCTIONS and len(row.pulls) == 1}
UNARY = {kind: f"{name}(x)" for kind, name in ROWS.items() if kind and kind not in OTHERS}
UNARY |= {"Neg": "-x", "Reciprocal": "1 / x"}
BINARY = {
    "And": modules.And,
    "Or": modules.Or,
    "Xor": modules.Xor,
    "Equal": modules.Equal,
    "Less": modules.Less,
    "LessOrEqual": modules.LessEqual,
    "Greater": modules.Greater,
    "GreaterOrEqual": modules.GreaterEqual,
    "Add": modules.Add,
    "Sub": modules.Sub,
    "Mul": modules.Mul,
}


@onnxOp(*UNARY)
def unary(op: OnnxNode, x: OnnxValue) -> OnnxValue:
    """Functions of one input."""
    return op(Pointwise(formula=UNARY[op.type]), x)


@onnxOp(*BINARY)
def binary(op: OnnxNode, a: OnnxValue, b: OnnxValue) -> OnnxValue:
    """Functions of two inputs."""
    return op(BINARY[op.type](), a, b)


@onnxOp("Not")
def negation(op: OnnxNode, x: OnnxValue) -> OnnxValue:
    """Not."""
    return op(modules.Not(), x)


@onnxOp("Where")
def where(op: OnnxNode, condition: OnnxValue, a: OnnxValue, b: OnnxValue) -> OnnxValue:
    """Where, element by element."""
    return op(modules.Where(), condition, a, b)


@onnxOp("Identity")
def identity(op: OnnxNode, x: OnnxValue) -> OnnxValue:
    """Identity."""
    return op(modules.Identity(), x)


@onnxOp("Div")
def divide(op: OnnxNode, a: OnnxValue, b: OnnxValue) -> OnnxValue:
    """Division; quotients of integers are truncated towards zero."""
    if isFloating(a.dtype):
        return op(modules.Div(), a, b)
    isPlain = a.dtype.kind == "u" or isNatural(a) and isNatural(b)
    return op(Pointwise(formula="a // b" if isPlain else "(a - fmod(a, b)) // b"), a, b)


def isNatural(value: OnnxValue) -> bool:
    """True if the elements are known ahead of data, and none is negative."""
    known = None if value.shape is None else valueOf(value.shape)
    return known is not None and not any(not isinstance(n, Dim) and n < 0 for n in known.ravel().tolist())


@onnxOp("Mod")
def modulo(op: OnnxNode, a: OnnxValue, b: OnnxValue) -> OnnxValue:
    """Mod."""
    return op(Pointwise(formula="fmod(a, b)") if op.get("fmod", 0) else modules.Mod(), a, b)


@onnxOp("Pow")
def power(op: OnnxNode, a: OnnxValue, b: OnnxValue) -> OnnxValue:
    """The result has the dtype of the base."""
    if b.array is not None and b.array.size == 1 and isFloating(a.dtype) and b.array.item() != 0 and b.rank == 0:
        return op(modules.Power(float(b.array)), a)
    y = op(Pointwise(formula="a ** b"), a, b)
    return y if y.dtype == a.dtype else op(modules.Cast(a.dtype), y)


@onnxOp("Max", "Min")
def extreme(op: OnnxNode, *xs: OnnxValue) -> OnnxValue:
    """Max or Min of any number of inputs, in pairs."""
    y = xs[0]
    for x in xs[1:]:
        y = op(Pointwise(formula="maximum(a, b)" if op.type == "Max" else "minimum(a, b)"), y, x)
    return y if len(xs) > 1 else op(modules.Identity(), y)


@onnxOp("Sum")
def total(op: OnnxNode, *xs: OnnxValue) -> OnnxValue:
    """Sum."""
    return op(modules.Add(), *xs)


@onnxOp("Mean")
def average(op: OnnxNode, *xs: OnnxValue) -> OnnxValue:
    """Mean."""
    return op(Pointwise(formula="x / n", n=float(len(xs))), op(modules.Add(), *xs))


@onnxOp("Clip")
def clip(op: OnnxNode, x: OnnxValue, low: Any = None, high: Any = None) -> OnnxValue:
    """The bounds are attributes before opset 11."""
    if op.version < 11:
        low, high = (None if bound is None else op.scalar(bound, x) for bound in (op.get("min"), op.get("max")))
    bounds = [None if v is None else v.numbers for v in (low, high)]
    isKnown = all(v is None or b is not None for v, b in zip((low, high), bounds))
    if isKnown and isFloating(x.dtype) and (low is not None or high is not None):
        low, high = (default if b is None else b.item() for b, default in zip(bounds, (-np.inf, np.inf)))
        if low <= high:
            return op(modules.Clip(float(low), float(high)), x)
        return op(Pointwise(formula="minimum(maximum(x, low), high)", low=low, high=high), x)
    if low is not None:  # at a bound, all of the gradient goes to x; maximum would split it
        x = op(Pointwise(formula="where(x < low, low, x)"), x, low)
    if high is not None:
        x = op(Pointwise(formula="where(x > high, high, x)"), x, high)
    return x if low is not None or high is not None else op(modules.Identity(), x)


@onnxOp("IsInf")
def isInf(op: OnnxNode, x: OnnxValue) -> OnnxValue:
    """IsInf."""
    both = op.get("detect_negative", 1), op.get("detect_positive", 1)
    formulas = {(1, 1): "isinf(x)", (1, 0): "x == -inf", (0, 1): "x == inf", (0, 0): "x != x and x == x"}
    return op(Pointwise(formula=formulas[both]), x)


@onnxOp("BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot")
def bitwise(op: OnnxNode, *xs: OnnxValue) -> OnnxValue:
    """BitwiseAnd, BitwiseOr, BitwiseXor, BitwiseNot."""
    return op(Bitwise(op.type[7:].lower()), *xs)


@onnxOp("BitShift")
def bitShift(op: OnnxNode, x: OnnxValue, by: OnnxValue) -> OnnxValue:
    """BitShift."""
    return op(BitShift(op.get("direction").lower()), x, by)


@onnxOp("Cast")
def cast(op: OnnxNode, x: OnnxValue) -> OnnxValue:
    """Cast."""
    kind = op.get("to")
    if kind not in NUMERIC:
        op.refuse(notNumeric(kind))
    return op(modules.Cast(dtypeOf(kind)), x)


@onnxOp("CastLike")
def castLike(op: OnnxNode, x: OnnxValue, like: OnnxValue) -> OnnxValue:
    """CastLike."""
    return op(modules.Cast(like.dtype), x)
