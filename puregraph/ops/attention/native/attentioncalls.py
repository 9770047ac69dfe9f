"""Flash attention: the native implementations of `attention.reference`: online softmax over blocks of keys.

It is vectorised along queries, so that the running maximum and the sum of exponentials of each stay in a lane, without
horizontal reductions. Elements of keys and values are read in order and broadcast; only the queries are transposed.
The scores of a block of keys stay in L1.

Source    Dao 2023, FlashAttention-2, arXiv:2307.08691, algorithms 1 and 2
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from puregraph.core.opensize import sized
from puregraph.ops.attention.native.attentionforward import AttentionForward
from puregraph.ops.attention.native.attentiongradient import AttentionGradient
from puregraph.ops.attention.native.attentionoperands import (
    OPEN,
    AttentionSizes,
    Heads,
    Mask,
    MaskForm,
    Reach,
    ReachForm,
    formOf,
)
from puregraph.ops.attention.native.attentionquery import AttentionQuery, takesWidth
from puregraph.ops.native.llvm.instructions import SIZES
from puregraph.ops.native.llvm.irbuilder import IRBuilder
from puregraph.ops.native.llvm.kernelcall import KernelCall, variedFor
from puregraph.ops.product.native.broadcastfma import BroadcastTile, tileFor

if TYPE_CHECKING:
    from puregraph.core.protocols import Strided
    from puregraph.ops.ir.value import Value


KEYS = 128  # keys of a block; half as many in the gradient


def attend(
    q: Heads,
    k: Heads,
    v: Heads,
    y: Heads,
    lse: Value,
    sizes: AttentionSizes,
    causal: bool,
    scale: float,
    mask: Mask | None = None,
    real: str = "f32",
    reach: Reach = OPEN,
) -> list[KernelCall]:
    """y = sum over j of softmax_j(scale q k' + mask) v_j and its lse (samples, heads, queries), as the reference.

    Queries that fit into one vector are not padded to two; the bits are the same. A single one, such as the last token
    of a text, is vectorised along its width, unless there is a mask; sums have another order.
    """
    form, operands = formOf(mask), slotsOf(sizes, {"q": q, "k": k, "v": v, "y": y}, mask)

    def calls(samples: int, queries: int) -> list[KernelCall]:
        tile = tileFor(1, real)
        if queries > tile.columns:
            tile = tileFor(2, real)
        blocks = -(-queries // tile.columns)
        plan = AttentionSpec(tile, sizes.width, sizes.out, causal, scale, blockOf(tile, KEYS), form, reach.form)
        isAlone = queries == 1 and mask is None and takesWidth(sizes.width, tile.lanes)
        isAlone = isAlone and takesWidth(sizes.out, tile.lanes)
        key, write = (f"one query {plan!r}", plan.alone) if isAlone else (repr(plan), plan.forward)
        slots = operands | {"lse": lse, "blocks": blocks} | reach.slots
        return [KernelCall(name, key, write, slots, samples * sizes.heads * blocks)]

    name = sized("attend {}x{}x{}x{}x{}", sizes.samples, sizes.heads, sizes.queries, sizes.keys, sizes.width)
    return variedFor(calls, sizes.samples, sizes.queries)


def attendGrad(
    grad: Heads,
    q: Heads,
    k: Heads,
    v: Heads,
    lse: Strided,
    delta: Strided,
    dq: Heads,
    dk: Heads,
    dv: Heads,
    sizes: AttentionSizes,
    causal: bool,
    scale: float,
    mask: Mask | None = None,
    real: str = "f32",
    reach: Reach = OPEN,
) -> list[KernelCall]:
    """dq, dk and dv, as the reference; `lse` and `delta` are (samples, heads, queries).

    All queries that share keys are one task, so that the sums of a key have one order.
    """
    tile = tileFor(2, real)
    blocks = -(-sizes.queries // tile.columns)
    heads = {"g": grad, "q": q, "k": k, "v": v, "dq": dq, "dk": dk, "dv": dv}
    slots = slotsOf(sizes, heads, mask) | {"lse": lse, "rest": delta, "blocks": blocks} | reach.slots
    plan = AttentionSpec(
        tile, sizes.width, sizes.out, causal, scale, blockOf(tile, KEYS // 2), formOf(mask), reach.form
    )
    name = sized("attendGrad {}x{}x{}x{}x{}", sizes.samples, sizes.heads, sizes.queries, sizes.keys, sizes.width)
    return [KernelCall(name, repr(plan), plan.gradient, slots, sizes.samples * sizes.keyHeads)]


def blockOf(tile: BroadcastTile, keys: int) -> int:
    """Keys of a block, in whole tiles: half as many in float64."""
    return keys * SIZES["f32"] // SIZES[tile.real] // tile.rows * tile.rows


def slotsOf(sizes: AttentionSizes, heads: dict[str, Heads], mask: Mask | None) -> dict[str, Any]:
    """The arguments of a kernel: sizes, and every array with its strides."""
    slots = {"heads": sizes.heads, "group": sizes.heads // sizes.keyHeads, "queries": sizes.queries, "keys": sizes.keys}
    for name, rows in heads.items():
        slots[name] = rows.what
        slots |= {name + axis: stride for axis, stride in zip(("Sample", "Head", "Row"), rows.strides)}
    if mask is not None:
        slots["mask"] = mask.what
        slots |= {"mask" + axis: stride for axis, stride in zip(("Sample", "Head", "Row"), mask.strides)}
    return slots


class AttentionSpec(NamedTuple):
    """The parameters of a kernel's code."""

    tile: BroadcastTile
    width: int
    out: int
    causal: bool
    scale: float
    block: int
    mask: MaskForm | None
    reach: ReachForm

    def forward(self, code: IRBuilder) -> None:
        AttentionForward(code, self).write()

    def alone(self, code: IRBuilder) -> None:
        AttentionQuery(code, self).write()

    def gradient(self, code: IRBuilder) -> None:
        AttentionGradient(code, self).write()
