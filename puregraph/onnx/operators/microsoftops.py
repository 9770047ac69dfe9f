"""MicrosoftOps: onnxruntime's own operators, as its optimizer and quantizer write them, composed of standard ones."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import wraps
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
from puregraph.onnx.operators.normalizationops import rmsNorm
from puregraph.onnx.operators.productops import isLayer, linear, scaled
from puregraph.onnx.operators.quantizedops import dequantize, factorOf, product, quantize, rescaled, single
from puregraph.onnx.opregistry import MICROSOFT, onnxOp
from puregraph.onnx.shapes.operandshapes import settleOperand

if TYPE_CHECKING:
    from puregraph.graph import Graph

HIDDEN = -10000.0  # added to the score of a masked key
NORM_EPSILON = 1e-12  # the epsilon of a norm after a sum
ACTIVATIONS = {  # the names of their constants
    **dict.fromkeys(("Relu", "Sigmoid", "Tanh", "HardSwish"), ()),
    "LeakyRelu": ("alpha",),
    "HardSigmoid": ("alpha", "beta"),
    "Elu": ("alpha",),
}


def microsoftOp(*names: str, optional: tuple[str, ...] = ()) -> Callable[[Callable], Callable]:
    """Register the function below; inputs without a default are required, except `optional` ones and zero points."""

    def register(read: Callable) -> Callable:
        formal = [p for p in inspect.signature(read).parameters.values() if p.kind is not p.VAR_POSITIONAL][1:]

        @wraps(read)
        def checked(op: OnnxNode, *values: OnnxValue | None) -> Any:
            padded = [*values, *[None] * (len(formal) - len(values))]
            for parameter, value in zip(formal, padded):
                isOptional = parameter.name.endswith("Zero") or parameter.name in optional
                if value is None and parameter.default is parameter.empty and not isOptional:
                    op.refuse(f"wanted an input {parameter.name}, got none")
            return read(op, *padded)

        onnxOp(*names, domain=MICROSOFT)(checked)
        return read

    return register


def standard(
    op: OnnxNode,
    kind: str,
    *values: OnnxValue | None,
    outputs: int = 1,
    version: int = opregistry.NEWEST,
    **attributes: Any,
) -> Any:
    """The outputs of a standard operator on these values; it has the first n `outputs` of this node."""
    proto = type(op.proto)(op_type=kind, output=op.proto.output[:outputs])
    inner = OnnxNode(proto, op.name, version, attributes, op.builder)
    inner.scope = op.scope
    settleOperand(kind, attributes, list(values))
    return opregistry.readerOf("", kind, version)(inner, *values)  # type: ignore[misc]


def refuseUnless(op: OnnxNode, **usual: Any) -> None:
    """Check that unsupported attributes are left out or have their usual value.

    Raises    GraphError naming the first that does not
    """
    for name, value in usual.items():
        if op.get(name, value) != value:
            op.refuse(f"{name}: wanted {value!r}, got {op.get(name)!r}")


# Activations, products and convolutions -------------------------------------------------------------------------------


def activated(op: OnnxNode, x: OnnxValue, name: str, numbers: Any) -> OnnxValue:
    """A value after the activation of a fused operator."""
    if not name:
        return x
    if name == "Clip":
        return standard(op, "Clip", x, *[op.scalar(number, x) for number in numbers])
    if name not in ACTIVATIONS:
        op.refuse(f"activation: wanted one of {', '.join([*ACTIVATIONS, 'Clip'])}, got {name!r}")
    return standard(op, name, x, **dict(zip(ACTIVATIONS[name], numbers)))


@microsoftOp("Gelu", "FastGelu", "BiasGelu")
def gelu(op: OnnxNode, x: OnnxValue, bias: OnnxValue | None = None) -> OnnxValue:
    """Gelu, with a bias that is added before; FastGelu by tanh."""
    return op(modules.Gelu(op.type == "FastGelu"), x if bias is None else op(modules.Add(), x, bias))


@microsoftOp("QuickGelu")
def quickGelu(op: OnnxNode, x: OnnxValue) -> OnnxValue:
    """QuickGelu."""
    return op(modules.Swish(op.get("alpha", 1.702)), x)


@microsoftOp("FusedConv")
def fusedConv(
    op: OnnxNode, x: OnnxValue, W: OnnxValue, b: OnnxValue | None = None, z: OnnxValue | None = None
) -> OnnxValue:
    """A convolution, a sum and an activation."""
    y = standard(op, "Conv", x, W, b, **op.attributes)
    y = y if z is None else op(modules.Add(), y, z)
    return activated(op, y, op.get("activation", ""), op.get("activation_params") or ())


@microsoftOp("FusedGemm")
def fusedGemm(op: OnnxNode, a: OnnxValue, b: OnnxValue, c: OnnxValue | None = None) -> OnnxValue:
    """Gemm and an activation."""
    numbers = [op.get(f"activation_{name}") for name in ("alpha", "beta", "gamma")]
    y = standard(op, "Gemm", a, b, c, **op.attributes)
    return activated(op, y, op.get("activation", ""), [number for number in numbers if number is not None])


@microsoftOp("FusedMatMul", "TransposeMatMul")
def fusedMatMul(op: OnnxNode, a: OnnxValue, b: OnnxValue) -> OnnxValue:
    """A product of matrices, transposed and scaled."""
    y, alpha = standard(op, "MatMul", moved(op, a, "A"), moved(op, b, "B")), op.get("alpha", 1.0)
    return y if alpha == 1 else scaled(op, y, alpha)


def moved(op: OnnxNode, x: OnnxValue, side: str) -> OnnxValue:
    """An operand of a product, transposed as the attributes transBatchA, transA (or B) say."""
    rank = op.rankOf(x)
    axes = list(range(rank))
    if op.get(f"transBatch{side}", 0) and rank > 2:
        axes = [*axes[1:-1], 0, axes[-1]]
    if op.get(f"trans{side}", 0) and rank > 1:
        axes[-2:] = axes[:-3:-1]
    return x if axes == sorted(axes) else op.view(modules.Transpose(tuple(axes)), x)


# Norms and embeddings -------------------------------------------------------------------------------------------------


@microsoftOp("SkipLayerNormalization")
def skipLayerNorm(
    op: OnnxNode,
    x: OnnxValue,
    skip: OnnxValue,
    gamma: OnnxValue,
    beta: OnnxValue | None = None,
    bias: OnnxValue | None = None,
) -> tuple[OnnxValue | None, ...]:
    """LayerNormalization of a sum."""
    x = summed(op, x, skip, bias)
    return (*normalized(op, x, gamma, beta, 3), x)


def normalized(
    op: OnnxNode, x: OnnxValue, gamma: OnnxValue, beta: OnnxValue | None, outputs: int = 1
) -> tuple[OnnxValue, OnnxValue | None, OnnxValue | None]:
    """(LayerNormalization, mean, inverse of the deviation); the last two are None if unused."""
    y = standard(op, "LayerNormalization", x, gamma, beta, outputs=outputs, epsilon=op.get("epsilon", NORM_EPSILON))
    return y if isinstance(y, tuple) else (y, None, None)


@microsoftOp("SkipSimplifiedLayerNormalization")
def skipRmsNorm(
    op: OnnxNode, x: OnnxValue, skip: OnnxValue, gamma: OnnxValue, bias: OnnxValue | None = None
) -> tuple[OnnxValue | None, ...]:
    """RMSNormalization of a sum."""
    x = summed(op, x, skip, bias)
    return standard(op, "RMSNormalization", x, gamma, epsilon=op.get("epsilon", NORM_EPSILON)), None, None, x


def summed(op: OnnxNode, *values: OnnxValue | None) -> OnnxValue:
    """The sum of the values that are present."""
    total, *others = [value for value in values if value is not None]
    for value in others:
        total = op(modules.Add(), total, value)
    return total


onnxOp("SimplifiedLayerNormalization")(rmsNorm)  # onnxruntime writes it into the standard domain


@microsoftOp("EmbedLayerNormalization", optional=("segments", "ofSegments"))
def embedLayerNorm(
    op: OnnxNode,
    ids: OnnxValue,
    segments: OnnxValue | None,
    ofWords: OnnxValue,
    ofPositions: OnnxValue,
    ofSegments: OnnxValue | None,
    gamma: OnnxValue,
    beta: OnnxValue,
    *others: OnnxValue | None,
) -> tuple[OnnxValue | None, ...]:
    """(LayerNormalization of the sum of word, position and segment embeddings; sums of the mask; sum of embeddings)."""
    mask, positions = [*others, None, None][:2]
    positions = counted(op, ids, 1) if positions is None else positions
    tables = [(ofWords, ids), (ofPositions, positions)]
    tables += [] if segments is None or ofSegments is None else [(ofSegments, segments)]
    x = summed(op, *[op(modules.Gather(0, fromEnd=True), *pair) for pair in tables])
    y = normalized(op, x, gamma, beta)[0]
    if not op.wants(1):
        return y, None, x
    shown = op(modules.Cast("int32"), ids if mask is None else mask)
    shown = shown if mask is not None else op(Pointwise(formula="0 * x"), shown)
    return y, op(modules.Cast("int32"), op(modules.Sum(1), shown)), x


def counted(op: OnnxNode, x: OnnxValue, axis: int) -> OnnxValue:
    """The numbers 0, 1, 2, ... for the positions of an axis."""
    size = op(modules.Reshape(()), op(modules.Shape(axis, axis + 1), x))
    return standard(op, "Range", op.constant(np.array(0)), size, op.constant(np.array(1)))


@microsoftOp("RotaryEmbedding")
def rotary(op: OnnxNode, x: OnnxValue, positions: OnnxValue, cos: OnnxValue, sin: OnnxValue) -> OnnxValue:
    """Rotary embedding: rotate pairs of features by an angle that depends on their position and index in a head."""
    refuseUnless(op, is_packed_batching=0, scale=1.0)
    isFlat, count = op.rankOf(x) == 3, op.get("num_heads", 0)
    half = cos.shape[1]
    parts = x
    if isFlat:
        parts = headsOf(op, x, count or x.shape[2] // (2 * half))
    unrotated = parts.shape[3] - 2 * half
    if op.rankOf(positions) == 1:
        positions = op(modules.Add(), counted(op, parts, 2), op(modules.Cast("int64"), positions))
    angles = [op(Unsqueeze((-3,)), op(modules.Gather(0, fromEnd=True), cache, positions)) for cache in (cos, sin)]
    pairs, still = op(modules.Split(3, (2 * half, unrotated)), parts) if unrotated else (parts, None)
    isPaired = bool(op.get("interleaved", 0))
    if isPaired:
        pairs = op(modules.Transpose((0, 1, 2, 4, 3)), op(modules.Reshape((0, 0, 0, half, 2)), pairs))
        pairs = op(modules.Reshape((0, 0, 0, 2 * half)), pairs)
    a, b = op(modules.Split(3, 2), pairs)
    first = op(Pointwise(formula="a * c - b * s"), a, angles[0], b, angles[1])
    second = op(Pointwise(formula="b * c + a * s"), b, angles[0], a, angles[1])
    y = op(modules.Concat(3), first, second)
    if isPaired:
        y = op(modules.Transpose((0, 1, 2, 4, 3)), op(modules.Reshape((0, 0, 0, 2, half)), y))
        y = op(modules.Reshape((0, 0, 0, 2 * half)), y)
    y = y if still is None else op(modules.Concat(3), y, still)
    return headsJoined(op, y) if isFlat else y


# Attention ------------------------------------------------------------------------------------------------------------


def headsOf(op: OnnxNode, x: OnnxValue, count: int) -> OnnxValue:
    """(n, t, heads d) as (n, heads, t, d)."""
    if not count or isinstance(x.shape[2], int) and x.shape[2] % count:
        op.refuse(f"wanted features in {count} heads of one size, got {x.shape[2]}")
    return op(modules.Transpose((0, 2, 1, 3)), op(modules.Reshape((0, 0, count, x.shape[2] // count)), x))


def headsJoined(op: OnnxNode, x: OnnxValue) -> OnnxValue:
    """(n, heads, t, d) as (n, t, heads d)."""
    width = x.shape[1] * x.shape[3]
    return op(modules.Reshape((0, 0, width)), op(modules.Transpose((0, 2, 1, 3)), x))


def attended(
    op: OnnxNode,
    q: OnnxValue,
    k: OnnxValue,
    v: OnnxValue,
    past: Sequence[OnnxValue | None] | None,
    mask: OnnxValue | None,
    bias: OnnxValue | None,
) -> tuple[OnnxValue, OnnxValue, OnnxValue]:
    """(output, k, v) of heads (n, heads, t, d); past keys and values come before the new ones."""
    if past is not None:
        k, v = (op(modules.Concat(2), before, new) for before, new in zip(past, (k, v)))
    isCausal = bool(op.get("unidirectional", 0))
    added = [] if bias is None else [bias]
    added += [] if mask is None else [hiding(op, shown(op, mask, q, k), op.get("mask_filter_value", HIDDEN), q)]
    if isCausal and past is not None:
        positions = op(modules.Add(), counted(op, q, 2), op(modules.Sub(), sizeOf(op, k), sizeOf(op, q)))
        seen = standard(op, "LessOrEqual", counted(op, k, 2), op(Unsqueeze((1,)), positions))
        added.append(hiding(op, seen, float(np.finfo(q.dtype).min), q))
    scale = op.get("scale", 0.0)
    module = modules.Attention(isCausal and past is None, scale or None)
    y = op(module, q, k, v, *([summed(op, *added)] if added else []))
    return headsJoined(op, y), k, v


def sizeOf(op: OnnxNode, x: OnnxValue) -> OnnxValue:
    """The length of heads, as one number."""
    return op(modules.Reshape(()), op(modules.Shape(2, 3), x))


def hiding(op: OnnxNode, seen: OnnxValue, number: float, like: OnnxValue) -> OnnxValue:
    """The additive attention bias of a mask: 0 where a key is visible, `number` elsewhere."""
    return standard(op, "Where", seen, op.scalar(0, like), op.scalar(number, like))


def shown(op: OnnxNode, mask: Any, q: OnnxValue, k: OnnxValue) -> OnnxValue:
    """The visible keys of a mask: a flag for each key, a length for each sample, or all ends and then all starts."""
    rank, batch = op.rankOf(mask), q.shape[0]
    if rank == 1:
        keys = counted(op, k, 2)
        ends, starts = mask, None
        if mask.shape[0] != batch:
            if mask.shape[0] != 2 * batch:
                op.refuse(f"mask: wanted ({batch},), ({2 * batch},) or two or three axes, got {tuple(mask.shape)}")
            ends, starts = op(modules.Split(0, 2), mask)
        ends, starts = (v and op(Unsqueeze((1, 2, 3)), op(modules.Cast("int64"), v)) for v in (ends, starts))
        below = standard(op, "Less", keys, ends)
        return below if starts is None else standard(op, "And", below, standard(op, "GreaterOrEqual", keys, starts))
    if rank not in (2, 3):
        op.refuse(f"mask: wanted one, two or three axes, got {rank}")
    seen = standard(op, "Greater", mask, op.scalar(0, mask))
    return op(Unsqueeze((1, 2) if rank == 2 else (1,)), seen)


@microsoftOp("Attention")
def attention(
    op: OnnxNode,
    x: OnnxValue,
    W: OnnxValue,
    b: OnnxValue | None = None,
    mask: OnnxValue | None = None,
    past: OnnxValue | None = None,
    *others: OnnxValue | None,
) -> OnnxValue | tuple[OnnxValue, OnnxValue]:
    """Queries, keys and values from one product, and attention."""
    bias, length = [*others, None, None][:2]
    return selfAttention(op, projected(op, x, W, b), mask, past, bias, length)


def projected(op: OnnxNode, x: OnnxValue, W: OnnxValue, b: OnnxValue | None) -> OnnxValue:
    """x W + b, one layer if both are weights."""
    if isLayer(x, W) and (b is None or b.array is not None and not b.isSplit):
        return linear(op, x, W, b)
    return summed(op, standard(op, "MatMul", x, W), b)


def selfAttention(
    op: OnnxNode,
    qkv: OnnxValue,
    mask: OnnxValue | None,
    past: OnnxValue | None,
    bias: OnnxValue | None,
    length: OnnxValue | None = None,
) -> OnnxValue | tuple[OnnxValue, OnnxValue]:
    """(output, keys and values) of concatenated queries, keys and values."""
    refuseUnless(op, do_rotary=0, past_present_share_buffer=0)
    if length is not None:
        op.refuse("past_sequence_length: wanted a past that is as long as it is, got a buffer with a length")
    sizes, count = op.get("qkv_hidden_sizes"), op.get("num_heads")
    parts = op(modules.Split(2, tuple(sizes) if sizes else 3), qkv)
    q, k, v = (headsOf(op, part, count) for part in parts)
    halves = None if past is None else [op(modules.Slice(i), past) for i in (0, 1)]
    y, k, v = attended(op, q, k, v, halves, mask, bias)
    if not op.wants(1):
        return y
    return y, op(modules.Concat(0), op(Unsqueeze((0,)), k), op(Unsqueeze((0,)), v))


@microsoftOp("QAttention")
def quantizedAttention(
    op: OnnxNode,
    x: OnnxValue,
    W: OnnxValue,
    b: OnnxValue,
    xScale: OnnxValue,
    wScale: OnnxValue,
    mask: OnnxValue | None = None,
    xZero: OnnxValue | None = None,
    *others: OnnxValue | None,
) -> OnnxValue | tuple[OnnxValue, OnnxValue]:
    """Attention whose queries, keys and values are an exact product of integers, scaled."""
    wZero, past = [*others, None, None][:2]
    qkv = unscaled(op, product(op, x, W, xZero, wZero), xScale, wScale, b)
    return selfAttention(op, qkv, mask, past, None)


@microsoftOp("MultiHeadAttention")
def multiHeadAttention(
    op: OnnxNode,
    q: OnnxValue,
    k: OnnxValue | None = None,
    v: OnnxValue | None = None,
    b: OnnxValue | None = None,
    *others: OnnxValue | None,
) -> tuple[OnnxValue, OnnxValue, OnnxValue]:
    """Attention of queries, keys and values, which may be packed, with a bias."""
    mask, bias, pastK, pastV, length, beams = [*others, *[None] * 6][:6]
    count = op.get("num_heads")
    if length is not None or beams is not None:
        op.refuse("past_sequence_length and cache_indirection: wanted a past that is as long as it is, got a buffer")
    if op.rankOf(q) == 5:
        q, k, v = unpacked(op, q, 3)
    elif v is None and k is not None and op.rankOf(k) == 5:
        q, k, v = q, *unpacked(op, k, 2)
    if k is None or v is None:
        op.refuse("wanted keys and values, or queries of five axes with both, got neither")
    parts = [q, k, v]
    if b is not None:
        if any(op.rankOf(part) != 3 for part in parts):
            op.refuse("bias: wanted queries, keys and values of three axes, got four")
        biases = op(modules.Split(0, tuple(part.shape[2] for part in parts)), b)
        parts = [op(modules.Add(), part, partBias) for part, partBias in zip(parts, biases)]
    q, k, v = (part if op.rankOf(part) == 4 else headsOf(op, part, count) for part in parts)
    return attended(op, q, k, v, None if pastK is None else (pastK, pastV), mask, bias)


def unpacked(op: OnnxNode, x: OnnxValue, count: int) -> list[OnnxValue]:
    """(n, t, heads, count, d) as `count` arrays (n, t, heads d)."""
    heads, size = x.shape[2], x.shape[4]
    return [op(modules.Reshape((0, 0, heads * size)), part) for part in op(modules.Split(3, count), x)]


# Products of integers -------------------------------------------------------------------------------------------------


def unscaled(op: OnnxNode, exact: OnnxValue, aScale: OnnxValue, bScale: OnnxValue, bias: OnnxValue | None) -> OnnxValue:
    """An exact product in float64, scaled and rounded once, with a bias in the dtype of the scale."""
    scale = op(modules.Mul(), aScale, bScale)
    y = op(modules.Mul(), op(modules.Cast(scale.dtype), exact), scale)
    return summed(op, y, bias)


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


onnxOp("QuantizeLinear", domain=MICROSOFT)(quantize)
onnxOp("DequantizeLinear", domain=MICROSOFT)(dequantize)


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
