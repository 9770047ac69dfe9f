"""Flash attention: y = softmax(scale q k' + mask) v, block by block, with an online softmax.

No array of all queries by all keys is ever stored: a block of queries meets one block of keys after the other, keeping
the largest score and the sum of exponentials so far. Backward needs one value a row of that, the log-sum-exp;
the blocks themselves are recomputed.

Everything is written in functions that numpy's protocols carry to any array library.

Source    Dao 2023, FlashAttention-2, arXiv:2307.08691, algorithms 1 and 2; Milakov, Gimelshein 2018, arXiv:1805.02867
          Giles 2008, An extended collection of matrix derivative results, for the second order
"""

from __future__ import annotations

from typing import Any

import numpy as np

from puregraph.core.base.widen import widen
from puregraph.core.tracer import dataOf
from puregraph.ops.attention import cudnn
from puregraph.ops.attention.limits import byGroup, limitsOf
from puregraph.ops.cuda.runtime.launch import Launch, blocksFor, stridesOf
from puregraph.ops.cuda.runtime.preprocess import computed, defined, read, stored
from puregraph.ops.kernel import HEADSLAST, REFERENCE, Halves, kernel
from puregraph.ops.reduction.reference import unbroadcast

BLOCK = 128  # queries, and keys, of a block
FLOOR = -1e30  # a score below this counts as hidden; large enough that exp(x - FLOOR) = 0 for x = -inf


@kernel
def attend(q, k, v, mask, causal, scale, limits=None):
    """y = sum over j of softmax_j(scale q k' + mask) v_j, and lse = ln sum over j of exp(scale q k' + mask)

    A mask of bools hides where it is False; causal hides key j from query i < j. A row that sees no key has y = 0 and
    lse = FLOOR. Each g = h / heads of k queries share their keys and values. For `limits` see the file of that name.

    Shapes    q (n, h, t, d), k (n, h / g, s, d), v (n, h / g, s, e), mask None or any that broadcasts to (n, h, t, s)
              -> y (n, h, t, e), lse (n, h, t, 1) in float32 or better
    """
    lay = HeadLayout(q, k, mask, causal, scale, limits)
    values = widen(v)
    outputs, sums = [], []
    for i in lay.queries:
        top = total = y = None
        for j in lay.keysFor(i):
            scores = lay.scores(i, j)
            high = np.maximum(scores.max(axis=-1, keepdims=True), FLOOR)
            high = high if top is None else np.maximum(high, top)
            scores -= high
            p = np.exp(scores)
            count, part = p.sum(axis=-1, keepdims=True), p @ values[:, :, j]
            if top is not None:
                fade = np.exp(top - high)
                count, part = count + total * fade, part + y * fade
            top, total, y = high, count, part
        seen = np.where(total > 0, total, 1)
        outputs.append(lay.splitHeads(y / seen))
        sums.append(lay.splitHeads(top + np.log(seen)))
    return np.concatenate(outputs, axis=2).astype(q.dtype, copy=False), np.concatenate(sums, axis=2)


@attend.shape
def attend(q, k, v, mask, causal, scale, limits=None):
    """y (n, h, t, e) and lse (n, h, t, 1)."""
    lead = q.shape[:3]
    return [((*lead, v.shape[3]), q.dtype), ((*lead, 1), np.promote_types(q.dtype, np.float32))]


