"""The gradients of attention on the tape, to every order.

Source    Dao 2023, FlashAttention-2, arXiv:2307.08691, section 2.2; Giles 2008, An extended collection of matrix
          derivative results, for the second order
"""

from __future__ import annotations

from typing import Any

import numpy as np

from puregraph.autodiff.derivatives.matrixvjps import turned
from puregraph.autodiff.derivatives.numpyvjps import VJPS, fit, whole
from puregraph.kernels.attention import attend, attendGrad
from puregraph.kernels.widen import widen


def attendRule(g: Any, y: Any, arguments: tuple, options: dict, needs: tuple) -> Any:
    """Block by block, as the module has it; the log-sum-exp has a gradient too."""
    gy, glse = g
    q, k, v, mask, causal, scale = arguments
    out, lse = y
    gy = np.zeros_like(out) if gy is None else gy
    rest = (widen(gy) * widen(out)).sum(axis=-1, keepdims=True)
    ofMask = bool(needs[3])
    rest = rest if glse is None else rest - glse
    return (*attendGrad(gy, q, k, v, mask, lse, rest, causal, scale, ofMask), *[None] * (3 - ofMask))


VJPS[attend] = attendRule


def attendGradRule(g: Any, y: Any, arguments: tuple, options: dict, needs: tuple) -> Any:
    """With a, b, c, m for the gradients of dq, dk, dv, dmask, and p, ds as in the Kernel; here all scores at once:

    gds = scale (a k' + q b') + m, gp = grad c' + gds (grad v' - rest), gs = gp p, that of the scores.
    """
    grad, q, k, v, mask, lse, rest, causal, scale = arguments[:9]
    shape, heads = q.shape, k.shape[1]
    folded = (shape[0], heads, shape[1] // heads, *shape[2:3])

    def rows(x: Any) -> Any:  # (n, h, t, d) as (n, h / g, g, t, d)
        return x.reshape(*folded, x.shape[-1])

    def columns(x: Any) -> Any:  # (n, h / g, s, d) as (n, h / g, 1, s, d)
        return x.reshape(*x.shape[:2], 1, *x.shape[2:])

    a, b, c = [np.zeros_like(x) if each is None else each for each, x in zip(g, (q, k, v))]
    m = g[3] if len(g) > 3 else None
    Q, K, V, G, A, B, C = rows(q), columns(k), columns(v), rows(grad), rows(a), columns(b), columns(c)
    scores = scale * (Q @ turned(K))
    wide = (*shape[:3], k.shape[2])
    if mask is not None:
        full = np.broadcast_to(mask, wide).reshape(scores.shape)
        scores = np.where(full, scores, -np.inf) if mask.dtype.kind == "b" else scores + full
    if causal:
        scores = np.where(np.tril(np.ones_like(whole(q), shape=wide[2:], dtype=bool)), scores, -np.inf)
    p, free = np.exp(scores - rows(lse)), G @ turned(V) - rows(rest)
    ds = p * free
    gds = scale * (A @ turned(K) + Q @ turned(B))
    gds = gds if m is None else gds + np.broadcast_to(m, wide).reshape(scores.shape)
    gp = G @ turned(C) + gds * free
    gfree, gs = gds * p, gp * p
    found = [
        (p @ C + gfree @ V).reshape(grad.shape),
        (scale * (gs @ K + ds @ B)).reshape(q.shape),
        (scale * (turned(gs) @ Q + turned(ds) @ A)).sum(axis=2),
        (turned(gfree) @ G).sum(axis=2),
        fit(gs.reshape(wide), mask) if needs[4] else None,
        -gs.sum(axis=-1).reshape(lse.shape),
        -gfree.sum(axis=-1).reshape(rest.shape),
    ]
    return (*found, *[None] * (len(arguments) - 7))


VJPS[attendGrad] = attendGradRule
