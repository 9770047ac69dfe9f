"""MicrosoftQuantizedOps: onnxruntime's own operators on bytes, composed of standard ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from puregraph import modules
from puregraph.graph.input import Input
from puregraph.graph.pointwise import Pointwise
from puregraph.modules.control.scan import Scan
from puregraph.modules.quantization import Dequantize
from puregraph.modules.reshaping import Unsqueeze
from puregraph.onnx import opregistry
from puregraph.onnx.graphbuilder import GraphBuilder
from puregraph.onnx.onnxnode import OnnxNode
from puregraph.onnx.onnxvalue import OnnxValue
from puregraph.onnx.operators.microsoftcalls import microsoftOp, refuseUnless, standard, summed, unscaled
from puregraph.onnx.operators.microsoftops import moved
from puregraph.onnx.operators.productops import scaled
from puregraph.onnx.operators.quantizedops import factorOf, product, rescaled, single

if TYPE_CHECKING:
    from puregraph.graph import Graph


@microsoftOp("MatMulIntegerToFloat")
def integerProductToFloat(
    op: OnnxNode,
    a: OnnxValue,
    b: OnnxValue,
    aScale: OnnxValue,
    bScale: OnnxValue,
    aZero: OnnxValue | None = None,
    bZero: OnnxValue | None = None,
    bias: OnnxValue | None = None,
) -> OnnxValue:
    """The exact product of integers, scaled."""
    return unscaled(op, product(op, a, b, aZero, bZero), aScale, bScale, bias)


@microsoftOp("DynamicQuantizeMatMul")
def dynamicProduct(
    op: OnnxNode,
    a: OnnxValue,
    b: OnnxValue,
    bScale: OnnxValue,
    bZero: OnnxValue | None = None,
    bias: OnnxValue | None = None,
) -> OnnxValue:
    """The product of values, quantized to 256 steps between their extremes, with a matrix of integers."""
    values, aScale, aZero = quantizedRange(op, a)
    return unscaled(op, product(op, values, b, aZero, bZero), aScale, bScale, bias)


def quantizedRange(op: OnnxNode, x: OnnxValue) -> tuple[OnnxValue, OnnxValue, OnnxValue]:
    """Values as bytes between their extremes and 0, the step between two of these, and the byte of 0."""
    steps, scale, zero = stepsAndZero(op, x)
    values = op(Pointwise(formula="s + z"), steps, zero)
    return op(modules.Cast("uint8"), values), scale, op(modules.Cast("uint8"), zero)


def stepsOf(op: OnnxNode, x: OnnxValue) -> tuple[OnnxValue, OnnxValue]:
    """Values as multiples of a step, in float64, and the step: the range of the values and 0, divided by 255."""
    steps, scale, _ = stepsAndZero(op, x)
    return op(modules.Cast("float64"), steps), scale


def stepsAndZero(op: OnnxNode, x: OnnxValue) -> tuple[OnnxValue, OnnxValue, OnnxValue]:
    """Values as multiples of a step, the step, and the byte that stands for 0."""
    low, high = (op(Pointwise(formula=f"{kind}(x, 0)"), op(make(), x)) for kind, make in EXTREMES)
    scale = op(Pointwise(formula="where(h > l, (h - l) / 255, 1)"), high, low)
    zero = op(Pointwise(formula="round(clip(-l / s, 0, 255))"), low, scale)
    steps = op(Pointwise(formula="clip(round(x / s) + z, 0, 255) - z"), x, scale, zero)
    return steps, scale, zero


def centered(op: OnnxNode, x: OnnxValue, zero: OnnxValue | None) -> OnnxValue:
    """x minus its zero point, as float64."""
    wide = op(modules.Cast("float64"), x)
    return wide if zero is None else op(modules.Sub(), wide, op(modules.Cast("float64"), zero))


EXTREMES = (("minimum", modules.Min), ("maximum", modules.Max))


@microsoftOp("QGemm")
def quantizedGemm(
    op: OnnxNode,
    a: OnnxValue,
    aScale: OnnxValue,
    aZero: OnnxValue | None,
    b: OnnxValue,
    bScale: OnnxValue,
    bZero: OnnxValue | None,
    c: OnnxValue | None = None,
    *y: Any,
) -> OnnxValue:
    """The exact product of integers plus an integer bias, scaled; rounded to integers if `y` defines how."""
    a, b = moved(op, a, "A"), moved(op, b, "B")
    alpha = op.get("alpha", 1.0)
    aScale = aScale if alpha == 1 else scaled(op, aScale, alpha)
    yScale, yZero = [*y, None, None][:2]
    if c is None or c.rank == 1 and c.shape == b.shape[-1:]:
        ending = () if yScale is None else (factorOf(op, aScale, bScale, yScale), single(op, yZero))
        made = product(op, a, b, aZero, bZero, c, *ending)
        return unscaled(op, made, aScale, bScale, None) if yScale is None else made
    exact = op(modules.Add(), product(op, a, b, aZero, bZero), c)
    if yScale is None:
        return unscaled(op, exact, aScale, bScale, None)
    return rescaled(op, exact, aScale, bScale, yScale, yZero)


@microsoftOp("MatMulNBits")
def bitsProduct(
    op: OnnxNode,
    x: OnnxValue,
    W: OnnxValue,
    scales: OnnxValue,
    zeros: OnnxValue | None = None,
    order: OnnxValue | None = None,
    bias: OnnxValue | None = None,
) -> OnnxValue:
    """The product with a matrix whose rows are blocks of integers of 2, 4 or 8 bits, each with a scale."""
    bits, block, width, rows = op.choice("bits", 4, 2, 8), op.get("block_size"), op.get("K"), op.get("N")
    refuseUnless(op, weight_prepacked=0)
    if order is not None:
        op.refuse("g_idx: wanted columns in their order, got an order")
    known = [op.known(value, "a matrix of bits") for value in (W, scales)]
    blocks = -(-width // block)
    packed, scales = known[0].reshape(rows, -1), op.constant(known[1].reshape(rows, blocks))
    middle = np.full((rows, blocks), 1 << bits - 1, np.uint8)
    zeroPoints = None if zeros is None else op.known(zeros, "zero points")
    if zeroPoints is not None:
        middle = (
            apart(zeroPoints.reshape(rows, -1), bits)[:, :blocks]
            if zeroPoints.dtype == np.uint8
            else zeroPoints.reshape(rows, blocks)
        )
    matrix = op.constant(apart(packed, bits)[:, :width])
    W = op.builder.add(Dequantize(1, block), [matrix, scales, op.constant(middle)], isComputed=False)[0]
    return summed(op, standard(op, "MatMul", x, op(modules.Transpose((1, 0)), W)), bias)


def apart(packed: np.ndarray, bits: int) -> np.ndarray:
    """Unpack the integers in bytes, lowest bits first."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    return (packed[:, :, None] >> shifts & (1 << bits) - 1).astype(np.uint8).reshape(len(packed), -1)


