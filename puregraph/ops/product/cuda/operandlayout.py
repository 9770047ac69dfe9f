"""The operands of a contraction: the axes it runs along, the layout of operands, and how threads read them."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

from puregraph.ops.product.cuda.epilogue import EpilogueOperandText, EpilogueText, vectorWidth

INT_MAX = 2**31 - 1  # the largest int
VECTOR_ELEMENTS = 8  # elements that are read together


class Limit(NamedTuple):
    """Elements count as zero unless 0 <= start + lanes i + depth k < length, with indices i and k along these axes."""

    length: int
    start: int
    lanes: tuple[int, ...]
    depth: tuple[int, ...]


class ContractionOperand(NamedTuple):
    """A factor of the contraction: its dtype, its array, its strides along each axis of the lanes (the rows of a, the
    columns of b), the depth and the batch, the offset of its first element, and its limits."""

    dtype: str
    what: Any
    lanes: tuple[int, ...]
    depth: tuple[int, ...]
    batch: tuple[int, ...] = ()
    start: int = 0
    limits: tuple[Limit, ...] = ()


class Space(NamedTuple):
    """The sizes of all axes."""

    rows: tuple[int, ...]
    columns: tuple[int, ...]
    depth: tuple[int, ...]
    batch: tuple[int, ...] = ()


def reach(sizes: Sequence[int], strides: Sequence[int]) -> int:
    """The largest distance of elements along some axes."""
    return sum((size - 1) * abs(stride) for size, stride in zip(sizes, strides))


def collapsed(
    space: Space, a: ContractionOperand, b: ContractionOperand, epilogue: EpilogueText
) -> tuple[Space, ContractionOperand, ContractionOperand, EpilogueText]:
    """The contraction without axes of length one, and with neighbouring axes merged where all operands allow it."""
    ends, limits = epilogue.columns, (*a.limits, *b.limits)
    rows = joined(space.rows, [a.lanes, *(i.lanes for i in a.limits), *(c.rows for c in ends)])
    columns = joined(space.columns, [b.lanes, *(i.lanes for i in b.limits), *(c.columns for c in ends)])
    depth = joined(space.depth, [a.depth, b.depth, *(i.depth for i in limits)])
    batch = joined(space.batch, [a.batch, b.batch, *(c.batch for c in ends)])
    groups = rows, columns, depth, batch

    def ofOperand(o: ContractionOperand, lanes: list[list[int]]) -> ContractionOperand:
        few = tuple(i._replace(lanes=last(lanes, i.lanes), depth=last(depth, i.depth)) for i in o.limits)
        return o._replace(
            lanes=last(lanes, o.lanes), depth=last(depth, o.depth), batch=last(batch, o.batch), limits=few
        )

    def ofColumn(c: EpilogueOperandText) -> EpilogueOperandText:
        return c._replace(rows=last(rows, c.rows), columns=last(columns, c.columns), batch=last(batch, c.batch))

    sizes = [tuple([prod(axes[i] for i in group) for group in some]) for axes, some in zip(space, groups)]
    return Space(*sizes), ofOperand(a, rows), ofOperand(b, columns), epilogue.moved(ofColumn)


def last(groups: list[list[int]], strides: Sequence[int]) -> tuple[int, ...]:
    """The stride of each group of axes."""
    return tuple([strides[group[-1]] for group in groups])


def withBatch(o: Any, space: Space) -> Any:
    """An operand with a stride for each axis of the batch: zero where none was given."""
    return o if o.batch else o._replace(batch=(0,) * len(space.batch))


def joined(sizes: Sequence[int], strides: Sequence[Sequence[int]]) -> list[list[int]]:
    """Axes that can be joined, in groups."""
    groups: list[list[int]] = []
    for i, size in enumerate(sizes):
        if size == 1:
            continue
        if groups and all(s[groups[-1][-1]] == s[i] * size for s in strides):
            groups[-1].append(i)
        else:
            groups.append([i])
    return groups


class OperandReading(NamedTuple):
    """The access to an operand: sizes of its lanes' axes, whether it is contiguous along the depth, and elements per
    load."""

    operand: ContractionOperand
    sizes: tuple[int, ...]
    alongDepth: bool
    pack: int


def sideOf(o: ContractionOperand, lanes: tuple[int, ...], depth: tuple[int, ...], isWhole: bool) -> OperandReading:
    """The best access to an operand."""
    alongDepth = distance(depth, o.depth, isWhole) < distance(lanes, o.lanes, isWhole)
    sizes, axes, others = (depth, o.depth, o.lanes) if alongDepth else (lanes, o.lanes, o.depth)
    if axes[-1:] != (1,) or any((i.depth if alongDepth else i.lanes)[-1] for i in o.limits):
        return OperandReading(o, lanes, alongDepth, 1)
    return OperandReading(
        o, lanes, alongDepth, vectorWidth(o.dtype, sizes[-1], (*axes[:-1], *others, *o.batch, o.start))
    )


def distance(sizes: Sequence[int], strides: Sequence[int], isWhole: bool) -> float:
    """The distance of neighbours along axes; more where the last axis is short, unless sizes are not to matter."""
    if not sizes:
        return INT_MAX
    return abs(strides[-1]) * (1.0 if isWhole else max(1.0, VECTOR_ELEMENTS / max(1, sizes[-1])))
