"""Padded rows: store wide products with gaps between rows, so that each row is aligned for wide loads.

    scores (16384, 50257) in bfloat16       rows of 50,304 elements; 47 are never read

With rows of an odd length, cuBLASLt and the cross-entropy would read and write two bytes at a time. The gradient of
such scores is stored in the same way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from puregraph.compile.gpu.lower.librarycalls import productOf
from puregraph.compile.gpu.passes.fusedxent import FusedCrossEntropyGrad
from puregraph.compile.passes.nestlines import GPU
from puregraph.core.tracer import astype
from puregraph.ops.ir.strides import isDense
from puregraph.ops.ir.value import Call, Value

if TYPE_CHECKING:
    from puregraph.compile.trace.schedule import Schedule

MIN_PADDED_ELEMENTS = 1024  # fewest elements of a row that is worth padding
ROW_MULTIPLE = 64  # rows are padded to a multiple of this many elements
WIDE_LOAD_BYTES = 16  # bytes of a wide load


def padRows(schedule: Schedule) -> Schedule:
    """Align the rows of wide products and of gradients of cross-entropies."""
    RowPadding(schedule).run()
    return schedule


class RowPadding:
    """Pads the products of one schedule.

    `kept`     the numbers of Values that are read after the step
    `views`    by number of a Value with memory, its views
    `readers`  by number of a Value with memory, the calls that read it or a view of it
    """

    def __init__(self, schedule: Schedule):
        self.schedule = schedule
        self.kept = {v.root.number for v in schedule.kept()}
        self.views: dict[int, list[Value]] = {}
        self.readers: dict[int, list[Call]] = {}
        for call in schedule.calls:
            for y in call.outs if call.kind.isView else ():
                self.views.setdefault(y.root.number, []).append(y)
            for number in () if call.kind.isView else {v.root.number for v in call.values()}:
                self.readers.setdefault(number, []).append(call)

    def run(self) -> None:
        for call in self.schedule.calls:
            if (isProduct(call) or type(call.function) is FusedCrossEntropyGrad) and row(call.outs[0]):
                alike = self.together(call.outs[0])
                values = [v for y in alike for v in (y, *self.views.get(y.number, []))]
                pad(values, [call, *(c for y in alike for c in self.readers.get(y.number, ()))])

    def together(self, y: Value) -> list[Value]:
        """A Value and results of formulas on it, in the same layout; empty if a reader is slow with gaps."""
        alike, left = {y.number: y}, [y]
        while left:
            v = left.pop()
            readers = self.readers.get(v.number, [])
            if v.number in self.kept or not all(map(readsGaps, readers)):
                return []
            casts = {x.number for call in readers if call.function is astype for x in call.outs} & self.kept
            made = [x for call in readers if call.kind.isElementwise for x in call.outs if row(x)]
            more = {x.number: x for x in made if x.number not in alike.keys() | casts}
            alike |= more
            left += more.values()
        return list(alike.values())


def isProduct(call: Call) -> bool:
    """True if a call is one matrix product."""
    return call.function is np.matmul and not call.options


def readsGaps(call: Call) -> bool:
    """True if a call reads rows with gaps as fast as without."""
    return isProduct(call) or type(call.function) is FusedCrossEntropyGrad or GPU.lines(call) is not None


def row(y: Value) -> int:
    """The bytes of a row to pad; 0 if rows need no padding."""
    size = y.dtype.itemsize
    width = next((n for n, s in zip(y.shape, y.strides) if s == size and n > 1), 0)
    isWide = y.base is None and width >= MIN_PADDED_ELEMENTS and width * size % WIDE_LOAD_BYTES
    return width * size if isWide and width < y.size and isDense(y.shape, y.strides, size) else 0


def pad(values: list[Value], calls: list[Call]) -> None:
    """Pad the rows of Values and their views, unless a view runs across rows or a product would have no launches."""
    before = [(v.strides, v.offset) for v in values]
    rows = {v.number: (row(v), v.dtype.itemsize * ROW_MULTIPLE) for v in values if v.base is None}
    after = [padded(v, *rows[v.root.number]) for v in values]
    if None in after:
        return
    for v, (strides, offset) in zip(values, after):  # type: ignore[misc]
        v.strides, v.offset = strides, offset
    if any(productOf(call) is None for call in calls if isProduct(call)):
        for v, (strides, offset) in zip(values, before):
            v.strides, v.offset = strides, offset


def padded(v: Value, old: int, step: int) -> tuple[tuple[int, ...], int] | None:
    """The strides and offset of a view with rows padded to a multiple of `step`; None if an axis runs across rows."""
    new = -(-old // step) * step
    end = v.offset % old + v.dtype.itemsize
    end += sum((n - 1) * s for n, s in zip(v.shape, v.strides) if s % old)
    if end > old or any(s < 0 for s in v.strides):
        return None
    return tuple([s if s % old else s // old * new for s in v.strides]), v.offset // old * new + v.offset % old
