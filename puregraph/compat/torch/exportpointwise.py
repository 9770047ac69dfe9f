"""Exportpointwise: operations of ATen on elements, and reductions, as modules."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from puregraph.compat.torch.exportreader import ExportReader, NodeValue, aten, dtypeOf
from puregraph.graph.pointwise import Pointwise
from puregraph.modules import (
    GLU,
    Add,
    And,
    ArgMax,
    ArgMin,
    Celu,
    Clip,
    CumSum,
    Div,
    Einsum,
    Elu,
    Equal,
    Gelu,
    Greater,
    GreaterEqual,
    HardShrink,
    HardSigmoid,
    HardSwish,
    L2Norm,
    LeakyRelu,
    Less,
    LessEqual,
    LogSigmoid,
    LogSumExp,
    Max,
    Mean,
    Min,
    Mish,
    Mod,
    Mul,
    MulAddConst,
    Not,
    NotEqual,
    Or,
    Power,
    Prod,
    Relu,
    Relu6,
    Reshape,
    Sigmoid,
    SoftPlus,
    SoftShrink,
    SoftSign,
    Sub,
    Sum,
    Swish,
    Tanh,
    Threshold,
    TopKValues,
    Where,
    Xor,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

    from puregraph.compat.torch.exportreader import Operand
    from puregraph.core.rules import Rule

FORMULAS = {
    "exp": "exp(x)",
    "expm1": "expm1(x)",
    "log": "log(x)",
    "log1p": "log1p(x)",
    "log2": "log(x) * 1.4426950408889634",
    "sqrt": "sqrt(x)",
    "rsqrt": "1 / sqrt(x)",
    "abs": "abs(x)",
    "neg": "-x",
    "sin": "sin(x)",
    "cos": "cos(x)",
    "erf": "erf(x)",
    "reciprocal": "1 / x",
    "floor": "floor(x)",
    "ceil": "ceil(x)",
    "sign": "sign(x)",
    "square": "x * x",
    "logit": "log(x / (1 - x))",
}
UNARY: dict[str, Callable[[], Any]] = {
    "relu": Relu,
    "relu6": Relu6,
    "sigmoid": Sigmoid,
    "tanh": Tanh,
    "hardswish": HardSwish,
    "mish": Mish,
    "hardsigmoid": HardSigmoid,
    "softsign": SoftSign,
    "log_sigmoid": LogSigmoid,
    "logical_not": Not,
    "bitwise_not": Not,
}
CONSTANTS: dict[str, Callable[..., Any]] = {  # activations whose constants follow the input
    "celu": Celu,
    "hardshrink": HardShrink,
    "softshrink": SoftShrink,
    "threshold": Threshold,
    "glu": GLU,
    "softplus": lambda beta=1, limit=20: SoftPlus(beta),
}
BINARY: dict[str, Any] = {"maximum": "maximum(x, y)", "minimum": "minimum(x, y)", "atan2": "arctan2(x, y)"}
COMPARISONS = {"eq": Equal, "ne": NotEqual, "lt": Less, "le": LessEqual, "gt": Greater, "ge": GreaterEqual}
LOGIC = {"logical_and": And, "logical_or": Or, "logical_xor": Xor, "__and__": And, "__or__": Or}
LOGIC |= {"bitwise_and": And, "bitwise_or": Or, "bitwise_xor": Xor}


def unary(make: Callable[[], object]) -> Rule:
    """Return the rule of an operation with one input."""
    return lambda r, x, *rest, **options: r.make(make(), x)


for _name, _formula in FORMULAS.items():
    aten(_name)(unary(lambda formula=_formula: Pointwise(formula=formula)))  # type: ignore[misc]
for _name, _kind in UNARY.items():
    aten(_name)(unary(_kind))
for _name, _make in CONSTANTS.items():
    aten(_name)(lambda r, x, *constants, make=_make: r.make(make(*constants), x))
aten("silu")(unary(Swish))


@aten("gelu")
def gelu(r: ExportReader, x: Operand, approximate: str = "none") -> NodeValue:
    """A Gelu, exact or by tanh."""
    return r.make(Gelu(approximate == "tanh"), x)


@aten("leaky_relu")
def leakyRelu(r: ExportReader, x: Operand, slope: float = 0.01) -> NodeValue:
    """A LeakyRelu."""
    return r.make(LeakyRelu(slope), x)


@aten("elu")
def elu(r: ExportReader, x: Operand, alpha: float = 1.0, scale: float = 1.0, inner: float = 1.0) -> NodeValue:
    """An Elu, or a scaled one, as SELU is."""
    if scale == 1 and inner == 1:
        return r.make(Elu(alpha), x)
    return r.make(
        Pointwise(
            formula="scale * where(x > 0, x, alpha * expm1(minimum(x * inner, 0)))",
            scale=scale,
            alpha=alpha,
            inner=inner,
        ),
        x,
    )


@aten("prelu", "_prelu_kernel")
def prelu(r: ExportReader, x: Operand, slope: Operand) -> NodeValue:
    """A Relu with a learned slope for each channel."""
    value, slope = r.asValue(x), r.asValue(slope)
    if len(slope.shape) == 1 and len(value.shape) > 2:
        slope = r.make(Reshape((slope.shape[0], *(1,) * (len(value.shape) - 2))), slope)
    return r.make(Pointwise(formula="where(x > 0, x, slope * x)"), value, slope)


@aten("hardtanh")
def hardtanh(r: ExportReader, x: Operand, low: float = -1.0, high: float = 1.0) -> NodeValue:
    """A clip with derivative 0 at both bounds, as torch defines it, where `clamp` has 1; (0, 6) is ReLU6."""
    if (low, high) == (0, 6):
        return r.make(Relu6(), x)
    return r.make(Pointwise(formula="where(x >= high, high, where(x <= low, low, x))", low=low, high=high), x)


@aten("clamp", "clip", "clamp_min", "clamp_max")
def clamp(r: ExportReader, x: Operand, low: Any | None = None, high: Any | None = None, **options: Any) -> NodeValue:
    """A Clip between numbers."""
    low, high = options.get("min", low), options.get("max", high)
    if r.operation == "clamp_max":
        low, high = None, low
    if any(not isinstance(bound, (int, float, type(None))) for bound in (low, high)):
        raise NotImplementedError("bounds that are tensors")
    return r.make(Clip(-math.inf if low is None else low, math.inf if high is None else high), x)


# Several inputs -------------------------------------------------------------------------------------------------------


def operands(r: ExportReader, *xs: Operand, dtype: torch.dtype | None = None) -> list[NodeValue]:
    """Values in one dtype: that of the result, unless given."""
    wanted = np.dtype(dtypeOf(r.result) if dtype is None else dtype)
    made = []
    for x in xs:
        isTensor = isinstance(x, NodeValue) or hasattr(x, "detach")
        made.append(r.cast(x, wanted) if isTensor else r.constant(np.asarray(x, wanted), f"{r.path}.constant"))
    return made


def sumOf(r: ExportReader, a: Operand, b: Operand) -> NodeValue:
    """The sum of two values."""
    return r.make(Add(), *operands(r, a, b, dtype=r.asValue(a).dtype))


def isNumber(x: Operand) -> bool:
    """True for a number of Python."""
    return isinstance(x, (int, float)) and not isinstance(x, bool)


def isFloat(x: Operand | None) -> bool:
    """True for a value of floats."""
    return isinstance(x, NodeValue) and x.dtype.kind == "f"


@aten("add")
def add(r: ExportReader, a: Any, b: Any, alpha: Any = 1) -> NodeValue:
    """A sum."""
    if isNumber(b) and isFloat(a):
        return r.make(MulAddConst(1.0, float(b * alpha)), a)
    first, second = operands(r, a, b)
    return r.make(Add(), first, second if alpha == 1 else times(r, second, alpha))


@aten("sub")
def sub(r: ExportReader, a: Any, b: Any, alpha: Any = 1) -> NodeValue:
    """A difference."""
    if isNumber(b) and isFloat(a):
        return r.make(MulAddConst(1.0, float(-b * alpha)), a)
    first, second = operands(r, a, b)
    return r.make(Sub(), first, second if alpha == 1 else times(r, second, alpha))


@aten("rsub")
def rsub(r: ExportReader, a: Any, b: Any, alpha: Any = 1) -> NodeValue:
    """A difference in the other order."""
    if isNumber(b) and isFloat(a):
        return r.make(MulAddConst(-float(alpha), float(b)), a)
    return sub(r, b, a, alpha)


def times(r: ExportReader, x: NodeValue, factor: Any) -> NodeValue:
    """A value times a number."""
    return (
        r.make(MulAddConst(float(factor)), x) if isFloat(x) else r.make(Mul(), *operands(r, x, factor, dtype=x.dtype))
    )


@aten("mul")
def mul(r: ExportReader, a: Any, b: Any) -> NodeValue:
    """A product of elements, or `and` of booleans."""
    if isNumber(b) and isFloat(a):
        return r.make(MulAddConst(float(b)), a)
    return r.make(And() if dtypeOf(r.result).kind == "b" else Mul(), *operands(r, a, b))


@aten("div")
def div(r: ExportReader, a: Any, b: Any, rounding_mode: Any = None) -> NodeValue:
    """A quotient, or its floor."""
    if rounding_mode is None:
        return (
            times(r, a, 1 / b)
            if isNumber(b) and isFloat(a) and math.frexp(b)[0] == 0.5
            else r.make(Div(), *operands(r, a, b))
        )
    if rounding_mode == "floor" and dtypeOf(r.result).kind == "f":
        return r.make(Pointwise(formula="floor(x / y)"), *operands(r, a, b))
    raise NotImplementedError(f"rounding_mode={rounding_mode}")


@aten("remainder")
def remainder(r: ExportReader, a: Operand, b: Operand) -> NodeValue:
    """The remainder with the sign of the divisor."""
    return r.make(Mod(), *operands(r, a, b))


@aten("pow.Tensor_Scalar")
def power(r: ExportReader, x: Any, exponent: Any) -> NodeValue:
    """A power with a number as exponent."""
    return r.make(Power(float(exponent) if isFloat(x) else exponent), x)


@aten("pow.Tensor_Tensor", "pow.Scalar")
def powerOf(r: ExportReader, x: Operand, exponent: Operand) -> NodeValue:
    """A power of elements."""
    return r.make(Pointwise(formula="x ** y"), *operands(r, x, exponent))


for _name, _formula in BINARY.items():
    aten(_name)(lambda r, a, b, formula=_formula: r.make(Pointwise(formula=formula), *operands(r, a, b)))


def compared(r: ExportReader, a: Operand, b: Operand) -> NodeValue:
    """A comparison in the operands' common dtype."""
    dtypes = [r.asValue(x).dtype for x in (a, b) if isinstance(x, NodeValue) or hasattr(x, "detach")]
    dtype = np.result_type(*dtypes)
    if any(isinstance(x, float) for x in (a, b)) and dtype.kind != "f":
        dtype = np.dtype(np.float32)
    return r.make(COMPARISONS[r.operation](), *operands(r, a, b, dtype=dtype))


