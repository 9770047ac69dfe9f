"""The derivatives of Kernels: each is linear in what it moves, and has its adjoint beside it.

Source    Dao 2023, FlashAttention-2, arXiv:2307.08691, section 2.2; Giles 2008, An extended collection of matrix
          derivative results, for the second order of attention
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from puregraph.autodiff.derivatives.declarations import jvp, linear, multilinear, vjp, whole
from puregraph.autodiff.derivatives.linalg import transposed
from puregraph.autodiff.derivatives.ufuncs import fit
from puregraph.kernels.attention import attend, attendGrad
from puregraph.kernels.convolution import convolve, convolveData, convolveWeight
from puregraph.kernels.pooling import maxPool, maxPoolGrad, meanPool, meanPoolGrad
from puregraph.kernels.scatter import addAt, gather, putClass, scatterAdd, takeClass
from puregraph.kernels.widen import widen


@multilinear(convolve)
def convolveRule(g, y, x, W, stride, pad, dilation, groups):
    """Linear in x and in W."""
    lay = (stride, pad, dilation, groups)
    return convolveData(g, W, x.shape, *lay), convolveWeight(g, x, W.shape[2:], *lay), None, None, None, None


@multilinear(convolveData)
def convolveDataRule(g, y, grad, W, shape, stride, pad, dilation, groups):
    """Linear in the gradient and in W."""
    lay = (stride, pad, dilation, groups)
    return convolve(g, W, *lay), convolveWeight(grad, g, W.shape[2:], *lay), *[None] * 5


@multilinear(convolveWeight)
def convolveWeightRule(g, y, grad, x, size, stride, pad, dilation, groups):
    """Linear in the gradient and in x."""
    lay = (stride, pad, dilation, groups)
    return convolve(x, g, *lay), convolveData(grad, g, x.shape, *lay), *[None] * 5


@vjp(maxPool)
def maxPoolRule(g, y, x, size, stride, pad, dilation=1):
    """Back to the positions that were the largest."""
    return None if g[0] is None else maxPoolGrad(g[0], whole(y[1]), x.shape, size, stride, pad, dilation)


@jvp(maxPool)
def pooled(function: Any, values: list, tangents: list, options: dict) -> tuple[Any, Any]:
    """The tangent of where the maximum was found; none for a window of nothing but padding."""
    y, indices = function(*values, **options)
    t = tangents[0].reshape(*y.shape[:2], -1)
    positions = indices.reshape(*y.shape[:2], -1)
    found = np.take_along_axis(t, np.maximum(positions, 0).astype(np.intp), axis=2)
    return (y, indices), (np.where(positions < 0, 0, found).astype(y.dtype, copy=False).reshape(y.shape), None)


@linear(maxPoolGrad)
def maxPoolGradRule(g, y, grad, indices, shape, *windows):
    """What is at those positions."""
    maps = prod(shape[:2])
    found = addAtRule(g.reshape(maps, -1), y, grad, indices.reshape(maps, -1), None)
    return found.reshape(indices.shape)


@linear(addAt)
def addAtRule(g, y, values, index, size):
    """What is at those positions."""
    return np.where(index < 0, 0, np.take_along_axis(g, np.maximum(index, 0), 1))


@linear(meanPool)
def meanPoolRule(g, y, x, size, stride, pad, includePad=True):
    """Evenly over each window."""
    return meanPoolGrad(g, x.shape, size, stride, pad, includePad)


@linear(meanPoolGrad)
def meanPoolGradRule(g, y, grad, size, stride, pad, includePad=True):
    """The mean of each window."""
    return meanPool(g, size, stride, pad, includePad)


@linear(gather)
def gatherRule(g, y, table, index):
    """Back to the rows that were read."""
    return scatterAdd(g, index, table.shape[0])


@linear(scatterAdd)
def scatterAddRule(g, y, grad, index):
    """The rows that were added to."""
    return gather(g, index)


@linear(takeClass)
def takeClassRule(g, y, x, labels):
    """Back to the classes that were read."""
    return putClass(g, labels, x.shape[1])


@linear(putClass)
def putClassRule(g, y, values, labels):
    """The classes that were put."""
    return takeClass(g, labels)


@vjp(attend)
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


@vjp(attendGrad)
def attendGradRule(g: Any, y: Any, arguments: tuple, options: dict, needs: tuple) -> Any:
    """With a, b, c, m for the gradients of dq, dk, dv, dmask, and p, ds as in the Kernel; here all scores at once:

    gds = scale (a k' + q b') + m, gp = grad c' + gds (grad v' - rest), gs = gp p, that of the scores.
    """
    grad, q, k, v, mask, lse, rest, causal, scale = arguments[:9]
    shape, heads = q.shape, k.shape[1]
    grouped = (shape[0], heads, shape[1] // heads, *shape[2:3])

    def rows(x: Any) -> Any:  # (n, h, t, d) as (n, h / g, g, t, d)
        return x.reshape(*grouped, x.shape[-1])

    def columns(x: Any) -> Any:  # (n, h / g, s, d) as (n, h / g, 1, s, d)
        return x.reshape(*x.shape[:2], 1, *x.shape[2:])

    a, b, c = [np.zeros_like(x) if each is None else each for each, x in zip(g, (q, k, v))]
    m = g[3] if len(g) > 3 else None
    Q, K, V, G, A, B, C = rows(q), columns(k), columns(v), rows(grad), rows(a), columns(b), columns(c)
    scores = scale * (Q @ transposed(K))
    wide = (*shape[:3], k.shape[2])
    if mask is not None:
        full = np.broadcast_to(mask, wide).reshape(scores.shape)
        scores = np.where(full, scores, -np.inf) if mask.dtype.kind == "b" else scores + full
    if causal:
        scores = np.where(np.tril(np.ones_like(whole(q), shape=wide[2:], dtype=bool)), scores, -np.inf)
    p, free = np.exp(scores - rows(lse)), G @ transposed(V) - rows(rest)
    ds = p * free
    gds = scale * (A @ transposed(K) + Q @ transposed(B))
    gds = gds if m is None else gds + np.broadcast_to(m, wide).reshape(scores.shape)
    gp = G @ transposed(C) + gds * free
    gfree, gs = gds * p, gp * p
    found = [
        (p @ C + gfree @ V).reshape(grad.shape),
        (scale * (gs @ K + ds @ B)).reshape(q.shape),
        (scale * (transposed(gs) @ Q + transposed(ds) @ A)).sum(axis=2),
        (transposed(gfree) @ G).sum(axis=2),
        fit(gs.reshape(wide), mask) if needs[4] else None,
        -gs.sum(axis=-1).reshape(lse.shape),
        -gfree.sum(axis=-1).reshape(rest.shape),
    ]
    return (*found, *[None] * (len(arguments) - 7))
