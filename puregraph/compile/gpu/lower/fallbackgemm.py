"""Fallback GEMM: this package's kernels for products and convolutions that no NVIDIA library has a plan for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from puregraph.compile.lower.lowering import needed
from puregraph.compile.passes.group import Group
from puregraph.compile.passes.nestlines import named, operand
from puregraph.ops.ir.value import Call, Value
from puregraph.ops.operation import declared
from puregraph.ops.product.cuda.epilogue import EpilogueOperandText, EpilogueText
from puregraph.ops.product.cuda.implicitgemm import ContractionOperand, Space, contraction

if TYPE_CHECKING:
    from types import NotImplementedType

    from puregraph.ops.cuda.runtime.launch import Launch


class GpuOutputTiling(NamedTuple):
    """The tiling of a product: the row, column and batch axes of its result."""

    rows: tuple[int, ...]
    columns: tuple[int, ...]
    batch: tuple[int, ...] = ()

    def column(self, kind: str, what: object, strides: Sequence[int]) -> EpilogueOperandText:
        """An operand that has these strides along the axes of the result."""
        rows, columns, batch = (tuple([strides[a] for a in axes]) for axes in self)
        return EpilogueOperandText(kind, what, rows, columns, batch)


def tilingOf(call: Call) -> GpuOutputTiling | None:
    """The output tiling of a call; None if its result takes no epilogue."""
    if declared(call.function, "epilogue") is not None:
        rank = call.outs[0].ndim
        return GpuOutputTiling((0, *range(2, rank)), (1,))
    if call.function is not np.matmul or call.options or min(v.ndim for v in call.values()) < 2:
        return None
    (y,), b = call.outs, call.arguments[1]
    rank = y.ndim
    return (
        GpuOutputTiling(tuple(range(rank - 1)), (rank - 1,))
        if isOne(b)
        else GpuOutputTiling((rank - 2,), (rank - 1,), (*range(rank - 2),))
    )


def isOne(b: Value) -> bool:
    """True if one matrix serves the entire batch."""
    return all(n == 1 for n in b.shape[:-2])


def fallbackLaunches(
    call: Call, group: Group | None = None, kept: Sequence[Value] = (), isKept: bool = True
) -> list[Launch] | NotImplementedType:
    """The launches of a product or convolution and of a group as its epilogue; NotImplemented if there are none.

    `kept` are the results of the group that are read; `isKept`: the product itself is also read.
    """
    tiling = tilingOf(call)
    epilogue = None if tiling is None else epilogueOf(call.outs[0], tiling, group, kept, isKept)
    if tiling is None or epilogue is None:
        return NotImplemented
    rule = declared(call.function, "epilogue")
    return multiplied(call, tiling, epilogue) if rule is None else rule(call.outs[0], *call.arguments, epilogue)


def epilogueOf(
    y: Value, tiling: GpuOutputTiling, group: Group | None, kept: Sequence[Value], isKept: bool
) -> EpilogueText | None:
    """The epilogue of a group; None if some operand cannot be read tile by tile."""
    axes = tuple([None if n == 1 else a for a, n in enumerate(y.shape)])
    names = {} if group is None else {n: x for n, x in group.loads.items() if x[0] is not y}
    sums = "sums" if group is None else next(n for n, (v, _) in group.loads.items() if v is y)
    stores = {} if group is None else {group.names[v.number]: (v, group.axes[v.number]) for v in kept}
    stores |= {sums: (y, axes)} if isKept else {}
    texts: list[dict[str, EpilogueOperandText]] = []
    for operands in (names, stores):
        texts.append({})
        for name, (value, valueAxes) in operands.items():
            seen = operand(y.shape, value, valueAxes)
            if seen is None or not seen.what.size:
                return None
            texts[-1][name] = tiling.column(seen.kind, value, seen.strides)
    return EpilogueText(sums, texts[0], () if group is None else needed(group, stores), texts[1])


def multiplied(call: Call, tiling: GpuOutputTiling, epilogue: EpilogueText) -> list[Launch] | NotImplementedType:
    """A matrix product."""
    a, b = call.arguments
    (y,) = call.outs
    if 0 in (*a.shape, *b.shape) or any(s % v.dtype.itemsize for v in (a, b) for s in v.strides):
        return NotImplemented
    left, right = stepsOf(a, y.ndim), stepsOf(b, y.ndim)
    batch = [tuple([steps[i] for i in tiling.batch]) for steps in (left, right)]
    rows, columns, batches = (tuple([y.shape[i] for i in axes]) for axes in tiling)
    first = ContractionOperand(named(a.dtype), a, tuple([left[i] for i in tiling.rows]), left[-1:], batch[0])
    second = ContractionOperand(named(b.dtype), b, right[-1:], right[-2:-1], batch[1])
    m, n, k = y.shape[-2], y.shape[-1], a.shape[-1]
    return contraction(f"product {m}x{k}x{n}", Space(rows, columns, (k,), batches), first, second, epilogue)


def stepsOf(x: Value, rank: int) -> tuple[int, ...]:
    """The strides in elements along the axes of a larger result; 0 where an operand is broadcast."""
    steps = [0 if n == 1 else s // x.dtype.itemsize for n, s in zip(x.shape, x.strides)]
    return (*[0] * (rank - x.ndim), *steps)