@attend.cuda
def attend(outs, q, k, v, mask, causal, scale, limits=None):
    """A thread block computes a block of queries over all keys; limits are left to the reference."""
    y, lse = outs
    args = AttentionArguments(q, k, v, mask, scale)
    if limits is not None or not args.fit(y) or stored(lse.dtype) != args.wide:
        return NotImplemented
    if not y.size:
        return []
    n, h, t, e = y.shape
    columns = args.columns(e)
    kept = min(blocksFor(e, columns * args.groups), args.most)
    text = args.text({"COLUMNS": columns, "KEPT": kept}) + read("attend.h")
    strides = [*stridesOf(y), *stridesOf(lse)[:3], *(s for x in (q, k, v) for s in stridesOf(x))]
    sizes = [h, args.group, t, k.shape[2], q.shape[3], e, int(causal)]
    slots = (*pointers(y, lse, q, k, v), *args.mask, *ints(strides), *ints(sizes), args.scale)
    blocks = n * h * blocksFor(t, args.edge) * blocksFor(e, args.groups * columns * kept)
    return [Launch("attend", text, "attend", slots, (blocks, 1, 1), (args.groups**2, 1, 1))]


@attend.device
def attend(*arguments):
    """The reference, which also runs on CuPy's arrays."""
    return attend.reference(*arguments)


@attend.library
def attend(outs, q, k, v, mask, causal, scale, limits=None, *, tf32):
    """cuDNN's attention, which is used only without a mask and limits."""
    return (
        NotImplemented
        if mask is not None or limits is not None
        else cudnn.attend(outs, q, k, v, causal, scale, tf32=tf32)
    )


@attend.flops
def attend(outs, q, k, *others):
    """Two products of all queries and keys."""
    return 2 * outs[0].size * k.shape[2] * 2


@attend.vjp
def attend(g, y, arguments, options, needs):
    """The gradients by `attendGrad`, block by block; the gradient of the log-sum-exp is subtracted from `rest`."""
    gy, glse = g
    q, k, v, mask, causal, scale, *more = arguments
    limits = more[0] if more else options.get("limits")
    out, lse = y
    gy = np.zeros_like(out) if gy is None else gy
    delta = (widen(gy) * widen(out)).sum(axis=-1, keepdims=True)
    ofMask = bool(needs[3])
    delta = delta if glse is None else delta - glse
    grads = attendGrad(gy, q, k, v, mask, lse, delta, causal, scale, ofMask, limits)
    return (*grads, *[None] * (len(arguments) - len(grads)))


attend.declare(layout=HEADSLAST, halves=Halves((0, 1, 2), 1), jvp=REFERENCE)


