"""MicrosoftAttentionOps: onnxruntime's attention and rotary positions, composed of standard operators."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from puregraph import modules
from puregraph.graph.pointwise import Pointwise
from puregraph.modules.reshaping import Unsqueeze
from puregraph.onnx.onnxnode import OnnxNode
from puregraph.onnx.onnxvalue import OnnxValue
from puregraph.onnx.operators.microsoftcalls import (
    MASKED_SCORE,
    counted,
    microsoftOp,
    refuseUnless,
    standard,
    summed,
    unscaled,
)
from puregraph.onnx.operators.productops import isLayer, linear
from puregraph.onnx.operators.quantizedops import product


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
    added += [] if mask is None else [hiding(op, shown(op, mask, q, k), op.get("mask_filter_value", MASKED_SCORE), q)]
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
