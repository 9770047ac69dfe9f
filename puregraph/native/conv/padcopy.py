"""Strip: a copy of some rows of a map with their padding, so that what reads it needs to know of no border."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from puregraph.native.conv.geometry import AxisMap
from puregraph.native.llvm import jit
from puregraph.native.llvm.instructions import IRPointer, IRType, IRValue
from puregraph.native.llvm.irbuilder import IRBuilder


class PaddedRows(NamedTuple):
    """How large the copy is: rows of planes, pixels of rows, numbers of pixels."""

    high: int
    wide: int
    depth: int

    @property
    def pitch(self) -> int:
        """Numbers of a row."""
        return self.wide * self.depth

    @property
    def plane(self) -> int:
        """Numbers of a plane."""
        return self.high * self.pitch


def stripOf(rows: int, high: AxisMap, wide: AxisMap, depth: int) -> PaddedRows:
    """What so many rows of outputs read."""
    return PaddedRows(reach(high, rows), reach(wide, wide.count), depth)


def reach(line: AxisMap, count: int) -> int:
    """From the first input that so many outputs read to the last."""
    return (count - 1) * line.stride + (len(line.taps) - 1) * line.step + 1


def interleaveRow(
    code: IRBuilder,
    strip: PaddedRows,
    line: AxisMap,
    x: IRPointer,
    start: IRValue,
    plane: int,
    isThere: IRValue,
    to: IRPointer,
) -> None:
    """As `copyRow`, from one row of each map, which lie `plane` numbers apart, to numbers of pixels side by side."""
    lanes = jit.lanes(4)
    last = code.splat(code.select(isThere, code.i64(line.length), 0), lanes)

    def put(w: IRValue | int, isWhole: bool) -> None:
        at = code.iota(lanes) + code.splat(code.i64(w), lanes) + line.first
        live = (at >= 0) & (at < last)
        rows = [x.load(start + w + (c * plane + line.first), lanes, live) for c in range(strip.depth)]
        for v, value in enumerate(interleaved(code, rows)):
            place = w * strip.depth + v * lanes
            to.store(place, value, None if isWhole else code.mask(strip.pitch - code.i64(place), lanes))

    whole = strip.wide // lanes * lanes
    with code.loop(0, whole, lanes, unroll=1) as w:
        put(w, True)
    if whole < strip.wide:
        put(whole, False)


def interleaved(code: IRBuilder, rows: list[IRValue]) -> Iterator[IRValue]:
    """The numbers of several vectors in turn: the first ones of all, then the second ones, ..."""
    lanes, depth = rows[0].lanes, len(rows)
    for v in range(depth):
        places = [divmod(v * lanes + lane, depth) for lane in range(lanes)]
        found = rows[0]
        for c, row in enumerate(rows[1:], 1):
            before = [place if c == 1 else lane for lane, (place, _) in enumerate(places)]
            found = code.shuffle(
                found, row, [lanes + place if of == c else b for b, (place, of) in zip(before, places)]
            )
        yield found


def copyRow(
    code: IRBuilder,
    strip: PaddedRows,
    line: AxisMap,
    x: IRPointer,
    start: IRValue,
    pixel: int,
    isThere: IRValue,
    to: IRPointer,
) -> None:
    """One row of a strip from the row of x that begins at `start`, or zeros if it is not there."""
    lanes = jit.lanes(4)
    if pixel == strip.depth:
        before = -line.first * strip.depth
        last = code.select(isThere, code.i64(line.length * strip.depth + before), 0)
        with code.loop(0, strip.pitch, lanes, unroll=1) as j:
            at = code.iota(lanes) + code.splat(j, lanes)
            live = (at >= before) & (at < code.splat(last, lanes))
            to.store(j, x.load(start + j - before, lanes, live), at < strip.pitch)
        return
    with code.loop(0, strip.wide, unroll=1) as j:
        w = j + line.first
        live = isThere & (w >= 0) & (w < line.length)
        for c in range(strip.depth):
            number = code.variable(code.constant(0, IRType("f32")))
            with code.when(live):
                number.value = x.load(start + w * pixel + c)
            to.store(j * strip.depth + c, number.value)