def attendAll(q, k, v, mask, causal, scale, limits=None, weigh=None):
    """The results of `attend` from all scores at once; `weigh` changes the weights after the softmax."""
    (n, h, t, _), (heads, s), sees = q.shape, k.shape[1:3], limitsOf(limits)
    rows = widen(q).reshape(n, heads, h // heads * t, q.shape[3])
    scores, _ = sees.capped((rows @ widen(k).swapaxes(-1, -2)).reshape(n, h, t, s) * scale)
    if mask is not None:
        scores = np.where(mask, scores, -np.inf) if mask.dtype.kind == "b" else scores + mask.astype(scores.dtype)
    seen = sees.visible(dataOf(q), slice(0, t), slice(0, s), causal)
    scores = scores if seen is None else np.where(seen, scores, -np.inf)
    top = np.maximum(scores.max(axis=-1, keepdims=True), FLOOR)
    p = np.exp(scores - top)
    total = p.sum(axis=-1, keepdims=True)
    total = np.where(total > 0, total, 1)
    p = p / total if weigh is None else weigh(p / total)
    y = p.reshape(n, heads, h // heads * t, s) @ widen(v)
    return y.reshape(n, h, t, v.shape[3]).astype(q.dtype, copy=False), top + np.log(total)


@kernel
def attendGrad(grad, q, k, v, mask, lse, rest, causal, scale, ofMask=False, limits=None):
    """The gradients of q, k and v, and, if asked for, of the mask: with p = exp(scale q k' + mask - lse),

    ds = p (grad v' - rest), dq = scale ds k, dk = scale ds' q, dv = p' grad, dmask = ds.

    With a cap, dq and dk have ds (1 - tanh^2(score / cap)) in place of ds. `rest` is sum_e grad y, less the gradient of
    lse where there is one.

    Shapes    as of `attend`, grad (n, h, t, e), lse and rest (n, h, t, 1) -> dq, dk, dv (, dmask) as q, k, v (, mask)
    """
    lay = HeadLayout(q, k, mask, causal, scale, limits)
    keys, values, g, rest = widen(k), widen(v), widen(grad), widen(rest)
    dq, dk, dv, dmask = [], {}, {}, {}
    for i in lay.queries:
        part = 0.0
        query, gi, lsei, resti = lay.scaled(i), lay.mergeHeads(g, i), lay.mergeHeads(lse, i), lay.mergeHeads(rest, i)
        for j in lay.keysFor(i):
            p = np.exp(lay.scores(i, j) - lsei)
            ds = gi @ values[:, :, j].swapaxes(-1, -2)
            ds -= resti
            ds *= p
            if ofMask:
                lay.addToMask(dmask, i, j, ds)
            ds = ds if lay.slopes is None else ds * lay.slopes
            part = part + ds @ keys[:, :, j]
            add(dk, j, ds.swapaxes(-1, -2) @ query)
            add(dv, j, p.swapaxes(-1, -2) @ gi)
        dq.append(lay.splitHeads(part * lay.scale))
    grads = [np.concatenate(dq, axis=2).astype(q.dtype, copy=False)]
    for parts, x, dtype in ((dk, keys, k.dtype), (dv, values, v.dtype)):
        blocks = [parts[j.start] if j.start in parts else np.zeros_like(x[:, :, j]) for j in lay.keys]
        grads.append(np.concatenate(blocks, axis=2).astype(dtype, copy=False))
    if ofMask:
        grads.append(lay.joinedMask(dmask).astype(mask.dtype, copy=False))
    return tuple(grads)


@attendGrad.shape
def attendGrad(grad, q, k, v, mask, lse, rest, causal, scale, ofMask=False, limits=None):
    """Shapes and dtypes as q, k, v, and as the mask if required."""
    differentiated = (q, k, v, mask) if ofMask else (q, k, v)
    return [(x.shape, x.dtype) for x in differentiated]


@attendGrad.cuda
def attendGrad(outs, grad, q, k, v, mask, lse, rest, causal, scale, ofMask=False, limits=None):
    """Blocks of keys for dk and dv, blocks of queries for dq, blocks of the mask; no block adds to another's result."""
    dq, dk, dv, *_ = outs
    args = AttentionArguments(q, k, v, mask, scale)
    if limits is not None or not args.fit(grad, dq, dk, dv) or not {lse.dtype.name, rest.dtype.name} <= set(EDGES):
        return NotImplemented
    (n, h, t, d), (shared, s, e) = q.shape, v.shape[1:]
    columns = args.columns(max(d, e))
    width = columns * args.groups
    ofQueries, ofKeys = blocksFor(d, width), blocksFor(d, width) + blocksFor(e, width)
    kept, keptOfKeys = min(ofQueries, args.most), min(ofKeys, args.most)
    names = {"COLUMNS": columns, "KEPT": kept, "KEPT_OF_KEYS": keptOfKeys}
    names |= {"LSE": stored(lse.dtype), "REST": stored(rest.dtype)}
    text = args.text(names) + read("attendgrad.h") + (read("attendmask.h") if ofMask else "")
    strides = [*(x for array in (grad, q, k, v) for x in stridesOf(array)), *stridesOf(lse)[:3], *stridesOf(rest)[:3]]
    reads = [*pointers(grad, q, k, v), *args.mask, *pointers(lse, rest), *ints(strides)]
    reads += [*ints([n, h, args.group, t, s, d, e, int(causal)]), args.scale]
    launches = []

    def launch(entry, results, blocks, *sizes):
        if any(x.size for x in results) and blocks:
            slots = (
                *pointers(*results),
                *ints([x for array in results for x in args.four(array)]),
                *ints(sizes),
                *reads,
            )
            launches.append(Launch("attendGrad", text, entry, slots, (blocks, 1, 1), (args.groups**2, 1, 1)))

    launch("attendKeys", [dk, dv], n * shared * blocksFor(s, args.edge) * blocksFor(ofKeys, keptOfKeys))
    launch("attendQueries", [dq], n * h * blocksFor(t, args.edge) * blocksFor(ofQueries, kept))
    if ofMask:
        samples, heads, rows, keys = shape = (1,) * (4 - len(mask.shape)) + tuple(mask.shape)
        blocks = samples * heads * blocksFor(rows, args.edge) * blocksFor(keys, args.edge)
        launch("attendMask", outs[3:], blocks, *shape)
    return launches


@attendGrad.device
def attendGrad(*arguments, **options):
    """The reference, which also runs on CuPy's arrays."""
    return attendGrad.reference(*arguments, **options)


@attendGrad.flops
def attendGrad(outs, grad, q, k, *rest, **options):
    """Five products of all queries and keys."""
    return 2 * grad.size * k.shape[2] * 5


@attendGrad.vjp
def attendGrad(g, y, arguments, options, needs):
    """Gradients of the gradients, for all scores at once; a, b, c, m are those of dq, dk, dv, dmask; p, ds as above:

    gds = scale (a k' + q b') + m, gp = grad c' + gds (grad v' - rest), gs = gp p (gradient of the scores).

    With a cap, f is the slope of a capped score x and u = scale (a k' + q b'): gds = u f + m, and the gradient of the
    uncapped score is f (gs - 2 x u ds / cap^2).
    """
    grad, q, k, v, mask, lse, rest, causal, scale = arguments[:9]
    limits = limitsOf(arguments[10] if len(arguments) > 10 else options.get("limits"))
    shape, heads = q.shape, k.shape[1]
    grouped = (shape[0], heads, shape[1] // heads, *shape[2:3])

    def rows(x):  # (n, h, t, d) as (n, h / g, g, t, d)
        return x.reshape(*grouped, x.shape[-1])

    def columns(x):  # (n, h / g, s, d) as (n, h / g, 1, s, d)
        return x.reshape(*x.shape[:2], 1, *x.shape[2:])

    a, b, c = [np.zeros_like(x) if seed is None else seed for seed, x in zip(g, (q, k, v))]
    m = g[3] if len(g) > 3 else None
    Q, K, V, G, A, B, C = rows(q), columns(k), columns(v), rows(grad), rows(a), columns(b), columns(c)
    scores, slopes = limits.capped(scale * (Q @ K.swapaxes(-1, -2)))
    capped, cap = scores, limits.cap or 1.0
    wide = (*shape[:3], k.shape[2])
    if mask is not None:
        full = np.broadcast_to(mask, wide).reshape(scores.shape)
        scores = np.where(full, scores, -np.inf) if mask.dtype.kind == "b" else scores + full
    seen = limits.visible(dataOf(q), slice(0, wide[2]), slice(0, wide[3]), causal)
    if seen is not None:
        scores = np.where(byGroup(seen), scores, -np.inf)
    p, free = np.exp(scores - rows(lse)), G @ V.swapaxes(-1, -2) - rows(rest)
    ds = p * free
    u = scale * (A @ K.swapaxes(-1, -2) + Q @ B.swapaxes(-1, -2))
    gds = u if slopes is None else u * slopes
    gds = gds if m is None else gds + np.broadcast_to(m, wide).reshape(scores.shape)
    gp = G @ C.swapaxes(-1, -2) + gds * free
    gfree, gs = gds * p, gp * p
    gx, dx = (gs, ds) if slopes is None else (slopes * (gs - capped * u * ds * (2 / cap**2)), ds * slopes)
    grads = [
        (p @ C + gfree @ V).reshape(grad.shape),
        (scale * (gx @ K + dx @ B)).reshape(q.shape),
        (scale * (gx.swapaxes(-1, -2) @ Q + dx.swapaxes(-1, -2) @ A)).sum(axis=2),
        (gfree.swapaxes(-1, -2) @ G).sum(axis=2),
        unbroadcast(gs.reshape(wide), mask.shape) if needs[4] else None,
        -gs.sum(axis=-1).reshape(lse.shape),
        -gfree.sum(axis=-1).reshape(rest.shape),
    ]
    return (*grads, *[None] * (len(arguments) - 7))


attendGrad.declare(layout=HEADSLAST, halves=Halves((0, 1, 2, 3), 3), jvp=REFERENCE)


EDGES = {"float16": 64, "bfloat16": 64, "float32": 64, "float64": 32}  # queries, and keys, of a block
KEPT = 4  # slices of a result that a block keeps in registers, half as many in float64; other slices take more blocks


class AttentionArguments:
    """The arguments of launches: queries, keys, values and a mask."""

    def __init__(self, q, k, v, mask, scale):
        self.arrays, self.maskArray = [q, k, v], mask
        self.edge = EDGES.get(q.dtype.name, 32)
        self.groups = self.edge // 4
        self.wide = computed(q.dtype) if q.dtype.name in EDGES else None
        self.most = KEPT * self.edge // 64
        self.group = q.shape[1] // max(k.shape[1], 1)
        self.scale = self.wide, float(scale)
        self.mask = () if mask is None else (("pointer", mask), *ints(self.four(mask)))

    def fit(self, *others):
        """True if launches support these arrays: all of one float dtype, a mask of floats or bools."""
        mask = self.maskArray
        isKnown = mask is None or mask.dtype.name in ("bool", *EDGES)
        if max(abs(s) for x in (*self.arrays, *others) for s in stridesOf(x)) >= 1 << 31:
            return False
        return self.wide is not None and isKnown and len({x.dtype for x in (*self.arrays, *others)}) == 1

    def four(self, x):
        """The strides of an array that broadcasts to (n, h, t, s), 0 along axes that it repeats."""
        strides = [0 if n == 1 else stride for n, stride in zip(x.shape, stridesOf(x))]
        return [0] * (4 - len(strides)) + strides

    def columns(self, width):
        """The number of contiguous result columns per thread: fewer for narrow results."""
        return 4 if width > self.edge // 2 else 2 if width > self.edge // 4 else 1

    def text(self, names):
        """The macros before a kernel's text."""
        kind = stored(self.arrays[0].dtype)
        names = {"T": kind, "W": self.wide, "EDGE": self.edge, **names}
        isLarge = max(names["KEPT"], names.get("KEPT_OF_KEYS", 0)) > 2 or "REST" in names and self.maskArray is not None
        names["BLOCKS"] = 1 if isLarge else 2  # resident blocks of a multiprocessor, which share its registers
        if self.maskArray is not None:
            names |= {"MASK": stored(self.maskArray.dtype), "IS_BOOL": int(self.maskArray.dtype.name == "bool")}
        return defined(names) + read("flash.h")


def pointers(*arrays):
    """Slots of arrays."""
    return [("pointer", x) for x in arrays]


def ints(values):
    """Slots of 32-bit integers."""
    return [("int", n) for n in values]


def add(parts, block, new):
    """parts[block] += new"""
    parts[block.start] = new if block.start not in parts else parts[block.start] + new


def blocks(length):
    """The slices of an axis, one for each block; at least one, which may be empty."""
    return [slice(start, min(start + BLOCK, length)) for start in range(0, max(length, 1), BLOCK)]


class HeadLayout:
    """The blocks of queries and keys: the g heads that share keys become one block of g rows per query."""

    def __init__(self, q, k, mask, causal, scale, limits=None):
        self.q, self.k, self.causal, self.scale = widen(q), widen(k), causal, scale
        self.limits, self.slopes = limitsOf(limits), None
        self.heads = k.shape[1]
        self.group = q.shape[1] // max(k.shape[1], 1)
        self.queries, self.keys = blocks(q.shape[2]), blocks(k.shape[2])
        self.grouped = None
        self.mask: Any = None
        if mask is not None:
            self.maskShape = mask.shape
            n, h, t, s = (1,) * (4 - mask.ndim) + tuple(mask.shape)
            self.mask = mask.reshape(n, *((1, 1) if h == 1 else (self.heads, self.group)), t, s)
            self.isBool = mask.dtype.kind == "b"

    def keysFor(self, i):
        """The blocks of keys that a block of queries is not masked from, as far as positions are known."""
        isAll = not self.causal or self.limits.offset is not None
        return [j for j in self.keys if isAll or j.start < max(i.stop, 1)]

    def mergeHeads(self, x, i):
        """Rows i of x (n, h, t, d) as (n, h / g, g rows, d)."""
        part = x[:, :, i]
        return part.reshape(x.shape[0], self.heads, self.group * part.shape[2], x.shape[3])

    def splitHeads(self, x):
        """The inverse of `mergeHeads`."""
        return x.reshape(x.shape[0], self.heads * self.group, x.shape[2] // self.group, x.shape[3])

    def scaled(self, i):
        """Queries times the scale; cached while the same ones meet other keys."""
        if self.grouped is None or self.grouped[0] != i:
            self.grouped = i, self.mergeHeads(self.q, i) * self.scale
        return self.grouped[1]

    def scores(self, i, j):
        """scale q k' + mask, -inf where hidden: (n, h / g, g rows, keys)."""
        scores, self.slopes = self.limits.capped(self.scaled(i) @ self.k[:, :, j].swapaxes(-1, -2))
        seen = self.limits.visible(self.q, i, j, self.causal) if self.crosses(i, j) else None
        if self.mask is None and seen is None:
            return scores
        shape = scores.shape
        scores = scores.reshape(*shape[:2], self.group, shape[2] // self.group, shape[3])
        if self.mask is not None:
            mask = self.maskAt(i, j)
            scores = np.where(mask, scores, -np.inf) if self.isBool else scores + mask.astype(scores.dtype)
        if seen is not None:
            scores = np.where(byGroup(seen), scores, -np.inf)
        return scores.reshape(shape)

    def crosses(self, i, j):
        """True if some key of a block may be hidden from some query by its position."""
        isLimited = any(x is not None for x in self.limits[:3])
        return isLimited or self.causal and j.stop - 1 > i.start

    def maskAt(self, i, j):
        """The part of the mask for a block; an axis of length one broadcasts."""
        mask = self.mask if self.mask.shape[-2] == 1 else self.mask[..., i, :]
        return mask if mask.shape[-1] == 1 else mask[..., j]

    def addToMask(self, parts, i, j, ds):
        """Add a block's ds to the gradient of its part of the mask."""
        inner = (self.group, ds.shape[2] // self.group)
        new = unbroadcast(ds.reshape(*ds.shape[:2], *inner, ds.shape[3]), self.maskAt(i, j).shape)
        rows, columns = self.mask.shape[-2:]
        block = (0 if rows == 1 else i.start, 0 if columns == 1 else j.start)
        parts[block] = new if block not in parts else parts[block] + new

    def joinedMask(self, parts):
        """The gradient of the mask; zero for blocks that no query met."""
        rows, columns = self.mask.shape[-2:]
        lines = []
        for i in self.queries if rows > 1 else self.queries[:1]:
            line = []
            for j in self.keys if columns > 1 else self.keys[:1]:
                block = (i.start, j.start)
                line.append(parts[block] if block in parts else np.zeros_like(self.q, shape=self.maskAt(i, j).shape))
            lines.append(np.concatenate(line, axis=-1))
        return np.concatenate(lines, axis=-2).reshape(self.maskShape)
