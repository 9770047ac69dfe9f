"""ElementwiseOps: arithmetic, functions, comparisons and logic, element by element; casts between dtypes."""

from __future__ import annotations

from typing import Any

import numpy as np

from puregraph import modules
from puregraph.core.base.dtype import isFloating
from puregraph.core.dim import Dim
from puregraph.core.shape import valueOf
from puregraph.graph.pointwise import Pointwise
from puregraph.modules.bits import BitShift, Bitwise
from puregraph.onnx.modelfile import NUMERIC, dtypeOf, notNumeric
from puregraph.onnx.opregistry import onnxOp

UNARY = {
    "Abs": "abs(x)",
    "Acos": "arccos(x)",
    "Acosh": "arccosh(x)",
    "Asin": "arcsin(x)",
    "Asinh": "arcsinh(x)",
    "Atan": "arctan(x)",
    "Atanh": "arctanh(x)",
    "Ceil": "ceil(x)",
    "Cos": "cos(x)",
    "Cosh": "cosh(x)",
    "Erf": "erf(x)",
    "Exp": "exp(x)",
    "Floor": "floor(x)",
    "IsNaN": "isnan(x)",
    "Log": "log(x)",
    "Neg": "-x",
    "Reciprocal": "1 / x",
    "Round": "round(x)",
    "Sign": "sign(x)",
    "Sin": "sin(x)",
    "Sinh": "sinh(x)",
    "Sqrt": "sqrt(x)",
    "Tan": "tan(x)",
}
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
def unary(op: Any, x: Any) -> Any:
    """Functions of one input."""
    return op(Pointwise(formula=UNARY[op.type]), x)


@onnxOp(*BINARY)
def binary(op: Any, a: Any, b: Any) -> Any:
    """Functions of two inputs."""
    return op(BINARY[op.type](), a, b)


@onnxOp("Not")
def negation(op: Any, x: Any) -> Any:
    """Not."""
    return op(modules.Not(), x)


@onnxOp("Where")
def where(op: Any, condition: Any, a: Any, b: Any) -> Any:
    """Where, element by element."""
    return op(modules.Where(), condition, a, b)


@onnxOp("Identity")
def identity(op: Any, x: Any) -> Any:
    """Identity."""
    return op(modules.Identity(), x)


@onnxOp("Div")
def divide(op: Any, a: Any, b: Any) -> Any:
    """Division; quotients of integers are truncated towards zero."""
    if isFloating(a.dtype):
        return op(modules.Div(), a, b)
    isPlain = a.dtype.kind == "u" or isNatural(a) and isNatural(b)
    return op(Pointwise(formula="a // b" if isPlain else "(a - fmod(a, b)) // b"), a, b)


def isNatural(value: Any) -> bool:
    """True if the elements are known ahead of data, and none is negative."""
    known = None if value.shape is None else valueOf(value.shape)
    return known is not None and not any(not isinstance(n, Dim) and n < 0 for n in known.ravel().tolist())


@onnxOp("Mod")
def modulo(op: Any, a: Any, b: Any) -> Any:
    """Mod."""
    return op(Pointwise(formula="fmod(a, b)") if op.get("fmod", 0) else modules.Mod(), a, b)


@onnxOp("Pow")
def power(op: Any, a: Any, b: Any) -> Any:
    """The result has the dtype of the base."""
    if b.array is not None and b.array.size == 1 and isFloating(a.dtype) and b.array.item() != 0 and b.rank == 0:
        return op(modules.Power(float(b.array)), a)
    y = op(Pointwise(formula="a ** b"), a, b)
    return y if y.dtype == a.dtype else op(modules.Cast(a.dtype), y)


@onnxOp("Max", "Min")
def extreme(op: Any, *xs: Any) -> Any:
    """Max or Min of any number of inputs, in pairs."""
    y = xs[0]
    for x in xs[1:]:
        y = op(Pointwise(formula="maximum(a, b)" if op.type == "Max" else "minimum(a, b)"), y, x)
    return y if len(xs) > 1 else op(modules.Identity(), y)


@onnxOp("Sum")
def total(op: Any, *xs: Any) -> Any:
    """Sum."""
    return op(modules.Add(), *xs)


@onnxOp("Mean")
def average(op: Any, *xs: Any) -> Any:
    """Mean."""
    return op(Pointwise(formula="x / n", n=float(len(xs))), op(modules.Add(), *xs))


@onnxOp("Clip")
def clip(op: Any, x: Any, low: Any = None, high: Any = None) -> Any:
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
    if low is not None:  # at a bound the gradient is all of x; maximum would share it
        x = op(Pointwise(formula="where(x < low, low, x)"), x, low)
    if high is not None:
        x = op(Pointwise(formula="where(x > high, high, x)"), x, high)
    return x if low is not None or high is not None else op(modules.Identity(), x)


@onnxOp("IsInf")
def isInf(op: Any, x: Any) -> Any:
    """IsInf."""
    both = op.get("detect_negative", 1), op.get("detect_positive", 1)
    formulas = {(1, 1): "isinf(x)", (1, 0): "x == -inf", (0, 1): "x == inf", (0, 0): "x != x and x == x"}
    return op(Pointwise(formula=formulas[both]), x)


@onnxOp("BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot")
def bitwise(op: Any, *xs: Any) -> Any:
    """BitwiseAnd, BitwiseOr, BitwiseXor, BitwiseNot."""
    return op(Bitwise(op.type[7:].lower()), *xs)


@onnxOp("BitShift")
def bitShift(op: Any, x: Any, by: Any) -> Any:
    """BitShift."""
    return op(BitShift(op.get("direction").lower()), x, by)


@onnxOp("Cast")
def cast(op: Any, x: Any) -> Any:
    """Cast."""
    kind = op.get("to")
    if kind not in NUMERIC:
        op.refuse(notNumeric(kind))
    return op(modules.Cast(dtypeOf(kind)), x)


@onnxOp("CastLike")
def castLike(op: Any, x: Any, like: Any) -> Any:
    """CastLike."""
    return op(modules.Cast(like.dtype), x)
