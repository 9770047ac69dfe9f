"""OpTable: the functions and operators of the formula language, one row each: numpy, CUDA C, derivative, ONNX."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from puregraph.ops import special

OPERATORS: dict[str, Callable[..., Any]] = {  # functions that are operators of Python
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "pow": operator.pow,
    "neg": operator.neg,
}


class OpRow(NamedTuple):
    """A function in numpy, C and ONNX, and the gradients of its arguments a, b, c from its output gradient g."""

    numpy: Any  # a numpy function; or a formula of a, b, c, for all languages
    cuda: str | None
    pulls: tuple[str | None, ...]  # where(p, ..., 0) is a guard: a discarded branch adds exactly 0, even if it is nan
    onnx: str | None  # the operator; None if it is composed of others in ONNX


def row(numpy: Any, cuda: str | None, *pulls: str | None, onnx: str | None = None) -> OpRow:
    """An OpRow with a gradient for each argument; None where no derivative is known."""
    return OpRow(numpy, cuda, pulls, onnx)


def series(coefficients: list[float], x: str) -> str:
    """A polynomial in x, its lowest coefficient first, as a text."""
    text = ""
    for c in reversed(coefficients):
        text = f"({c!r} + {x} * {text})" if text else repr(c)
    return text


# Series where derivatives cancel: of sinc near 0, divided by a, in a^2; of erfcx for large a, in 1 / (2 a^2)
SINC = series([(-1) ** k * 2 * k * math.pi ** (2 * k) / math.factorial(2 * k + 1) for k in range(1, 13)], "a * a")
ERFCX = series([float((-1) ** k * math.prod(range(1, 2 * k + 2, 2))) for k in range(13)], "t")

TABLE = {
    "+": row(np.add, "{0} + {1}", "g", "g", onnx="Add"),
    "-": row(np.subtract, "{0} - {1}", "g", "-g", onnx="Sub"),
    "*": row(np.multiply, "{0} * {1}", "g * b", "a * g", onnx="Mul"),
    "/": row(np.divide, "{0} / {1}", "g / b", "-g * (y / b)", onnx="Div"),
    "//": row(np.floor_divide, "floorDivide({0}, {1})", "0", "0"),
    "%": row(np.remainder, "modulo({0}, {1})", "g", "-g * round((a - y) / b)"),
    "fmod": row(np.fmod, "fmod({0}, {1})", "g", "-g * round((a - y) / b)"),
    "neg": row(np.negative, "-{0}", "-g", onnx="Neg"),
    "<": row(np.less, "{0} < {1}", "0", "0", onnx="Less"),
    "<=": row(np.less_equal, "{0} <= {1}", "0", "0", onnx="LessOrEqual"),
    ">": row(np.greater, "{0} > {1}", "0", "0", onnx="Greater"),
    ">=": row(np.greater_equal, "{0} >= {1}", "0", "0", onnx="GreaterOrEqual"),
    "==": row(np.equal, "{0} == {1}", "0", "0", onnx="Equal"),
    "!=": row(np.not_equal, "{0} != {1}", "0", "0"),
    "and": row(np.logical_and, "{0} && {1}", "0", "0", onnx="And"),
    "or": row(np.logical_or, "{0} || {1}", "0", "0", onnx="Or"),
    "not": row(np.logical_not, "!{0}", "0", onnx="Not"),
    "where": row(np.where, "{0} ? {1} : {2}", "0", "where(a, g, 0)", "where(a, 0, g)", onnx="Where"),
    # 1 where b == 0, even of 0 and nan; the logarithm appears only where the exponent varies
    "pow": row(
        np.power,
        "pow({0}, {1})",
        "where(b == 0 and not abs(a) > 0, 0, g * (b * a ** (b - 1)))",
        "where(a == 0 and b >= 0, 0, g * (y * log(a)))",
        onnx="Pow",
    ),
    # as torch: ties share evenly, both pass beside a nan, clip passes at both bounds; relu has a row, 0 at 0
    "maximum": row(
        np.maximum,
        "{0} > {1} || {0} != {0} ? {0} : {1}",
        "where(not a < b, where(a == b, 0.5 * g, g), 0)",
        "where(not a > b, where(a == b, 0.5 * g, g), 0)",
        onnx="Max",
    ),
    "minimum": row(
        np.minimum,
        "{0} < {1} || {0} != {0} ? {0} : {1}",
        "where(not a > b, where(a == b, 0.5 * g, g), 0)",
        "where(not a < b, where(a == b, 0.5 * g, g), 0)",
        onnx="Min",
    ),
    "clip": row(
        "minimum(maximum(a, b), c)",
        None,
        "where(b <= a and a <= c, g, 0)",
        "where(a < b and b < c, g, 0)",
        "where(a > c or b > c, g, 0)",
    ),
    "relu": row("maximum(a, 0)", None, "where(a > 0, g, 0)"),
    "abs": row(np.absolute, "fabs({0})", "g * sign(a)", onnx="Abs"),
    "sign": row(np.sign, "{0} != {0} ? {0} : (T)(({0} > 0) - ({0} < 0))", "0", onnx="Sign"),
    "floor": row(np.floor, "floor({0})", "0", onnx="Floor"),
    "ceil": row(np.ceil, "ceil({0})", "0", onnx="Ceil"),
    "round": row(np.rint, "rint({0})", "0", onnx="Round"),
    "trunc": row(np.trunc, "trunc({0})", "0"),
    "isnan": row(np.isnan, "isnan({0})", "0", onnx="IsNaN"),
    "isfinite": row(np.isfinite, "isfinite({0})", "0"),
    "isinf": row(np.isinf, "!!isinf({0})", "0", onnx="IsInf"),
    "heaviside": row("where(a > 0, 1, where(a == 0, b, where(a < 0, 0, a)))", None, "0", "where(a == 0, g, 0)"),
    "copysign": row(np.copysign, "copysign({0}, {1})", "g * (sign(a) * copysign(1, b))", "0"),
    "square": row("a * a", None, "g * (2 * a)"),
    "reciprocal": row("1 / a", None, "-g * (y * y)"),
    "sqrt": row(np.sqrt, "sqrt({0})", "g / (2 * y)", onnx="Sqrt"),
    "rsqrt": row("1 / sqrt(a)", None, "g * (-0.5 * y ** 3)"),
    "cbrt": row(np.cbrt, "cbrt({0})", "g / (3 * (y * y))"),
    "hypot": row(np.hypot, "hypot({0}, {1})", "where(y == 0, 0, g * (a / y))", "where(y == 0, 0, g * (b / y))"),
    "exp": row(np.exp, "exp({0})", "g * y", onnx="Exp"),
    "exp2": row(np.exp2, "exp2({0})", "g * (y * log(2))"),
    "expm1": row(np.expm1, "expm1({0})", "g * exp(a)"),
    "log": row(np.log, "log({0})", "g / a", onnx="Log"),
    "log1p": row(np.log1p, "log1p({0})", "g / (1 + a)"),
    "log2": row(np.log2, "log2({0})", "g / (a * log(2))"),
    "log10": row(np.log10, "log10({0})", "g / (a * log(10))"),
    "logaddexp": row(
        "where(a == b, a + log(2), maximum(a, b) + log1p(exp(-abs(a - b))))",
        None,
        "g * where(a == b and not isfinite(a), 0.5, sigmoid(a - b))",
        "g * where(a == b and not isfinite(a), 0.5, sigmoid(b - a))",
    ),
    "xlogy": row(
        "where(a == 0 and not isnan(b), 0, a * log(b))",
        None,
        "where(a == 0 and b <= 0, 0, g * log(b))",
        "where(a == 0 and b == 0, 0, g * (a / b))",
    ),
    "xlog1py": row(
        "where(a == 0 and not isnan(b), 0, a * log1p(b))",
        None,
        "where(a == 0 and b <= -1, 0, g * log1p(b))",
        "where(a == 0 and b == -1, 0, g * (a / (1 + b)))",
    ),
    "logit": row(  # near 1/2, where it is 0, the logarithm of a quotient would cancel
        "where(abs(a - 0.5) < 0.25, 2 * arctanh(2 * a - 1), log(a / (1 - a)))", None, "g / (a * (1 - a))"
    ),
    "sigmoid": row("1 / (1 + exp(-a))", None, "g * (y * (1 - y))", onnx="Sigmoid"),
    "logsigmoid": row("minimum(a, 0) - log1p(exp(-abs(a)))", None, "g * sigmoid(-a)"),
    "softplus": row("maximum(a, 0) + log1p(exp(-abs(a)))", None, "g * sigmoid(a)", onnx="Softplus"),
    "sin": row(np.sin, "sin({0})", "g * cos(a)", onnx="Sin"),
    "cos": row(np.cos, "cos({0})", "-g * sin(a)", onnx="Cos"),
    "tan": row(np.tan, "tan({0})", "g * (1 + y * y)", onnx="Tan"),
    "sinh": row(np.sinh, "sinh({0})", "g * cosh(a)", onnx="Sinh"),
    "cosh": row(np.cosh, "cosh({0})", "g * sinh(a)", onnx="Cosh"),
    "tanh": row(np.tanh, "tanh({0})", "g * (1 - y * y)", onnx="Tanh"),
    "arcsin": row(np.arcsin, "asin({0})", "g / sqrt((1 - a) * (1 + a))", onnx="Asin"),
    "arccos": row(np.arccos, "acos({0})", "-g / sqrt((1 - a) * (1 + a))", onnx="Acos"),
    "arctan": row(np.arctan, "atan({0})", "g / (1 + a * a)", onnx="Atan"),
    "arcsinh": row(np.arcsinh, "asinh({0})", "g / sqrt(1 + a * a)", onnx="Asinh"),
    "arccosh": row(np.arccosh, "acosh({0})", "g / sqrt((a - 1) * (a + 1))", onnx="Acosh"),
    "arctanh": row(np.arctanh, "atanh({0})", "g / ((1 - a) * (1 + a))", onnx="Atanh"),
    "atan2": row(
        np.arctan2,
        "atan2({0}, {1})",
        "where(a == 0 and b == 0, 0, g * (b / (a * a + b * b)))",
        "where(a == 0 and b == 0, 0, -g * (a / (a * a + b * b)))",
    ),
    "sinc": row(
        "where(a == 0, 1, sin(pi * a) / (pi * a))", None, f"g * where(abs(a) < 0.5, a * {SINC}, (cos(pi * a) - y) / a)"
    ),
    "erf": row(special.erf, "erf({0})", "g * (2 / sqrt(pi) * exp(-(a * a)))", onnx="Erf"),
    "erfc": row(special.erfc, "erfc({0})", "-g * (2 / sqrt(pi) * exp(-(a * a)))"),
    "erfcx": row(
        special.erfcx,
        "erfcx({0})",
        f"t = 0.5 / (a * a); g * where(a > 10, -2 / sqrt(pi) * t * {ERFCX}, 2 * a * y - 2 / sqrt(pi))",
    ),
    "erfinv": row(special.erfinv, "erfinv({0})", "g * (0.5 * sqrt(pi) * exp(y * y))"),
    "ndtr": row("0.5 * erfc(-a / sqrt(2))", None, "g * (exp(-0.5 * (a * a)) / sqrt(2 * pi))"),
    "ndtri": row(special.ndtri, "normcdfinv({0})", "g * (sqrt(2 * pi) * exp(0.5 * (y * y)))"),
    "logndtr": row(
        "where(a < -1, log(0.5 * erfcx(-a / sqrt(2))) - 0.5 * (a * a), log1p(-0.5 * erfc(a / sqrt(2))))",
        None,
        "g * where(a < -1, sqrt(2 / pi) / erfcx(-a / sqrt(2)), exp(-0.5 * (a * a)) / (sqrt(2 * pi) * ndtr(a)))",
    ),
    "lgamma": row(special.lgamma, "lgamma({0})", "g * digamma(a)"),
    "digamma": row(special.digamma, "digamma({0})", "g * trigamma(a)"),
    "trigamma": row("polygamma(1, a)", None, "g * polygamma(2, a)"),
    "polygamma": row(special.polygamma, "polygamma({0}, {1})", None, "g * polygamma(a + 1, b)"),
    "iv": row(
        "exp(minimum(abs(b), 80)) * ive(a, b) * exp(maximum(abs(b) - 80, 0))",  # exp(abs(b)) may overflow
        None,
        None,
        "g * (0.5 * (iv(a - 1, b) + iv(a + 1, b)))",
    ),
    "ive": row(special.ive, "ive({0}, {1})", None, "g * (0.5 * (ive(a - 1, b) + ive(a + 1, b)) - sign(b) * y)"),
}
FUNCTIONS = sorted(name for name in TABLE if name.isidentifier() and name not in ("and", "or", "not", "neg"))
ALIASES = {"max": "maximum", "min": "minimum", "clamp": "clip", "arctan2": "atan2", "expit": "sigmoid"}
ALIASES |= {name.replace("arc", "a"): name for name in TABLE if name.startswith("arc")}
CONSTANTS = {"pi": math.pi, "e": math.e, "inf": math.inf}
INTEGERS = {  # C of the operations that are exact in integer arithmetic, with functions of integers.h
    **{op: TABLE[op].cuda or "" for op in ("<", "<=", ">", ">=", "==", "!=", "and", "or", "not", "where")},
    **dict.fromkeys(("floor", "ceil", "round", "trunc"), "{0}"),
    "+": "plus({0}, {1})",
    "-": "minus({0}, {1})",
    "*": "times({0}, {1})",
    "//": "floorQuotient({0}, {1})",
    "%": "floorRemainder({0}, {1})",
    "neg": "negative({0})",
    "abs": "magnitude({0})",
    "sign": "(T)(({0} > 0) - ({0} < 0))",
    "maximum": "{0} > {1} ? {0} : {1}",
    "minimum": "{0} < {1} ? {0} : {1}",
}
BOOLEANS = {"+": "or", "*": "and", "maximum": "or", "minimum": "and"}  # numpy's arithmetic of booleans
LOGICAL = {"<", "<=", ">", ">=", "==", "!=", "and", "or", "not", "isnan", "isfinite", "isinf"}  # these give bools
ALLOWED = (
    "a formula may have names, numbers, pi, e, inf, + - * / // % **, comparisons, and, or, not, a if c else b, "
    f"`name = formula;` before the result, and the functions {', '.join(FUNCTIONS)}"
)