def joined(r: ExportReader, a: Operand, b: Operand) -> NodeValue:
    """A logical operation."""
    return r.make(LOGIC[r.operation](), *operands(r, a, b, dtype=bool))


aten(*COMPARISONS)(compared)
aten(*LOGIC)(joined)


@aten("where.self", "where.ScalarOther", "where.ScalarSelf", "where.Scalar")
def where(r: ExportReader, condition: Any, a: Any, b: Any) -> NodeValue:
    """A choice of elements."""
    return r.make(Where(), r.cast(condition, bool), *operands(r, a, b))


@aten("masked_fill")
def maskedFill(r: ExportReader, x: Operand, mask: Operand, fill: Operand) -> NodeValue:
    """A number where a mask is true."""
    value, other = operands(r, x, fill)
    return r.make(Where(), r.cast(mask, bool), other, value)


@aten("einsum")
def einsum(r: ExportReader, equation: str, xs: Any, *rest: object, **options: object) -> NodeValue:
    """An Einsum."""
    return r.make(Einsum(equation), *xs)


# Reductions -----------------------------------------------------------------------------------------------------------


def axesOf(axes: int | Sequence[int] | None) -> Any:
    """Axes of a reduction; None for all."""
    return None if axes is None or axes == [] else tuple(axes) if isinstance(axes, list) else (axes,)


