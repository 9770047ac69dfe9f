"""Attention lowering: softmax(q kT) v and its gradients as native kernel calls."""

from __future__ import annotations

from typing import TYPE_CHECKING

from puregraph.ops.attention.limits import limitsOf
from puregraph.ops.attention.native import attentioncalls as attention
from puregraph.ops.attention.native.attentionoperands import AttentionSizes, Heads, Mask, Reach
from puregraph.ops.attention.reference import attend, attendGrad
from puregraph.ops.ir.elementlayout import (
    allOf,
    broadcastStrides,
    elementStrides,
    isReal,
    isRowMajor,
    realOf,
    toRowMajor,
)
from puregraph.ops.ir.strides import contiguous
from puregraph.ops.ir.value import Call, Value
from puregraph.ops.native.llvm.kernelcall import KernelCall
from puregraph.ops.operation import op

if TYPE_CHECKING:
    from typing import Any

    from puregraph.compile.lower.workspace import LoweringWorkspace


def headsOf(value: Value) -> Heads | None:
    """A Value as rows of contiguous elements; None if they are not contiguous."""
    n, h, t, last = elementStrides(value)
    return Heads(value, (n, h, t)) if last == 1 or value.shape[-1] == 1 else None


def sizesOf(q: Value, k: Value, v: Value) -> AttentionSizes:
    """The number of samples, query heads, key heads, queries and keys, and the sizes of a key and a value."""
    n, h, t, d = q.shape
    return AttentionSizes(n, h, k.shape[1], t, k.shape[2], d, v.shape[3])


def maskOf(mask: Value, q: Value, k: Value, workspace: LoweringWorkspace) -> tuple[Any, list[KernelCall]]:
    """The mask as a native operand and the calls that copy it if rows have gaps; None if there is no mask.

    The operand is False if native code cannot read the dtype.
    """
    if mask is None:
        return None, []
    kind = {"bool": "i8", "float32": "f32", "float64": "f64"}.get(mask.dtype.name)
    if kind is None:
        return False, []
    scores = (*q.shape[:3], k.shape[2])
    n, h, t, s = broadcastStrides(mask, scores)
    if s in (0, 1):
        return Mask(kind, mask, (n, h, t, s)), []
    where, copies = toRowMajor(mask, workspace)
    shape = (1,) * (4 - mask.ndim) + mask.shape
    n, h, t, s = (0 if size == 1 else stride for size, stride in zip(shape, contiguous(shape, 1)))
    return Mask(kind, where, (n, h, t, s)), copies


def reachOf(limits: tuple | None) -> Reach | None:
    """The limits as a native operand; None if native code cannot read them."""
    offset, lengths, window, cap = limitsOf(limits)
    arrays = [x for x in (offset, lengths) if type(x) is Value]
    if any(x.dtype.name not in ("int32", "int64") or not isRowMajor(x) for x in arrays):
        return None
    return Reach(offset, lengths, window, cap)


@op(attend).lower
def lowerAttend(call: Call, workspace: LoweringWorkspace) -> list[KernelCall] | None:
    """y = softmax(scale q kT + mask) v, and the logarithm of each row's sum of exponentials."""
    q, k, v, mask, causal, scale, *more = call.arguments
    y, lse = call.outs
    heads, reach = allOf(map(headsOf, (q, k, v, y))), reachOf(more[0] if more else None)
    if not isReal(q, k, v, y, lse) or heads is None or reach is None or not isRowMajor(lse):
        return None
    hides, copies = maskOf(mask, q, k, workspace)
    if hides is False:
        return None
    qs, ks, vs, ys = heads
    sizes = sizesOf(q, k, v)
    return [*copies, *attention.attend(qs, ks, vs, ys, lse, sizes, causal, float(scale), hides, realOf(q), reach)]


@op(attendGrad).lower
def lowerAttendGrad(call: Call, workspace: LoweringWorkspace) -> list[KernelCall] | None:
    """The gradients dq, dk, dv; for the gradient of a mask see `attention.decomposition`."""
    grad, q, k, v, mask, lse, rest, causal, scale, ofMask, *more = call.arguments
    if ofMask or len(call.outs) != 3 or not isReal(grad, q, k, v, lse, rest, *call.outs):
        return None
    heads, reach = allOf(map(headsOf, (q, k, v, *call.outs))), reachOf(more[0] if more else None)
    if heads is None or reach is None:
        return None
    hides, copies = maskOf(mask, q, k, workspace)
    if hides is False:
        return None
    before: list[KernelCall] = []
    g = headsOf(grad)
    if g is None:
        where, before = toRowMajor(grad, workspace)
        n, h, t, _ = contiguous(grad.shape, 1)
        g = Heads(where, (n, h, t))
    lseAt, lseCopies = toRowMajor(lse, workspace)
    restAt, restCopies = toRowMajor(rest, workspace)
    (qs, ks, vs, dq, dk, dv), sizes = heads, sizesOf(q, k, v)
    results = g, qs, ks, vs, lseAt, restAt, dq, dk, dv
    work = attention.attendGrad(*results, sizes, causal, float(scale), hides, realOf(q), reach)
    return [*copies, *before, *lseCopies, *restCopies, *work]
