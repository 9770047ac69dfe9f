"""Attention: each query takes a weighted mean of values, with weights from its scores with the keys."""

import numpy as np

from puregraph.core.arguments import Flag, Number, optional
from puregraph.core.base.dtype import isFloating, needFloats, needOneFloat, needType
from puregraph.core.base.widen import widen
from puregraph.core.errors import GraphWarning, need
from puregraph.core.errors.userwarning import warnUser
from puregraph.core.shape import broadcast, product
from puregraph.graph.module import Module
from puregraph.ops.attention.cudnn import backwardBytes
from puregraph.ops.attention.reference import attend, attendGrad


class Attention(Module):
    """y_i = sum over j of p_ij v_j, p_i = softmax over j of (scale <q_i, k_j> + mask_ij); scale is 1 / sqrt d

    The optional mask is added, and has a gradient; a boolean mask hides where it is False. `causal` hides all keys j >
    i from query i. A query that sees no key, because all its scores are below -1e30, gets zeros. q may have g times the
    heads of k and v: each run of g query heads shares one. Lengths t and s may differ.

    It is computed in blocks with an online softmax, so memory grows with t + s instead of t s; the hidden
    output `lse`, in float32 or better, is the log-sum-exp of each row, from which the gradient recomputes the blocks.

    Shapes    q (n, h, t, d), k (n, h / g, s, d), v (n, h / g, s, e), mask: broadcasts to (n, h, t, s) -> y (n, h, t, e)
    Source    Vaswani et al. 2017, arXiv:1706.03762, eq. 1; in blocks: Dao 2023, FlashAttention-2, arXiv:2307.08691;
              shared keys: Ainslie et al. 2023, arXiv:2305.13245
    Raises    ShapeError if an input has another rank, sizes differ, heads of k do not divide those of q, there is
              no key, or the mask does not broadcast; DtypeError for a mask of integers
    """

    reads = ("q", "k", "v", "mask", "y", "lse")
    hidden = ("lse",)

    def __init__(self, causal: Flag = False, scale: optional(Number) = None, name=None):
        super().__init__(name)
        self.causal, self.scale = causal, scale

    def dataShapeFrom(self, q, k, v, mask=None):
        need(all(len(x) == 4 for x in (q, k, v)), "(n, h, t, d), (n, h / g, s, d), (n, h / g, s, e)", [q, k, v])
        (n, h, t, d), (_, heads, s, _), e = q, k, v[3]
        wanted = [(n, h, t, d), (n, heads, s, d), (n, heads, s, e)]
        need([q, k, v] == wanted, wanted, [q, k, v], "q and k have one d, k and v have one s, all have one n")
        need(heads >= 1 and h >= heads and h % heads == 0, f"heads of q that are a multiple of the {heads} of k", q)
        need(s >= 1 and d >= 1, "at least one key of at least one number", k)
        if mask is not None:
            scoresShape = (n, h, t, s)
            need(
                len(mask) <= 4 and broadcast(mask, scoresShape) == scoresShape,
                f"a mask that broadcasts to {scoresShape}",
                mask,
            )
        return (n, h, t, e)

    def dataTypeFrom(self, q, k, v, mask=None):
        named = [(name, kind) for name, kind in zip("qkv", (q, k, v)) if kind is not None]
        needFloats(named)
        isMask = isFloating(mask) or mask.kind == "b"
        needType(isMask, "bools or floats for mask", mask, "convert with .astype(bool)")
        isAdded = mask is not None and isFloating(mask)
        needOneFloat([*named, ("mask", mask)] if isAdded else named)
        return next((kind for _, kind in named), mask if isAdded else None)

    def hiddenShapeFrom(self, q, k, v, mask=None):
        return [(*q[:3], 1)]

    def hiddenTypeFrom(self, q, k, v, mask=None):
        return [None if q is None else np.promote_types(q, np.float32)]

    def factor(self, q):
        return q.shape[-1] ** -0.5 if self.scale is None else self.scale

    def maskDoubt(self, mask):
        """Return a warning for a mask of floats that are all 0 or 1, with both present; an empty text for any other."""
        ones = int((mask == 1).sum()) if mask.dtype.kind == "f" else 0
        isMistake = 0 < ones < mask.size and ones + int((mask == 0).sum()) == mask.size
        hint = "give mask.astype(bool) to hide where it is 0"
        return f"the mask holds 0 and 1 as floats, which are added to the scores: {hint}" if isMistake else ""

    def updateData(self, q, k, v, mask=None):
        if type(mask) is np.ndarray and (doubt := self.maskDoubt(mask)):
            warnUser(f"{self.label}: {doubt}", GraphWarning)
        return attend(q, k, v, mask, self.causal, self.factor(q))

    def updateGrad(self, grad, q, k, v, *others, needs):
        *masks, y, lse = others  # without a mask, it is None or missing
        mask = masks[0] if masks else None
        delta = (widen(grad) * widen(y)).sum(axis=-1, keepdims=True)
        ofMask = len(needs) > 3 and needs[3] and mask is not None
        grads = attendGrad(grad, q, k, v, mask, lse, delta, self.causal, self.factor(q), ofMask)
        return (*grads, *[None] * (len(needs) - len(grads)))

    def flopsFrom(self, q, k, v, mask=None):
        return 2 * product(q[:3]) * k[2] * (q[3] + v[3] + 2)

    def workspaceFrom(self, q, k, v, mask=None):
        """Return the bytes of workspace of cuDNN's backward pass: of the deterministic one, and of the other."""
        return [backwardBytes(*q, k[2], isDeterministic=isDeterministic) for isDeterministic in (True, False)]

    @classmethod
    def examples(cls):
        yield cls(), [(2, 2, 3, 4), (2, 2, 5, 4), (2, 2, 5, 3)]
        yield cls(causal=True), [(1, 2, 4, 3)] * 3
        yield cls(scale=0.7), [(2, 4, 3, 2), (2, 2, 2, 2), (2, 2, 2, 2), (2, 1, 1, 2)]
        yield cls(causal=True, scale=1.0), [(1, 6, 3, 2), (1, 2, 5, 2), (1, 2, 5, 1), (6, 3, 5)]
        yield cls(), [(2, 1, 3, 2), (2, 1, 2, 2), (2, 1, 2, 2), (2, 1, 3, 1)]
