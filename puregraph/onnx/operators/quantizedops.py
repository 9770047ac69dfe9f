"""QuantizedOps: quantized floats, and exact products and convolutions of integers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from puregraph import modules
from puregraph.graph.pointwise import Pointwise
from puregraph.modules.convolution import Convolve
from puregraph.modules.quantization import Dequantize, Quantize
from puregraph.onnx.modelfile import NUMERIC, dtypeOf
from puregraph.onnx.operators.convolutionops import windowOf
from puregraph.onnx.opregistry import onnxOp

if TYPE_CHECKING:
    from puregraph.onnx.onnxnode import OnnxNode
    from puregraph.onnx.onnxvalue import OnnxValue


@onnxOp("QuantizeLinear")
def quantize(op: OnnxNode, x: OnnxValue, scale: OnnxValue, zero: OnnxValue | None = None) -> OnnxValue:
    """The dtype is the zero point's, or an attribute's, or uint8."""
    kind = op.get("output_dtype", 0)
    if kind and kind not in NUMERIC:
        op.refuse(f"elements of kind {kind} are not integers of at least 8 bits")
    dtype = zero.dtype if zero is not None else dtypeOf(kind) if kind else np.dtype(np.uint8)
    if dtype.kind not in "iu":
        op.refuse(f"elements of {dtype} are not integers of at least 8 bits")
    return op(Quantize(dtype, op.get("axis", 1), op.get("block_size", 0)), x, fixed(scale), zero)


def fixed(scale: OnnxValue) -> OnnxValue:
    """A scale as a constant, which is not trained: rounding has no gradient."""
    scale.isWeight = False
    return scale


@onnxOp("DequantizeLinear")
def dequantize(op: OnnxNode, x: OnnxValue, scale: OnnxValue, zero: OnnxValue | None = None) -> OnnxValue:
    """The dtype is the scale's, or an attribute's; known integers keep their dtype."""
    kind = op.get("output_dtype", 0)
    dtype = dtypeOf(kind) if kind else None
    module = Dequantize(op.get("axis", 1), op.get("block_size", 0), dtype)
    return op.builder.add(module, [x, fixed(scale), zero], isComputed=not x.rank)[0]


@onnxOp("MatMulInteger")
def integerProduct(
    op: OnnxNode, a: OnnxValue, b: OnnxValue, aZero: OnnxValue | None = None, bZero: OnnxValue | None = None
) -> OnnxValue:
    """MatMulInteger, computed in float64, in which sums of products of 8 bits are exact."""
    return op(modules.Cast("int32"), product(op, a, b, aZero, bZero))


@onnxOp("QLinearMatMul")
def quantizedProduct(
    op: OnnxNode,
    a: OnnxValue,
    aScale: OnnxValue,
    aZero: OnnxValue,
    b: OnnxValue,
    bScale: OnnxValue,
    bZero: OnnxValue,
    *y: OnnxValue,
) -> OnnxValue:
    """The exact product, scaled and rounded once."""
    aScale = column(op, aScale, a)
    return rescaled(op, product(op, a, b, aZero, bZero), aScale, bScale, *y)


def product(op: OnnxNode, a: OnnxValue, b: OnnxValue, aZero: OnnxValue | None, bZero: OnnxValue | None) -> OnnxValue:
    """The product of integers, as float64; a zero point of several is one for each row of a, each column of b."""
    return op(modules.MatMul(), centered(op, a, column(op, aZero, a)), centered(op, b, bZero))


def column(op: OnnxNode, value: OnnxValue | None, a: OnnxValue) -> Any:
    """Values per row of a matrix, as a column."""
    if value is None or value.rank != 1 or value.shape == (1,) or (a.rank or 0) < 2:
        return value
    return op(modules.Reshape((-1, 1)), value)


def centered(op: OnnxNode, x: OnnxValue, zero: OnnxValue | None) -> OnnxValue:
    """x minus its zero point, as float64."""
    wide = op(modules.Cast("float64"), x)
    return wide if zero is None else op(modules.Sub(), wide, op(modules.Cast("float64"), zero))


@onnxOp("ConvInteger")
def integerConvolution(
    op: OnnxNode, x: OnnxValue, W: OnnxValue, xZero: OnnxValue | None = None, wZero: OnnxValue | None = None
) -> OnnxValue:
    """ConvInteger, computed in float64, in which sums of products of 8 bits are exact."""
    return op(modules.Cast("int32"), convolved(op, x, W, xZero, wZero))


@onnxOp("QLinearConv")
def quantizedConvolution(
    op: OnnxNode,
    x: OnnxValue,
    xScale: OnnxValue,
    xZero: OnnxValue,
    W: OnnxValue,
    wScale: OnnxValue,
    wZero: OnnxValue,
    yScale: OnnxValue,
    yZero: OnnxValue,
    b: OnnxValue | None = None,
) -> OnnxValue:
    """The exact convolution, with the bias, scaled and rounded once."""
    y = convolved(op, x, W, xZero, wZero)
    if b is not None:
        y = op(modules.Add(), y, channels(op, op(modules.Cast("float64"), b), len(W.shape) - 2))
    return rescaled(op, y, xScale, channels(op, wScale, len(W.shape) - 2), yScale, yZero)


def convolved(op: OnnxNode, x: OnnxValue, W: OnnxValue, xZero: OnnxValue | None, wZero: OnnxValue | None) -> OnnxValue:
    """The convolution of integers, as float64."""
    size = op.kernel(W)
    stride, pad, dilation = windowOf(op, x, size)
    wide = centered(op, W, channels(op, wZero, len(size) + 1))
    return op(Convolve(stride, pad, dilation, op.get("group", 1)), centered(op, x, xZero), wide, None)


def channels(op: OnnxNode, value: OnnxValue | None, rank: int) -> Any:
    """Values per output channel, in front of `rank` axes; a scalar stays."""
    if value is None or value.rank == 0 or value.shape == (1,):
        return value if value is None or value.rank == 0 else op(modules.Reshape(()), value)
    return op(modules.Reshape((-1, *(1,) * rank)), value)


def rescaled(
    op: OnnxNode, x: OnnxValue, aScale: OnnxValue, bScale: OnnxValue, yScale: OnnxValue, yZero: OnnxValue
) -> OnnxValue:
    """round(x aScale bScale / yScale) + yZero in the dtype of yZero; the factor is in float32, as in other runtimes."""
    scales = [op(modules.Cast("float32"), fixed(scale)) for scale in (aScale, bScale, yScale)]
    factor = op(Pointwise(formula="a * b / y"), *scales)
    y = op(modules.Mul(), op(modules.Cast("float32"), x), factor)
    return op(Quantize(yZero.dtype), y, op.constant(np.float32(1)), yZero)