def reduction(kind: type) -> Rule:
    """A row of a reduction."""

    def row(
        r: ExportReader,
        x: Operand,
        axes: int | Sequence[int] | None = None,
        keepdims: bool = False,
        dtype: torch.dtype | None = None,
    ) -> NodeValue:
        return r.make(kind(axesOf(axes), keepdims=keepdims), r.cast(x, dtypeOf(r.result)))

    return row


for _name, _kind in {"mean": Mean, "sum": Sum, "amax": Max, "amin": Min, "prod": Prod, "logsumexp": LogSumExp}.items():
    aten(_name)(reduction(_kind))


@aten("max.dim", "min.dim")
def extreme(r: ExportReader, x: Operand, axis: int, keepdims: bool = False) -> list[NodeValue]:
    """The maximum or minimum along an axis, and its index."""
    isMax = r.operation == "max"
    index = (ArgMax if isMax else ArgMin)(axis, keepdims=keepdims)
    return [r.make((Max if isMax else Min)((axis,), keepdims=keepdims), x), r.make(index, x)]


@aten("max.default", "max", "min", "min.default")
def extremeOfAll(r: ExportReader, x: Operand) -> NodeValue:
    """The maximum or minimum of all elements."""
    return r.make((Max if r.operation == "max" else Min)(None), x)


