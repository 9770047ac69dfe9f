"""Attention: each query takes a weighted mean of values, with weights from its scores with the keys."""

from typing import Annotated

import numpy as np

from puregraph.autodiff.derivatives.ruletape import derivedGrad
from puregraph.core.arguments import Count, Flag, Number, Positive, Probability, choice
from puregraph.core.base.dtype import isFloating, needFloats, needOneFloat, needType
from puregraph.core.base.widen import widen
from puregraph.core.errors import ArgumentError, GraphWarning, need
from puregraph.core.errors.userwarning import warnUser
from puregraph.core.param import State
from puregraph.core.shape import broadcast, product
from puregraph.graph.module import Module
from puregraph.modules.dropout import drawKey
from puregraph.ops.attention.cudnn import backwardBytes
from puregraph.ops.attention.reference import attend, attendAll, attendGrad
from puregraph.ops.random.reference import uniform


class Attention(Module):
    """y_i = sum over j of p_ij v_j, p_i = softmax over j of (scale <q_i, k_j> + mask_ij); scale is 1 / sqrt d

    The optional mask is added, and has a gradient; a boolean mask hides where it is False. A query that sees no key,
    because all its scores are below -1e30, gets zeros. q may have g times the heads of k and v: each run of g query
    heads shares one. Lengths t and s may differ.

    `causal` hides all keys j > i + o from query i. The offset o is 0, as in torch and ONNX. With `aligned="end"` the
    last query sees all keys: o = s - t. The input `offset` has an o for each sample, which is the number of keys in a
    cache before the first query. The input `lengths` has the number of keys of each sample; later keys are hidden, and
    "end" aligns the last query with the last key that is not.

    A causal `window` hides keys j <= i + o - window as well. A `cap` replaces each scaled product x by
    cap tanh(x / cap), before the mask is added.

    In trainMode, `dropout` sets each p_ij to 0 with this probability and divides the others by 1 - dropout, as
    `Dropout` does; then all scores are stored.

    It is computed in blocks with an online softmax, so memory grows with t + s instead of t s; the hidden
    output `lse`, in float32 or better, is the log-sum-exp of each row, from which the gradient recomputes the blocks.

    Shapes    q (n, h, t, d), k (n, h / g, s, d), v (n, h / g, s, e), mask: broadcasts to (n, h, t, s), lengths (n,),
              offset (n,) -> y (n, h, t, e)
    Source    Vaswani et al. 2017, arXiv:1706.03762, eq. 1; in blocks: Dao 2023, FlashAttention-2, arXiv:2307.08691;
              shared keys: Ainslie et al. 2023, arXiv:2305.13245; window: Beltagy et al. 2020, arXiv:2004.05150; cap:
              Gemma Team 2024, arXiv:2408.00118, section 2
    Raises    ShapeError if an input has another rank, sizes differ, heads of k do not divide those of q, there is
              no key, or the mask does not broadcast; DtypeError for a mask of integers; ArgumentError for a window or
              "end" without `causal`
    """

    reads: tuple[str, ...] = ("q", "k", "v", "mask", "lengths", "offset", "y", "lse")
    hidden: tuple[str, ...] = ("lse",)
    indices = ("lengths", "offset")
    draws = None

    def __init__(
        self,
        causal: Flag = False,
        scale: Number | None = None,
        aligned: Annotated[str, choice("start", "end")] = "start",
        window: Count | None = None,
        cap: Positive | None = None,
        dropout: Probability = 0.0,
        name=None,
    ):
        super().__init__(name)
        if not causal and (window is not None or aligned == "end"):
            what = "window" if window is not None else 'aligned="end"'
            raise ArgumentError(f"Attention: {what} needs causal=True")
        self.causal, self.scale, self.aligned, self.window, self.cap = causal, scale, aligned, window, cap
        self.dropout = dropout
        self.key = State((), drawKey, np.uint64) if dropout else None
        self.count = State((), dtype=np.int64) if dropout else None
        if dropout:
            self.reads, self.hidden, self.draws = (*self.reads, "kept"), ("lse", "kept"), "count"

    def dataShapeFrom(self, q, k, v, mask=None, lengths=None, offset=None):
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
        for label, shape in (("lengths", lengths), ("offset", offset)):
            need(shape is None or shape == (n,), f"{label} of shape {(n,)}", shape)
        hint = 'offset is of no use with aligned="end"' if self.causal else "offset needs causal=True"
        need(offset is None or self.causal and self.aligned == "start", "no offset", offset, hint)
        return (n, h, t, e)

    def dataTypeFrom(self, q, k, v, mask=None, lengths=None, offset=None):
        named = [(name, kind) for name, kind in zip("qkv", (q, k, v)) if kind is not None]
        needFloats(named)
        isMask = isFloating(mask) or mask.kind == "b"
        needType(isMask, "bools or floats for mask", mask, "convert with .astype(bool)")
        isAdded = mask is not None and isFloating(mask)
        needOneFloat([*named, ("mask", mask)] if isAdded else named)
        return next((kind for _, kind in named), mask if isAdded else None)

    def hiddenShapeFrom(self, q, k, v, *others):
        return [(*q[:3], 1), (*q[:3], k[2])][: len(self.hidden)]

    def hiddenTypeFrom(self, q, k, v, *others):
        return [None if q is None else np.promote_types(q, np.float32), np.dtype(bool)][: len(self.hidden)]

    def factor(self, q):
        return q.shape[-1] ** -0.5 if self.scale is None else self.scale

    def maskDoubt(self, mask):
        """Return a warning for a mask of floats that are all 0 or 1, with both present; an empty text for any other."""
        ones = int((mask == 1).sum()) if mask.dtype.kind == "f" else 0
        isMistake = 0 < ones < mask.size and ones + int((mask == 0).sum()) == mask.size
        hint = "give mask.astype(bool) to hide where it is 0"
        return f"the mask holds 0 and 1 as floats, which are added to the scores: {hint}" if isMistake else ""

    def limits(self, q, k, lengths, offset):
        """Return the limits of the kernels; None without any."""
        if self.aligned == "end":
            offset = (k.shape[2] if lengths is None else lengths) - q.shape[2]
        every = offset, lengths, self.window, self.cap
        return None if all(x is None for x in every) else every

    def sample(self, rng, q, k, *others):
        """Return inputs of these shapes, with lengths and offsets between none and all keys."""
        floats = [rng.standard_normal(shape) for shape in (q, k, *others[:2])]
        return [*floats, *(rng.integers(0, k[2] + 1, shape) for shape in others[2:])]

    def updateData(self, q, k, v, mask=None, lengths=None, offset=None, key=None, count=None):
        if type(mask) is np.ndarray and (doubt := self.maskDoubt(mask)):
            warnUser(f"{self.label}: {doubt}", GraphWarning)
        arguments = (q, k, v, mask, self.causal, self.factor(q), *self.extra(q, k, lengths, offset))
        if not self.dropout:
            return attend(*arguments)
        shape = (*q.shape[:3], k.shape[2])
        if not self.isTraining:
            return (*attend(*arguments), np.broadcast_to(np.ones_like(q, dtype=bool, shape=(1,) * 4), shape))
        kept = uniform(shape, key, count) >= self.dropout
        count += 1
        limits = self.limits(q, k, lengths, offset)
        y = attendAll(q, k, v, mask, self.causal, self.factor(q), limits, lambda p: self.drop(p, kept))
        return (*y, kept)

    def drop(self, p, kept):
        """Return the weights that are kept, scaled so that the expectation is p; 0 elsewhere."""
        return np.where(kept, p * (1 / (1 - self.dropout)), 0)

    def extra(self, *arguments):
        """Return the limits as the last argument of a kernel, if there are any."""
        limits = self.limits(*arguments)
        return () if limits is None else (limits,)

    def updateGrad(self, grad, q, k, v, *others, needs):
        mask, lengths, offset, _, _, y, lse, *kept = others
        if self.dropout and self.isTraining:
            return self.droppedGrad(grad, q, k, v, mask, lengths, offset, kept[0], needs)
        delta = (widen(grad) * widen(y)).sum(axis=-1, keepdims=True)
        ofMask = len(needs) > 3 and needs[3] and mask is not None
        limits = self.extra(q, k, lengths, offset)
        grads = attendGrad(grad, q, k, v, mask, lse, delta, self.causal, self.factor(q), ofMask, *limits)
        return (*grads, *[None] * (len(needs) - len(grads)))

    def droppedGrad(self, grad, q, k, v, mask, lengths, offset, kept, needs):
        """Return the gradients where weights have been dropped: of q, k, v and a mask that is added."""

        def rule(q, k, v, mask, lengths, offset, kept):
            limits = self.limits(q, k, lengths, offset)
            return attendAll(q, k, v, mask, self.causal, self.factor(q), limits, lambda p: self.drop(p, kept))[0]

        needed = (*needs[:3], needs[3] and mask is not None and isFloating(mask.dtype), False, False, False)
        grads = derivedGrad(rule, grad, (q, k, v, mask, lengths, offset, kept), needed)
        return (*grads[:4], *[None] * (len(needs) - 4))

    def flopsFrom(self, q, k, v, *others):
        return 2 * product(q[:3]) * k[2] * (q[3] + v[3] + 2)

    def workspaceFrom(self, q, k, v, *others):
        """Return the bytes of workspace of cuDNN's backward pass: of the deterministic one, and of the other."""
        n, h, t, d = q
        return [backwardBytes(n, h, t, d, k[2], isDeterministic=isIt) for isIt in (True, False)]

    @classmethod
    def examples(cls):
        yield cls(), [(2, 2, 3, 4), (2, 2, 5, 4), (2, 2, 5, 3)]
        yield cls(causal=True), [(1, 2, 4, 3)] * 3
        yield cls(scale=0.7), [(2, 4, 3, 2), (2, 2, 2, 2), (2, 2, 2, 2), (2, 1, 1, 2)]
        yield cls(causal=True, scale=1.0), [(1, 6, 3, 2), (1, 2, 5, 2), (1, 2, 5, 1), (6, 3, 5)]
        yield cls(), [(2, 1, 3, 2), (2, 1, 2, 2), (2, 1, 2, 2), (2, 1, 3, 1)]
        yield cls(causal=True, aligned="end", cap=1.5), [(2, 4, 3, 2), (2, 2, 5, 2), (2, 2, 5, 3)]
        yield cls(causal=True, window=2), [(2, 2, 3, 2), (2, 2, 5, 2), (2, 2, 5, 3), (3, 5), (2,), (2,)]
        yield cls(dropout=0.3), [(2, 4, 3, 4), (2, 2, 5, 4), (2, 2, 5, 3), (2, 1, 3, 5)]
        yield cls(causal=True, cap=1.5, dropout=0.5), [(1, 2, 4, 3)] * 3
