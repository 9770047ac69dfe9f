"""AttentionPatterns: scaled dot-product attention as exporters write it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from puregraph import modules
from puregraph.core.shape import valueOf
from puregraph.onnx.patterns.matching import numberOf
from puregraph.onnx.patterns.patternregistry import onnxPattern

if TYPE_CHECKING:
    from puregraph.core.dim import Size
    from puregraph.onnx.onnxnode import OnnxNode
    from puregraph.onnx.onnxvalue import OnnxValue

BLIND = -1e30  # lower scores mean that a key is hidden from a query, as in Attention
SCORES = (
    "MatMul(q * Known(a), keys * Known(b))",
    "MatMul(q, keys) * Known(a)",
    "MatMul(q * Known(a), keys)",
    "MatMul(q, keys)",
)
TRIANGLE = "Where(Equal(Trilu(Expand(Known(one), sizes), upper=0), 0), Known(low), 0)"
PAST = "LessOrEqual(Range(0, sources, 1), Unsqueeze(Range(0, targets, 1), axes=added))"
MASKED = {
    "": "{}",
    "added": "{} + Known(mask)",
    "triangle": f"{{}} + {TRIANGLE}",
    "shown": "Where(Known(shown), {}, Known(low))",
    "hidden": "Where(Known(covered), Known(low), {})",
}
SURE = {  # forms that give zeros for a query without visible keys, as Attention does
    "added": "{} + mask",
    "shown": "Where(shown, {}, Known(low))",
    "past": f"Where({PAST}, {{}}, Known(low))",
    "both": f"Where({PAST}, {{}} + mask, Known(low))",
    "two": "Where(Known(seen), {} + mask, Known(low))",
}


def zeroed(scores: str) -> str:
    """The pattern of softmax weights that are zero for a query without visible keys."""
    return f"Where(Less(ReduceMax({scores}, axes=last, keepdims=1), Known(least)), 0, Softmax({scores}, axis=-1))"


@onnxPattern(
    *(f"MatMul(Softmax({mask.format(scores)}, axis=-1), v)" for mask in MASKED.values() for scores in SCORES),
    *(f"MatMul({zeroed(mask.format(scores))}, v)" for mask in SURE.values() for scores in SCORES[1:2]),
)
def attention(
    op: OnnxNode,
    q: OnnxValue,
    keys: OnnxValue,
    v: OnnxValue,
    a: OnnxValue | None = None,
    b: OnnxValue | None = None,
    **masks: Any,
) -> OnnxValue | None:
    """Attention of four axes."""
    if any(x.rank != 4 or x.dtype != q.dtype for x in (q, keys, v)):
        return None
    scales = [1.0 if x is None else numberOf(x) for x in (a, b)]
    maskForm = masking(op, masks, q.shape[2], keys.shape[3])
    if None in scales or maskForm is None:
        return None
    causal, mask = maskForm
    size, scale = q.shape[3], float(np.prod([float(n) for n in scales if n is not None]))
    isUsual = isinstance(size, int) and abs(scale * size**0.5 - 1) < 1e-6
    module = modules.Attention(causal, None if isUsual else scale)
    return op(module, q, rowsOf(op, keys), v, *([] if mask is None else [mask]))


def masking(op: OnnxNode, masks: dict[str, Any], targets: Size, sources: Size) -> tuple[bool, OnnxValue | None] | None:
    """(causal, extra mask) of an attention; None for masks that Attention does not support.

    Unless the pattern gives zeros for queries without visible keys, each query must see a key.
    """
    low, isSure = masks.get("low"), "least" in masks
    if low is not None and not hides(low) or isSure and not (hides(masks["least"]) and masks["last"] == (-1,)):
        return None
    if "targets" in masks:
        isWhole = valueOf(masks["targets"].shape) == targets and valueOf(masks["sources"].shape) == sources
        return (True, masks.get("mask")) if isWhole and masks["added"] == (-1,) else None
    if "sizes" in masks:
        known = valueOf(masks["sizes"].shape)
        isWhole = known is not None and known.ravel().tolist() == [targets, sources]
        return (True, None) if isWhole and numberOf(masks["one"]) == 1 else None
    if "seen" in masks:
        return (True, masks["mask"]) if isPast(masks["seen"].numbers, targets, sources) else None
    mask = next((masks[name] for name in ("mask", "shown", "covered") if name in masks), None)
    if mask is None:
        return False, None
    if mask.numbers is None or mask.isWeight:
        isMask = isSure and mask.dtype is not None and mask.dtype.kind in "fb"
        return (False, mask) if isMask else None
    return fixedMask(op, mask, "covered" in masks, isSure, targets, sources)


def fixedMask(
    op: OnnxNode, value: OnnxValue, isCovered: bool, isSure: bool, targets: Size, sources: Size
) -> tuple[bool, OnnxValue | None] | None:
    """(causal, mask) of a mask with known elements; None if not supported."""
    mask = value.numbers
    isBool = mask.dtype.kind == "b"
    shown = (~mask if isCovered else mask) if isBool else mask > BLIND
    if isPast(shown, targets, sources) and (isBool or not mask[shown].any()):
        return True, None
    if not isSure and not shown.any(axis=-1).all() or not shown.ndim:
        return None
    return False, op.constant(shown) if isCovered else value


def hides(low: OnnxValue) -> bool:
    """True if a number is low enough to mask out its position."""
    number = numberOf(low)
    return number is not None and number <= BLIND * (1 - 1e-6)


def isPast(shown: np.ndarray | None, targets: Size, sources: Size) -> bool:
    """True if the mask is causal: each query sees exactly the keys up to its position."""
    if shown is None or shown.shape[-2:] != (targets, sources) or set(shown.shape[:-2]) - {1}:
        return False
    return bool((shown == np.tri(shown.shape[-2], shown.shape[-1], dtype=bool)).all())


def rowsOf(op: OnnxNode, keys: OnnxValue) -> OnnxValue | None:
    """Keys (n, h, s, d) from keys (n, h, d, s); two transposes become one."""
    order, original = (0, 1, 3, 2), flatTransposed(op, keys)
    if original is not None:
        return original
    if isMade(op, keys, "Transpose"):
        source, axes = keys.origin.inputs[0], keys.origin.attributes.get("perm", (3, 2, 1, 0))
        order = tuple(axes[axis] for axis in order)
        keys = source
    return keys if order == (0, 1, 2, 3) else op.view(modules.Transpose(order), keys)


def flatTransposed(op: OnnxNode, keys: OnnxValue) -> OnnxValue | None:
    """The source of keys that were flattened to a row of matrices, transposed and reshaped; None for other keys."""
    x = keys
    for kind in ("Reshape", "Transpose", "Reshape"):
        if not isMade(op, x, kind) or kind == "Transpose" and list(x.origin.attributes.get("perm", ())) != [0, 2, 1]:
            return None
        x = x.origin.inputs[0]
    n, h, d, s = keys.shape
    return x if x.shape == (n, h, s, d) else None


def isMade(op: OnnxNode, x: OnnxValue, kind: str) -> bool:
    """True if a value is the output of this operator in the same graph of the file."""
    return x.origin is not None and x.origin.type == kind and x.origin.scope is op.scope
