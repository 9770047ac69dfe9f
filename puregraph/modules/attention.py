"""Attention: each query takes a weighted mean of values, with weights from its scores with the keys."""

from typing import Annotated

import numpy as np

from puregraph.autodiff.derivatives.ruletape import derivedGrad
from puregraph.core.arguments import Count, Flag, Number, Positive, Probability, choice
from puregraph.core.base.dtype import isFloating, needFloats, needOneFloat, needType
from puregraph.core.base.widen import widen
from puregraph.core.errors import ArgumentError, GraphWarning, need
from puregraph.core.errors.userwarning import warnUser
from puregraph.core.param import Param, State
from puregraph.core.shape import broadcast, product
from puregraph.graph.module import Module
from puregraph.modules.dropout import drawKey
from puregraph.ops.attention.cudnn import backwardBytes
from puregraph.ops.attention.reference import FLOOR, attend, attendAll, attendGrad
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

    `sinks` is the number of query heads, each of which has a learned score b that weights no value: its softmax has
    exp b as one more term of the sum. It starts at 0.

    With `lse` there is a second output: the logarithm of the sum of exponentials of each row, with its sink, in
    float32 or better. A query that sees no key has -inf there, or its sink.

    In trainMode, `dropout` sets each p_ij to 0 with this probability and divides the others by 1 - dropout, as
    `Dropout` does; then all scores are stored.

    It is computed in blocks with an online softmax, so memory grows with t + s instead of t s; the output `lse`, hidden
    by default, is that from which the gradient recomputes the blocks.

    Shapes    q (n, h, t, d), k (n, h / g, s, d), v (n, h / g, s, e), mask: broadcasts to (n, h, t, s), lengths (n,),
              offset (n,) -> y (n, h, t, e) (, lse (n, h, t, 1))
    Source    Vaswani et al. 2017, arXiv:1706.03762, eq. 1; in blocks: Dao 2023, FlashAttention-2, arXiv:2307.08691;
              shared keys: Ainslie et al. 2023, arXiv:2305.13245; window: Beltagy et al. 2020, arXiv:2004.05150; cap:
              Gemma Team 2024, arXiv:2408.00118, section 2; sinks: Agarwal et al. 2025, arXiv:2508.10925, section 2.2
    Raises    ShapeError if an input has another rank, sizes differ, heads of k do not divide those of q, there is
              no key, the mask does not broadcast, or the sinks are not one for each head; DtypeError for a mask of
              integers; ArgumentError for a window or "end" without `causal`
    """

    reads: tuple[str, ...] = ("q", "k", "v", "mask", "lengths", "offset", "sinks", "y", "lse")
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
        sinks: Count | None = None,
        lse: Flag = False,
        name=None,
    ):
        super().__init__(name)
        if not causal and (window is not None or aligned == "end"):
            what = "window" if window is not None else 'aligned="end"'
            raise ArgumentError(f"Attention: {what} needs causal=True")
        self.causal, self.scale, self.aligned, self.window, self.cap = causal, scale, aligned, window, cap
        self.dropout, self.hasLse = dropout, lse
        self.sinks = None if sinks is None else Param((sinks,))
        if lse:
            self.hidden = ()
        self.key = State((), drawKey, np.uint64) if dropout else None
        self.count = State((), dtype=np.int64) if dropout else None
        if dropout:
            self.reads, self.hidden, self.draws = (*self.reads, "kept"), (*self.hidden, "kept"), "count"

    @property
    def outputNames(self):
        return ("y", "lse") if self.hasLse else ("y",)

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
        if self.sinks is not None:
            count = self.sinks.shape[0]
            need(h == count, f"sinks={h}, one for each head of q", count)
        return [(n, h, t, e), (n, h, t, 1)] if self.hasLse else (n, h, t, e)

    def dataTypeFrom(self, q, k, v, mask=None, lengths=None, offset=None):
        named = [(name, kind) for name, kind in zip("qkv", (q, k, v)) if kind is not None]
        needFloats(named)
        isMask = isFloating(mask) or mask.kind == "b"
        needType(isMask, "bools or floats for mask", mask, "convert with .astype(bool)")
        isAdded = mask is not None and isFloating(mask)
        needOneFloat([*named, ("mask", mask)] if isAdded else named)
        kind = next((kind for _, kind in named), mask if isAdded else None)
        return [kind, self.lseType(kind)] if self.hasLse else kind

    def lseType(self, kind):
        """Return the dtype of lse, float32 or better."""
        return None if kind is None else np.promote_types(kind, np.float32)

    def hiddenShapeFrom(self, q, k, v, *others):
        shapes = {"lse": (*q[:3], 1), "kept": (*q[:3], k[2])}
        return [shapes[name] for name in self.hidden]

    def hiddenTypeFrom(self, q, k, v, *others):
        kinds = {"lse": self.lseType(q), "kept": np.dtype(bool)}
        return [kinds[name] for name in self.hidden]

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

    def updateData(self, q, k, v, mask=None, lengths=None, offset=None, sinks=None, key=None, count=None):
        if type(mask) is np.ndarray and (doubt := self.maskDoubt(mask)):
            warnUser(f"{self.label}: {doubt}", GraphWarning)
        arguments = (q, k, v, mask, self.causal, self.factor(q), *self.extra(q, k, lengths, offset))
        if not self.dropout:
            return self.outputs(sinks, *attend(*arguments))
        shape = (*q.shape[:3], k.shape[2])
        if not self.isTraining:
            kept = np.broadcast_to(np.ones_like(q, dtype=bool, shape=(1,) * 4), shape)
            return (*self.outputs(sinks, *attend(*arguments)), kept)
        kept = uniform(shape, key, count) >= self.dropout
        count += 1
        limits = self.limits(q, k, lengths, offset)
        y = attendAll(q, k, v, mask, self.causal, self.factor(q), limits, lambda p: self.drop(p, kept))
        return (*self.outputs(sinks, *y), kept)

    def outputs(self, sinks, y, lse):
        """Return y and lse, with the sinks as one more term of each sum; as an output lse is -inf for an empty sum."""
        if sinks is not None:
            y, lse = joined(sinks, y, lse)
        return y, np.where(lse > FLOOR, lse, -np.inf) if self.hasLse else lse

    def drop(self, p, kept):
        """Return the weights that are kept, scaled so that the expectation is p; 0 elsewhere."""
        return np.where(kept, p * (1 / (1 - self.dropout)), 0)

    def extra(self, *arguments):
        """Return the limits as the last argument of a kernel, if there are any."""
        limits = self.limits(*arguments)
        return () if limits is None else (limits,)

    def updateGrad(self, grad, q, k, v, *others, needs):
        mask, lengths, offset, sinks, _, _, y, lse, *kept = others
        grad, lseGrad = grad if self.hasLse else (grad, None)
        lse = np.maximum(lse, FLOOR) if self.hasLse else lse
        if self.dropout and self.isTraining:
            return self.droppedGrad((grad, lseGrad), q, k, v, mask, lengths, offset, sinks, kept[0], needs)
        grad = np.zeros_like(y) if grad is None else grad
        delta = (widen(grad) * widen(y)).sum(axis=-1, keepdims=True)
        delta = delta if lseGrad is None else delta - lseGrad
        ofMask = len(needs) > 3 and needs[3] and mask is not None
        grads: tuple = (None,) * 3
        if any(needs[:3]) or ofMask:
            limits = self.extra(q, k, lengths, offset)
            grads = attendGrad(grad, q, k, v, mask, lse, delta, self.causal, self.factor(q), ofMask, *limits)
        grads = (*grads, *[None] * (len(needs) - len(grads)))
        return grads if sinks is None else (*grads[:6], self.sinkGrad(sinks, lse, delta), *grads[7:])

    def sinkGrad(self, sinks, lse, delta):
        """Return the gradient of the sinks b: -sum over samples and queries of exp(b - lse) delta."""
        weights = np.exp(sinks.reshape(1, -1, 1, 1).astype(lse.dtype, copy=False) - lse)
        return -(weights * delta).sum(axis=(0, 2, 3)).astype(sinks.dtype, copy=False)

    def droppedGrad(self, grads, q, k, v, mask, lengths, offset, sinks, kept, needs):
        """Return the gradients where weights have been dropped: of q, k, v, a mask that is added, and the sinks."""

        def rule(q, k, v, mask, lengths, offset, sinks, kept):
            limits = self.limits(q, k, lengths, offset)
            y = attendAll(q, k, v, mask, self.causal, self.factor(q), limits, lambda p: self.drop(p, kept))
            return (y if sinks is None else joined(sinks, *y))[: 2 if self.hasLse else 1]

        ofMask = needs[3] and mask is not None and isFloating(mask.dtype)
        needed = (*needs[:3], ofMask, False, False, sinks is not None and needs[6], False)
        grads = derivedGrad(rule, grads, (q, k, v, mask, lengths, offset, sinks, kept), needed)
        return (*grads[:7], *[None] * (len(needs) - 7))

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
        yield cls(sinks=2, causal=True, lse=True), [(2, 2, 3, 4), (2, 1, 5, 4), (2, 1, 5, 3)]
        yield cls(sinks=4, cap=1.5, dropout=0.3), [(1, 4, 3, 2), (1, 2, 5, 2), (1, 2, 5, 2), (4, 3, 5)]
        yield cls(lse=True), [(2, 2, 3, 4), (2, 2, 5, 4), (2, 2, 5, 3), (2, 1, 3, 5)]


def joined(sinks, y, lse):
    """Return y and lse with a score of each head (sinks) as one more term of each sum."""
    sink = sinks.reshape(1, -1, 1, 1).astype(lse.dtype, copy=False)
    high = np.maximum(lse, sink)
    total = high + np.log(np.exp(lse - high) + np.exp(sink - high))
    return (widen(y) * np.exp(lse - total)).astype(y.dtype, copy=False), total
