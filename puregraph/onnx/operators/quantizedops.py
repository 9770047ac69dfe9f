"""QuantizedOps: quantized floats, and exact products and convolutions of integers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from puregraph import modules
from puregraph.graph.pointwise import Pointwise
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
    """The exact product, as int32."""
    return product(op, a, b, aZero, bZero)


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
    aScale, (yScale, yZero) = column(op, aScale, a), y
    if a.rank == 1 or b.rank == 1 or aScale.rank == 2:
        return rescaled(op, product(op, a, b, aZero, bZero), aScale, bScale, yScale, yZero)
    return product(op, a, b, aZero, bZero, None, factorOf(op, aScale, bScale, yScale), single(op, yZero))


def product(
    op: OnnxNode,
    a: OnnxValue,
    b: OnnxValue,
    aZero: OnnxValue | None,
    bZero: OnnxValue | None,
    bias: OnnxValue | None = None,
    factor: OnnxValue | None = None,
    yZero: OnnxValue | None = None,
) -> OnnxValue:
    """The product of integers, as int32, or scaled and rounded; a zero point of several is one for each row of a, each
    column of b."""
    lifted = [op(modules.Reshape(shape), v) if v.rank == 1 else v for v, shape in ((a, (1, -1)), (b, (-1, 1)))]
    aZero = single(op, column(op, aZero, a))
    y = op(modules.IntegerMatMul(), *lifted, aZero, single(op, bZero), bias, factor, yZero)
    lost = tuple(axis for axis, v in ((-2, a), (-1, b)) if v.rank == 1)
    return op(modules.Squeeze(lost), y) if lost else y


def column(op: OnnxNode, value: OnnxValue | None, a: OnnxValue) -> Any:
    """Values per row of a matrix, as a column."""
    if value is None or value.rank != 1 or value.shape == (1,) or (a.rank or 0) < 2:
        return value
    return op(modules.Reshape((-1, 1)), value)


def single(op: OnnxNode, value: OnnxValue | None) -> Any:
    """A single number without axes; several as they are."""
    return op(modules.Reshape(()), value) if value is not None and value.shape == (1,) else value


@onnxOp("ConvInteger")
def integerConvolution(
    op: OnnxNode, x: OnnxValue, W: OnnxValue, xZero: OnnxValue | None = None, wZero: OnnxValue | None = None
) -> OnnxValue:
    """The exact convolution, as int32."""
    return convolved(op, x, W, xZero, wZero)


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
    return convolved(op, x, W, xZero, wZero, b, factorOf(op, xScale, wScale, yScale), single(op, yZero))


def convolved(
    op: OnnxNode, x: OnnxValue, W: OnnxValue, xZero: OnnxValue | None, wZero: OnnxValue | None, *rest: OnnxValue | None
) -> OnnxValue:
    """The convolution of integers, as int32, or scaled and rounded."""
    stride, pad, dilation = windowOf(op, x, op.kernel(W))
    module = modules.IntegerConvolve(stride, pad, dilation, op.get("group", 1))
    return op(module, x, W, single(op, xZero), single(op, wZero), *rest)


def factorOf(op: OnnxNode, aScale: OnnxValue, bScale: OnnxValue, yScale: OnnxValue) -> OnnxValue:
    """aScale bScale / yScale in float32, as in other runtimes."""
    scales = [op(modules.Cast("float32"), fixed(single(op, scale))) for scale in (aScale, bScale, yScale)]
    return op(Pointwise(formula="a * b / y"), *scales)


def rescaled(
    op: OnnxNode, x: OnnxValue, aScale: OnnxValue, bScale: OnnxValue, yScale: OnnxValue, yZero: OnnxValue
) -> OnnxValue:
    """round(x aScale bScale / yScale) + yZero in the dtype of yZero."""
    y = op(modules.Mul(), op(modules.Cast("float32"), x), factorOf(op, aScale, bScale, yScale))
    return op(Quantize(yZero.dtype), y, op.constant(np.float32(1)), yZero)
