"""The taps of filters as vectors: each tap of several filters at once, transposed from OIHW."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from puregraph.ops.native.llvm.instructions import IRPointer, IRType, IRValue
from puregraph.ops.native.llvm.irbuilder import IRBuilder
from puregraph.ops.native.llvm.registertranspose import transposed


class FilterTaps(NamedTuple):
    """W (o, c, taps) seen from a panel: vectors run along o, or along c if `isTransposed`; `inner` is the size of c.

    `lane` is the stride of filters along a vector, `deep` that along the other axis.
    """

    inner: int
    taps: int
    isTransposed: bool

    @property
    def lane(self) -> int:
        """The stride of filters along a vector, in elements."""
        return self.taps if self.isTransposed else self.inner * self.taps

    @property
    def deep(self) -> int:
        """The stride of filters on the other axis, in elements."""
        return self.inner * self.taps if self.isTransposed else self.taps


def overFilters(
    code: IRBuilder,
    of: FilterTaps,
    w: IRPointer,
    width: int,
    left: IRValue | None,
    span: tuple[IRValue, IRValue],
    unit: int,
    body: Callable[[IRValue, Sequence[IRValue]], None],
) -> None:
    """A loop that calls body(i, vectors of the taps) for the filters i of a span, a multiple of `unit` of them.

    Where `left` is not None, only that many lanes of a vector have filters.
    """
    first, stop = span
    if of.isTransposed:
        isWhole = left is None
        with code.loop(first, stop, unroll=1) as i:
            source = w.at(i * of.deep)
            body(i, picked(code, source, of.taps, width) if isWhole else gathered(code, source, of, width, left))
        return
    workspace = code.scratch(w.kind, of.taps * width * width)
    vectorEnd = first + (stop - first) // width * width
    with code.loop(first, vectorEnd, width, unroll=1) as start:
        with code.loop(0, of.taps * width, width, unroll=1) as m:
            # a lane beyond the last filter repeats it: its result is never read
            indices = [code.i64(k) if left is None else code.min(left - 1, k) for k in range(width)]
            rows = [w.at(index * of.lane + start * of.taps + m).load(0, width) for index in indices]
            for k, value in enumerate(transposed(code, rows)):
                workspace.store((m + k) * width, value)
        with code.loop(0, width, unroll=1) as i:
            body(start + i, [workspace.load((i * of.taps + t) * width, width) for t in range(of.taps)])
    if unit % width == 0:
        return
    with code.loop(vectorEnd, stop, unroll=1) as i:
        body(i, gathered(code, w.at(i * of.deep), of, width, left))


def gathered(code: IRBuilder, w: IRPointer, of: FilterTaps, width: int, left: IRValue | None) -> list[IRValue]:
    """Each tap, by a gather."""
    mask = None if left is None else code.mask(left, width)
    indices = code.iota(width) * code.constant(of.lane, IRType("i64"))
    return [w.at(t).gather(indices, mask) for t in range(of.taps)]


def picked(code: IRBuilder, w: IRPointer, taps: int, width: int) -> list[IRValue]:
    """Each tap of contiguous filters, by shuffles."""
    vectors = [w.load(t * width, width) for t in range(taps)]
    tapVectors = []
    for tap in range(taps):
        indices = [divmod(lane * taps + tap, width) for lane in range(width)]
        joined: Any = None
        for number, vector in enumerate(vectors):
            if number in {which for which, _ in indices}:
                here = [at if which == number else None for which, at in indices]
                joined = merged(code, joined, vector, here)
        tapVectors.append(joined)
    return tapVectors


def merged(code: IRBuilder, old: IRValue | None, new: IRValue, indices: list[int | None]) -> IRValue:
    """The old vector, with the lanes that have an index replaced by that lane of the new one."""
    width = len(indices)
    if old is None:
        return code.shuffle(new, new, [0 if index is None else index for index in indices])
    return code.shuffle(old, new, [lane if index is None else width + index for lane, index in enumerate(indices)])
