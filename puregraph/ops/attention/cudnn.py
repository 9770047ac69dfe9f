"""Attention by cuDNN, flash attention: of the scores only the log-sum-exp of each row is kept.

    y = p v,  p = drop(softmax(scale q k')),  lse = ln sum exp(scale q k')

Forward and backward drop the same entries of p for the same seed and offset, which are read from memory; the rest
is divided by 1 - dropout.

The gradient of q is a sum over keys. A deterministic sum takes one float32 copy of dq for each `KEYS` keys, so its
workspace grows with the square of the sequence length. A nondeterministic sum takes a single copy, to which blocks add
in any order. The sum is deterministic if that takes up to `WORKSPACE_BYTES`; PUREGRAPH_DETERMINISTIC overrides this.

Source    Dao 2023, FlashAttention-2, arXiv:2307.08691; dropout: Srivastava et al. 2014, JMLR 15
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from puregraph.core.base.environment import variable
from puregraph.ops.cuda.libraries.cudnn import (
    CudnnCall,
    GraphDraft,
    Tensor,
    areAligned,
    dense,
    isPlain,
    isPlanned,
    tensor,
)
from puregraph.ops.cuda.libraries.librarycall import pointers
from puregraph.ops.cuda.libraries.tensorview import flat, load, pick, save

if TYPE_CHECKING:
    from types import NotImplementedType

    from puregraph.core.protocols import AnyArray, Strided

NUMBER = Tensor((1, 1, 1, 1), (1, 1, 1, 1))
WIDTH = 8  # the features of a key, and those of a value, are a multiple of this
KEYS = 128  # keys of a block; in deterministic sums each block has its own copy of dq
WORKSPACE_BYTES = 256 << 20  # bytes of workspace that a deterministic gradient may take by default


class AttentionTask(NamedTuple):
    """Attention: "attend" computes y and lse, "attendGrad" the gradients of q, k and v, in their layouts.

    `bias` is added to the scores. `causal` hides key j from query i < j. The heads of k divide those of q. `repeats`
    asks for deterministic sums.
    """

    what: str
    kind: str
    q: Tensor
    k: Tensor
    v: Tensor
    y: Tensor
    lse: Tensor
    scale: float
    causal: bool = False
    dropout: float = 0.0
    grads: tuple[Tensor, ...] = ()  # the gradients of y, q, k and v
    repeats: bool = True
    bias: Tensor | None = None

    def __str__(self) -> str:
        layouts = {"q": self.q, "k": self.k, "v": self.v, "y": self.y}
        words = [self.kind, self.what, *(f"{name} {layout}" for name, layout in layouts.items())]
        words += [f"lse {self.lse}"] if self.lse.strides != byRows(self.lse.shape) else []
        words += [f"d{name} {layout}" for name, layout in zip("yqkv", self.grads) if layouts[name] != layout]
        words += [f"scale {self.scale!r}"] + ["causal"] * self.causal
        words += [f"dropout {self.dropout!r}"] if self.dropout else []
        words += [f"bias {self.bias}"] if self.bias is not None else []
        return " ".join(words + ["anyhow"] * (not self.repeats))

    @property
    def random(self) -> tuple[tuple[Tensor, str], ...]:
        """The seed and the offset that are read for dropout."""
        return ((NUMBER, "int64"), (NUMBER, "int64")) if self.dropout else ()

    @property
    def expected(self) -> int:
        """The estimated bytes of workspace, for tasks without a plan."""
        n, h, t, d = self.q.shape
        return backwardBytes(n, h, t, d, self.k.shape[2], isDeterministic=self.repeats) if self.grads else 0

    def describe(self, draft: GraphDraft) -> None:
        """Write the task into a graph of cuDNN."""
        g, how = draft.graph, dict[str, Any](attn_scale=self.scale)
        if self.causal:
            how["use_causal_mask"] = True
        grad = [draft.read(self.grads[0])] if self.grads else []
        q, k, v = [draft.read(layout) for layout in (self.q, self.k, self.v)]
        kept = [draft.read(self.y), draft.read(self.lse, "float32")] if self.grads else []
        if self.bias is not None:
            how["bias"] = draft.read(self.bias)
        if self.dropout:
            how["dropout"] = (self.dropout, *(draft.read(*layout) for layout in self.random))
        if not self.grads:
            y, lse = g.sdpa(q=q, k=k, v=v, generate_stats=True, **how)
            draft.write(y, self.y)
            draft.write(lse, self.lse, "float32")
            return
        how["use_deterministic_algorithm"] = self.repeats
        grads = g.sdpa_backward(q=q, k=k, v=v, o=kept[0], stats=kept[1], dO=grad[0], **how)
        for gradient, layout in zip(grads, self.grads[1:]):
            draft.write(gradient, layout)

    def emulate(self, arrays: Sequence[np.ndarray]) -> None:
        """Compute the task in numpy; dropout does not drop the entries that cuDNN drops."""
        stored = "float32" if self.kind == "tf32" else self.kind
        reads = [(layout, stored) for layout in (*self.grads[:1], self.q, self.k, self.v)]
        reads += [(self.y, stored), (self.lse, "float32")] if self.grads else []
        reads += [(self.bias, stored)] if self.bias is not None else []
        writes = [(layout, stored) for layout in self.grads[1:]] or [(self.y, stored), (self.lse, "float32")]
        layouts = [*reads, *self.random, *writes]
        views = [pick(flat(x, kind), *layout) for x, (layout, kind) in zip(arrays, layouts)]
        operands = [load(view, kind) for view, (_, kind) in zip(views[: -len(writes)], layouts)]
        results = self.backward(*operands) if self.grads else self.forward(*operands)
        for view, result, (_, kind) in zip(views[-len(writes) :], results, writes):
            save(view, result, kind)

    def forward(self, q: AnyArray, k: AnyArray, v: AnyArray, *rest: object) -> tuple[Any, Any]:
        """y and lse."""
        bias, random = self.divided(rest)
        k, v = self.shared(k), self.shared(v)
        scores = self.scores(q, k, bias)
        top = scores.max(axis=-1, keepdims=True)
        p = np.exp(scores - top)
        total = p.sum(axis=-1, keepdims=True)
        return (p / total * self.left(scores, *random)) @ v, top + np.log(total)

    def backward(self, grad: Any, q: Any, k: Any, v: Any, y: Any, lse: Any, *rest: Any) -> tuple[Any, ...]:
        """ds = p (grad v' - sum grad y), dq = scale ds k, dk = scale ds' q, dv = p' grad"""
        bias, random = self.divided(rest)
        wholeK, wholeV = self.shared(k), self.shared(v)
        p = np.exp(self.scores(q, wholeK, bias) - lse)
        left = self.left(p, *random)
        ds = p * (grad @ wholeV.swapaxes(-1, -2) * left - (grad * y).sum(axis=-1, keepdims=True)) * self.scale
        dk, dv = ds.swapaxes(-1, -2) @ q, (p * left).swapaxes(-1, -2) @ grad
        return ds @ wholeK, summedHeads(dk, k.shape), summedHeads(dv, v.shape)

    def shared(self, x: Any) -> Any:
        """Keys or values, repeated for each head of q."""
        return np.repeat(x, self.q.shape[1] // x.shape[1], axis=1)

    def divided(self, operands: tuple[object, ...]) -> tuple[Any, tuple[Any, ...]]:
        """The bias, or 0, and the inputs of dropout."""
        return (np.float32(0), operands) if self.bias is None else (operands[0], operands[1:])

    def scores(self, q: AnyArray, k: AnyArray, bias: AnyArray | None) -> AnyArray:
        """scale q k' + bias, -inf where hidden."""
        scores = q @ k.swapaxes(-1, -2) * np.float32(self.scale) + bias
        return np.where(np.tri(*scores.shape[-2:]) > 0, scores, -np.inf) if self.causal else scores

    def left(self, p: Any, *random: Any) -> Any:
        """The dropout factor of p: 0 for dropped entries, else 1 / (1 - dropout)."""
        if not self.dropout:
            return np.float32(1)
        key = [int(number.ravel()[0]) for number in random]
        stays = np.random.Generator(np.random.Philox(key=key)).random(p.shape) >= self.dropout
        return stays.astype(p.dtype) / np.float32(1 - self.dropout)


def attend(
    outs: Sequence[object],
    q: Strided,
    k: Strided,
    v: Strided,
    causal: bool,
    scale: float,
    dropout: float = 0.0,
    random: Sequence[object] = (),
    tf32: bool = False,
    bias: Strided | None = None,
) -> CudnnCall | NotImplementedType:
    """outs = y and lse; NotImplemented where cuDNN has no plan for it.

    Slots are q, k, v, the bias, if there is one, then, with dropout, the seed and the offset, int64 of one element
    each; then y and lse. A bias is finite, of the dtype of q, and broadcasts to (n, h, t, s).

    Shapes    q (n, h, t, d), k (n, h / g, s, d), v (n, h / g, s, e) -> y (n, h, t, e), lse (n, h, t, 1) in float32
    """
    y, lse = outs
    if not areHeads(q, k, v, y) or not isRow(lse) or bool(dropout) != (len(random) == 2):
        return NotImplemented
    task = taskOf("attend", q, k, v, y, lse, causal, scale, dropout, tf32)._replace(bias=biasOf(bias, q, k))
    return callOf(task, q, k, v, *present(bias), *random, y, lse)


def attendGrad(
    outs: Sequence[Any],
    grad: Any,
    q: Any,
    k: Any,
    v: Strided,
    y: Strided,
    lse: Strided,
    causal: bool,
    scale: float,
    dropout: float = 0.0,
    random: Sequence[object] = (),
    tf32: bool = False,
    repeats: bool | None = None,
    bias: Any | None = None,
) -> CudnnCall | NotImplementedType:
    """outs = the gradients of q, k and v; NotImplemented where cuDNN has no plan for it.

    Slots are grad, q, k, v, y, lse, the bias, then, with dropout, the seed and the offset; then the gradients.
    `repeats` makes sums deterministic; None: as PUREGRAPH_DETERMINISTIC says, else if the workspace is small.
    """
    if not areHeads(q, k, v, y, grad, *outs) or not isRow(lse) or bool(dropout) != (len(random) == 2):
        return NotImplemented
    task = taskOf("attendGrad", q, k, v, y, lse, causal, scale, dropout, tf32)
    chosen = repeats if repeats is not None else variable("DETERMINISTIC")
    task = task._replace(grads=tuple(map(heads, (grad, *outs))), repeats=chosen is not False, bias=biasOf(bias, q, k))
    arrays = grad, q, k, v, y, lse, *present(bias), *random, *outs
    call = callOf(task, *arrays)
    if call is NotImplemented or chosen is not None or call.workspace <= WORKSPACE_BYTES:
        return call
    quick = callOf(task._replace(repeats=False), *arrays)
    return call if quick is NotImplemented else quick


def backwardBytes(n: int, h: int, t: int, d: int, s: int, *, isDeterministic: bool) -> int:
    """The workspace that cuDNN takes for the gradients of (n, h, t, d) queries and s keys."""
    blocks = -(-s // KEYS)
    sums = blocks * -(-t // KEYS) * KEYS if isDeterministic else t
    return n * h * (sums * d + t) * 4 + 256


def callOf(task: AttentionTask, *arrays: Any) -> CudnnCall | NotImplementedType:
    """A task with its arrays, if there is a plan for it."""
    return CudnnCall(task, pointers(*arrays)) if areAligned(*arrays) and isPlanned(task) else NotImplemented


def taskOf(what: str, q: Any, k: Any, v: Any, y: Any, lse: Any, *rest: Any) -> AttentionTask:
    """The task of a call, without gradients."""
    causal, scale, dropout, tf32 = rest
    kind = "tf32" if tf32 and q.dtype.name == "float32" else q.dtype.name
    q, k, v, y = map(heads, (q, k, v, y))
    return AttentionTask(what, kind, q, k, v, y, tensor(lse, byRows), float(scale), bool(causal), float(dropout))


def present(bias: Strided | None) -> tuple[Strided, ...]:
    """The bias, if there is one."""
    return () if bias is None else (bias,)


def biasOf(bias: Strided | None, q: Strided, k: Strided) -> Tensor | None:
    """The bias as a cuDNN tensor: all queries and keys; one or all samples; one or all heads."""
    if bias is None:
        return None
    missing = 4 - len(bias.shape)
    shape = (1,) * missing + tuple(bias.shape)
    steps = (0,) * missing + tuple([s // bias.dtype.itemsize for s in bias.strides])
    sizes = *shape[:2], q.shape[2], k.shape[2]
    return Tensor(sizes, tuple([s if n == m else 0 for n, m, s in zip(shape, sizes, steps)]))


def byRows(shape: Sequence[int]) -> tuple[int, ...]:
    """The strides of a row-major array."""
    return dense(shape, range(len(shape)))


def heads(x: Strided) -> Tensor:
    """Heads as a cuDNN tensor; if the layout is free, the heads of a query are contiguous."""
    return tensor(x, lambda shape: dense(shape, (0, 2, 1, 3)))


def areHeads(*arrays: Any) -> bool:
    """True if arrays are heads of one dtype, contiguous for each query, key or value."""
    first = arrays[0]
    return all(
        isPlain(x)
        and len(x.shape) == 4
        and x.dtype.name == first.dtype.name
        and x.shape[3] % WIDTH == 0
        and x.strides[3] == x.dtype.itemsize
        for x in arrays
    )


def isRow(lse: Any) -> bool:
    """True if a log-sum-exp has the layout that cuDNN writes."""
    return isPlain(lse) and lse.dtype.name == "float32" and len(lse.shape) == 4 and lse.shape[3] == 1


def summedHeads(grads: Any, shape: tuple[int, ...]) -> Any:
    """The gradients of shared heads, summed over the heads that share one."""
    n, heads, s, d = shape
    return grads.reshape(n, heads, -1, s, d).sum(axis=2)