# Between integers -----------------------------------------------------------------------------------------------------


def between(
    op: OnnxNode, function: Callable[..., OnnxValue], y: Sequence[OnnxValue | None], *triples: Any
) -> OnnxValue:
    """Dequantize, apply a function, quantize the result."""
    floats = [standard(op, "DequantizeLinear", *triples[i : i + 3]) for i in range(0, len(triples), 3)]
    scale, zero = y
    zero = op.constant(np.zeros((), triples[0].dtype)) if zero is None else zero
    return standard(op, "QuantizeLinear", function(*floats), scale, zero)


@microsoftOp("QLinearAdd", "QLinearMul")
def quantizedPair(
    op: OnnxNode,
    a: OnnxValue,
    aScale: OnnxValue,
    aZero: OnnxValue | None,
    b: OnnxValue,
    bScale: OnnxValue,
    bZero: OnnxValue | None,
    yScale: OnnxValue,
    yZero: OnnxValue | None = None,
) -> OnnxValue:
    """The sum or product of two quantized arrays."""
    module = modules.Add() if op.type == "QLinearAdd" else modules.Mul()
    return between(op, lambda x, y: op(module, x, y), (yScale, yZero), a, aScale, aZero, b, bScale, bZero)


@microsoftOp("QLinearSigmoid", "QLinearLeakyRelu", "QLinearSoftmax", "QLinearAveragePool", "QLinearGlobalAveragePool")
def quantizedFunction(
    op: OnnxNode,
    x: OnnxValue,
    xScale: OnnxValue,
    xZero: OnnxValue | None,
    yScale: OnnxValue,
    yZero: OnnxValue | None = None,
) -> OnnxValue:
    """An activation or pooling of a quantized array."""
    attributes = {name: value for name, value in op.attributes.items() if name not in ("channels_last", "opset")}

    def function(value: OnnxValue) -> OnnxValue:
        return standard(op, op.type[7:], value, version=op.get("opset", opregistry.NEWEST), **attributes)

    isLast = bool(op.get("channels_last", 0))
    y = between(op, function, (yScale, yZero), channelsSecond(op, x) if isLast else x, xScale, xZero)
    return channelsLast(op, y) if isLast else y


def channelsSecond(op: OnnxNode, x: OnnxValue) -> OnnxValue:
    """Move channels from the last axis to the second."""
    rank = op.rankOf(x)
    return op(modules.Transpose((0, rank - 1, *range(1, rank - 1))), x)


def channelsLast(op: OnnxNode, x: OnnxValue) -> OnnxValue:
    """Move channels from the second axis to the last."""
    rank = op.rankOf(x)
    return op(modules.Transpose((0, *range(2, rank), 1)), x)


@microsoftOp("QLinearConcat")
def quantizedConcat(op: OnnxNode, yScale: OnnxValue, yZero: OnnxValue | None, *triples: OnnxValue | None) -> OnnxValue:
    """The concatenation of quantized arrays."""
    return between(op, lambda *xs: op(modules.Concat(op.get("axis")), *xs), (yScale, yZero), *triples)


@microsoftOp("QLinearWhere")
def quantizedChoice(op: OnnxNode, condition: OnnxValue, *others: OnnxValue | None) -> OnnxValue:
    """Elements of one of two arrays."""
    triples, y = others[:6], others[6:]
    return between(op, lambda *xs: standard(op, "Where", condition, *xs), y, *triples)


