"""Attention in functions of numpy that ONNX has: all scores at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from puregraph.ops.attention.limits import limitsOf
from puregraph.ops.attention.reference import FLOOR, attend, attendGrad
from puregraph.ops.operation import op
from puregraph.ops.reduction.reference import unbroadcast

if TYPE_CHECKING:
    from typing import Any

    from puregraph.core.protocols import AnyArray


def scoresOf(
    q: AnyArray, k: AnyArray, mask: AnyArray, causal: bool, scale: float, limits: Any = None
) -> tuple[AnyArray, Any]:
    """scale q k' + mask, FLOOR where a key is hidden, and the slopes of a cap.

    Query heads that share keys are rows of one head.
    """
    sees = limitsOf(limits)
    scores, slopes = sees.capped(meet(q, k) * q.dtype.type(scale))
    low = q.dtype.type(2 * FLOOR)
    if mask is not None and mask.dtype == np.dtype(bool):
        scores = np.where(mask, scores, low)
    elif mask is not None:
        scores = scores + mask
    seen = sees.visible(q, slice(0, q.shape[2]), slice(0, k.shape[2]), causal)
    return (scores if seen is None else np.where(seen, scores, low)), slopes


def meet(rows: AnyArray, others: AnyArray) -> AnyArray:
    """Products of rows with the rows of their head."""
    (n, h, t, d), heads, s = rows.shape, others.shape[1], others.shape[2]
    return (rows.reshape(n, heads, h // heads * t, d) @ others.swapaxes(-1, -2)).reshape(n, h, t, s)


def gathered(weights: AnyArray, values: AnyArray) -> AnyArray:
    """Sums of the values of a head with these weights."""
    (n, h, t, s), heads, e = weights.shape, values.shape[1], values.shape[3]
    return (weights.reshape(n, heads, h // heads * t, s) @ values).reshape(n, h, t, e)


@op(attend).words
def attention(
    q: AnyArray, k: AnyArray, v: AnyArray, mask: AnyArray, causal: bool, scale: float, limits: Any = None
) -> tuple[AnyArray, ...]:
    """y and lse, from an array of all scores."""
    scores, _ = scoresOf(q, k, mask, causal, scale, limits)
    top = np.maximum(scores.max(axis=-1, keepdims=True), q.dtype.type(FLOOR))
    p = np.exp(scores - top)
    total = p.sum(axis=-1, keepdims=True)
    seen = np.where(total > 0, total, q.dtype.type(1))
    return gathered(p, v) / seen, top + np.log(seen)


@op(attendGrad).words
def attentionBack(
    grad: AnyArray,
    q: AnyArray,
    k: AnyArray,
    v: AnyArray,
    mask: AnyArray,
    lse: AnyArray,
    rest: Any,
    causal: bool,
    scale: float,
    ofMask: bool = False,
    limits: Any = None,
) -> tuple[AnyArray, ...]:
    """dq, dk, dv, and dmask if `ofMask`, from an array of all scores."""
    (n, h, t, d), (_, heads, s, _), e = q.shape, k.shape, v.shape[3]
    scores, slopes = scoresOf(q, k, mask, causal, scale, limits)
    p = np.exp(scores - lse)
    dmask = p * (meet(grad, v) - rest)
    ds = dmask if slopes is None else dmask * slopes
    rows = (n, heads, h // heads * t)
    transposed = [a.reshape(*rows, s).swapaxes(-1, -2) for a in (ds, p)]
    dk, dv = transposed[0] @ q.reshape(*rows, d), transposed[1] @ grad.reshape(*rows, e)
    factor = q.dtype.type(scale)
    grads = (gathered(ds, k) * factor, dk * factor, dv)
    return (*grads, unbroadcast(dmask, mask.shape)) if ofMask else grads