@aten("argmax", "argmin")
def argument(r: ExportReader, x: Any, axis: Any | None = None, keepdims: bool = False) -> NodeValue:
    """The index of an extreme along an axis."""
    if axis is None:
        raise NotImplementedError("over all axes as one")
    return r.make((ArgMax if r.operation == "argmax" else ArgMin)(axis, keepdims=keepdims), x)


@aten("var.correction", "std.correction", "var.dim", "std.dim", "var", "std")
def variance(
    r: ExportReader,
    x: Any,
    axes: Any | None = None,
    unbiased: Any = True,
    keepdims: bool = False,
    *,
    correction: Any | None = None,
    keepdim: Any | None = None,
) -> NodeValue:
    """The variance or standard deviation along axes."""
    keepdims = keepdims if keepdim is None else keepdim
    rank = len(x.shape)
    listed = tuple(range(rank)) if axesOf(axes) is None else axesOf(axes)
    count = math.prod(x.shape[axis] for axis in listed)
    less = (1 if unbiased else 0) if correction is None else correction
    away = r.make(Sub(), x, r.make(Mean(listed, keepdims=True), x))
    total = r.make(Mean(listed, keepdims=keepdims), r.make(Pointwise(formula="x * x"), away))
    made = times(r, total, count / (count - less)) if less else total
    return r.make(Pointwise(formula="sqrt(x)"), made) if r.operation == "std" else made


@aten("linalg_vector_norm", "norm.ScalarOpt_dim")
def vectorNorm(
    r: ExportReader,
    x: Operand,
    order: Any = 2,
    axes: int | Sequence[int] | None = None,
    keepdims: bool = False,
    *rest: object,
) -> NodeValue:
    """A Euclidean norm."""
    if order not in (2, None):
        raise NotImplementedError(f"a norm of order {order}")
    return r.make(L2Norm(axesOf(axes), keepdims=keepdims), x)


@aten("cumsum")
def cumsum(r: ExportReader, x: Operand, axis: int, dtype: torch.dtype | None = None) -> NodeValue:
    """A cumulative sum."""
    return r.make(CumSum(axis), r.cast(x, dtypeOf(r.result)))


@aten("all.dim", "any.dim", "all", "any", "any.dims")
def allOrAny(r: ExportReader, x: Operand, axes: int | Sequence[int] | None = None, keepdims: bool = False) -> NodeValue:
    """True if all, or any, elements are true."""
    kind = Min if r.operation == "all" else Max
    return r.cast(r.make(kind(axesOf(axes), keepdims=keepdims), r.cast(r.cast(x, bool), np.int64)), bool)


@aten("topk")
def topk(
    r: ExportReader, x: Operand, count: int, axis: int = -1, largest: bool = True, *rest: object
) -> list[NodeValue]:
    """The largest elements along an axis, and their indices."""
    return r.several(TopKValues(count, axis, largest), x)
