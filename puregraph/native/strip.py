"""Strip: a copy of some rows of a map with their padding, so that what reads it needs to know of no border."""

from __future__ import annotations

from typing import NamedTuple

from puregraph.native import machine
from puregraph.native.code import Code, Pointer, Type, Value
from puregraph.native.geometry import Line


class Strip(NamedTuple):
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


def stripOf(rows: int, high: Line, wide: Line, depth: int) -> Strip:
    """What so many rows of outputs read."""
    return Strip(reach(high, rows), reach(wide, wide.count), depth)


def reach(line: Line, count: int) -> int:
    """From the first input that so many outputs read to the last."""
    return (count - 1) * line.stride + (len(line.taps) - 1) * line.step + 1


def copyRow(
    code: Code, strip: Strip, line: Line, x: Pointer, start: Value, pixel: int, isThere: Value, to: Pointer
) -> None:
    """One row of a strip from the row of x that begins at `start`, or zeros if it is not there."""
    lanes = machine.lanes(4)
    if pixel == strip.depth:
        before = -line.first * strip.depth
        last = code.select(isThere, code.whole(line.length * strip.depth + before), 0)
        with code.loop(0, strip.pitch, lanes, unroll=1) as j:
            at = code.steps(lanes) + code.splat(j, lanes)
            live = (at >= before) & (at < code.splat(last, lanes))
            to.store(j, x.load(start + j - before, lanes, live), at < strip.pitch)
        return
    with code.loop(0, strip.wide, unroll=1) as j:
        w = j + line.first
        live = isThere & (w >= 0) & (w < line.length)
        for c in range(strip.depth):
            number = code.variable(code.constant(0, Type("f32")))
            with code.when(live):
                number.value = x.load(start + w * pixel + c)
            to.store(j * strip.depth + c, number.value)