@microsoftOp("QLinearConv")
def quantizedConvolution(op: OnnxNode, x: OnnxValue, *others: OnnxValue | None) -> OnnxValue:
    """QLinearConv, optionally with channels last."""
    isLast = bool(op.get("channels_last", 0))
    attributes = {name: value for name, value in op.attributes.items() if name != "channels_last"}
    y = standard(op, "QLinearConv", channelsSecond(op, x) if isLast else x, *others, **attributes)
    return channelsLast(op, y) if isLast else y


@microsoftOp("NhwcMaxPool")
def maxPool(op: OnnxNode, x: OnnxValue) -> OnnxValue:
    """MaxPool with channels last."""
    return channelsLast(op, standard(op, "MaxPool", channelsSecond(op, x), **op.attributes))


# A recurrent layer of integers ----------------------------------------------------------------------------------------


@microsoftOp("DynamicQuantizeLSTM", optional=("b", "lengths", "h", "c", "peepholes"))
def dynamicLstm(
    op: OnnxNode,
    x: OnnxValue,
    W: OnnxValue,
    R: OnnxValue,
    b: OnnxValue | None,
    lengths: OnnxValue | None,
    h: OnnxValue | None,
    c: OnnxValue | None,
    peepholes: OnnxValue | None,
    wScale: OnnxValue,
    wZero: OnnxValue | None,
    rScale: OnnxValue,
    rZero: OnnxValue | None,
) -> list[OnnxValue]:
    """LSTM with integer weights; inputs and states are quantized to 256 steps between their minimum and maximum."""
    direction = op.choice("direction", "forward", "reverse", "bidirectional")
    refuseUnless(op, clip=0.0, input_forget=0)
    names = [name.lower() for name in op.get("activations") or ()]
    if lengths is not None or peepholes is not None or names not in ([], ["sigmoid", "tanh", "tanh"] * W.shape[0]):
        op.refuse("wanted the usual activations, without lengths and peepholes, got others")
    steps, xScale = stepsOf(op, x)
    directions = []
    for i in range(W.shape[0]):
        inputWeight, recurrentWeight, inputScale, recurrentScale, inputZero, recurrentZero = (
            op(modules.Slice(i), v) for v in (W, R, wScale, rScale, wZero, rZero)
        )
        gates = unscaled(
            op, op(modules.MatMul(), steps, centered(op, inputWeight, inputZero)), xScale, inputScale, None
        )
        if b is not None:
            gates = summed(op, gates, *op(modules.Split(0, 2), op(modules.Slice(i), b)))
        first = [op(modules.Slice(i), v) if v is not None else zerosFor(op, x, R.shape[1]) for v in (h, c)]
        cell = cellOf(op, x, R.shape[1], recurrentScale)
        isReversed = direction == "reverse" or i == 1
        module = Scan(cell, 2, [(0, isReversed)], [(0, isReversed)])
        last, memory, rows = op(module, *first, gates, centered(op, recurrentWeight, recurrentZero), recurrentScale)
        directions.append((rows, last, memory))
    return [
        op(modules.Concat(axis), *[op(Unsqueeze((axis,)), part) for part in parts])
        for axis, parts in zip((1, 0, 0), zip(*directions))
    ]


def zerosFor(op: OnnxNode, x: OnnxValue, width: int) -> OnnxValue:
    """Zeros (n, width) for an input (t, n, features)."""
    sizes = op(modules.Concat(0), op(modules.Shape(1, 2), x), op.constant(np.array([width])))
    return standard(op, "ConstantOfShape", sizes)


def cellOf(op: OnnxNode, x: OnnxValue, width: int, scale: OnnxValue) -> Graph:
    """The graph of one step: (h, c, gates, R, scale of R) -> (h, c, h)."""
    batch, wide = x.shape[1], 4 * width
    builder = GraphBuilder(op.builder.budget, op.builder.trainable)
    inner = OnnxNode(op.proto, op.name, op.version, op.attributes, builder)
    kinds = [("h", (batch, width), x.dtype), ("c", (batch, width), x.dtype), ("gates", (batch, wide), x.dtype)]
    kinds += [("R", (width, wide), np.dtype("float64")), ("scale", scale.shape, scale.dtype)]
    nodes = [Input(name=builder.fresh(name)).node() for name, _, _ in kinds]
    h, c, gates, R, recurrentScale = (OnnxValue(n, s, d, edge=(node, 0)) for (n, s, d), node in zip(kinds, nodes))
    builder.begin("cell")
    steps, hScale = stepsOf(inner, h)
    gates = summed(inner, gates, unscaled(inner, inner(modules.MatMul(), steps, R), hScale, recurrentScale, None))
    i, o, f, g = inner(modules.Split(1, 4), gates)
    c = inner(Pointwise(formula="sigmoid(f) * c + sigmoid(i) * tanh(g)"), f, c, i, g)
    h = inner(Pointwise(formula="sigmoid(o) * tanh(c)"), o, c)
    builder.end([h, c])
    return builder.graph(nodes, [h, c, h], None)
