"""Filters: the taps of a weight, each tap of several filters as a vector."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from puregraph.native.llvm.instructions import IRPointer, IRType, IRValue
from puregraph.native.llvm.irbuilder import IRBuilder
from puregraph.native.llvm.registertranspose import transposed


class FilterTaps(NamedTuple):
    """W (o, c, taps) seen from a panel: vectors go along o, or along c if `isTurned`; `inner` is how many c there are.

    A filter is known by its place along the vector and that along the other axis, on which it is at `deep`.
    """

    inner: int
    taps: int
    isTurned: bool

    @property
    def lane(self) -> int:
        """Numbers from one filter of a vector to the next."""
        return self.taps if self.isTurned else self.inner * self.taps

    @property
    def deep(self) -> int:
        """Numbers from one filter to the next on the other axis."""
        return self.inner * self.taps if self.isTurned else self.taps


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
    """Call body(i, vectors of the taps) for the filters i of a span, a multiple of `unit` of them.

    Only `left` of those of a vector there are, where that is not None.
    """
    first, stop = span
    if of.isTurned:
        isWhole = left is None
        with code.loop(first, stop, unroll=1) as i:
            source = w.at(i * of.deep)
            body(i, picked(code, source, of.taps, width) if isWhole else gathered(code, source, of, width, left))
        return
    room = code.scratch("f32", of.taps * width * width)
    whole = first + (stop - first) // width * width
    with code.loop(first, whole, width, unroll=1) as start:
        with code.loop(0, of.taps * width, width, unroll=1) as m:
            # a filter that there is not is any other: what becomes of it is never looked at
            places = [code.i64(k) if left is None else code.min(left - 1, k) for k in range(width)]
            rows = [w.at(place * of.lane + start * of.taps + m).load(0, width) for place in places]
            for k, value in enumerate(transposed(code, rows)):
                room.store((m + k) * width, value)
        with code.loop(0, width, unroll=1) as i:
            body(start + i, [room.load((i * of.taps + t) * width, width) for t in range(of.taps)])
    if unit % width == 0:
        return
    with code.loop(whole, stop, unroll=1) as i:
        body(i, gathered(code, w.at(i * of.deep), of, width, left))


def gathered(code: IRBuilder, w: IRPointer, of: FilterTaps, width: int, left: IRValue | None) -> list[IRValue]:
    """Each tap, number by number."""
    mask = None if left is None else code.mask(left, width)
    each = code.iota(width) * code.constant(of.lane, IRType("i64"))
    return [w.at(t).gather(each, mask) for t in range(of.taps)]


def picked(code: IRBuilder, w: IRPointer, taps: int, width: int) -> list[IRValue]:
    """Each tap, from the filters that lie side by side."""
    vectors = [w.load(t * width, width) for t in range(taps)]
    found = []
    for tap in range(taps):
        places = [divmod(lane * taps + tap, width) for lane in range(width)]
        joined: Any = None
        for number, vector in enumerate(vectors):
            if number in {which for which, _ in places}:
                here = [at if which == number else None for which, at in places]
                joined = taken(code, joined, vector, here)
        found.append(joined)
    return found


def taken(code: IRBuilder, old: IRValue | None, new: IRValue, places: list[int | None]) -> IRValue:
    """The old vector with the lanes that have a place filled from there in the new one."""
    width = len(places)
    if old is None:
        return code.shuffle(new, new, [0 if place is None else place for place in places])
    return code.shuffle(old, new, [lane if place is None else width + place for lane, place in enumerate(places)])
