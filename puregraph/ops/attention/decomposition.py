"""Attention: the gradient of a mask, which has an element for every pair of query and key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from puregraph.ops.attention.limits import limitsOf
from puregraph.ops.attention.reference import attendGrad
from puregraph.ops.operation import op
from puregraph.ops.reduction.reference import unbroadcast

if TYPE_CHECKING:
    from puregraph.core.protocols import AnyArray


@op(attendGrad).decompose
def gradients(
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
) -> Any:
    """dmask = p (grad v' - rest), p = exp(scale q k' + mask - lse)"""
    if not ofMask or q.size * v.size == 0:
        return NotImplemented
    dq, dk, dv = attendGrad(grad, q, k, v, mask, lse, rest, causal, scale, False, limits)
    n, h, t, _ = q.shape
    heads, s = k.shape[1], k.shape[2]

    def meet(rows: AnyArray, others: AnyArray) -> AnyArray:
        """Products of query rows with the keys of their head; consecutive query heads may share a key head."""
        rows = rows.reshape(n, heads, h // heads * t, rows.shape[3])
        return (rows @ others.swapaxes(-1, -2)).reshape(n, h, t, s)

    sees = limitsOf(limits)
    scores, _ = sees.capped(meet(q, k) * scale)
    p = np.exp(scores + mask - lse)
    seen = sees.visible(q, slice(0, t), slice(0, s), causal)
    if seen is not None:
        p = np.where(seen, p, np.float32(0))
    return dq, dk, dv, unbroadcast(p * (meet(grad, v) - rest), mask.shape)
