"""Padded copies: some rows of an image copied with their padding, so that a kernel needs no border cases."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from puregraph.ops.convolution.native.geometry import AxisMap
from puregraph.ops.native.llvm import jit
from puregraph.ops.native.llvm.instructions import SIZES, IRPointer, IRType, IRValue
from puregraph.ops.native.llvm.irbuilder import IRBuilder


class PaddedRows(NamedTuple):
    """The size of a padded copy: rows of a plane, pixels of a row, channels."""

    high: int
    wide: int
    channels: int

    @property
    def pitch(self) -> int:
        """Elements of a row."""
        return self.wide * self.channels

    @property
    def plane(self) -> int:
        """Elements of a plane."""
        return self.high * self.pitch


def paddedRows(rows: int, high: AxisMap, wide: AxisMap, channels: int) -> PaddedRows:
    """The inputs of `rows` rows of outputs."""
    return PaddedRows(inputSpan(high, rows), inputSpan(wide, wide.count), channels)


def inputSpan(line: AxisMap, count: int) -> int:
    """The number of inputs that `count` outputs span."""
    return (count - 1) * line.stride + (len(line.taps) - 1) * line.step + 1


def interleaveRow(
    code: IRBuilder,
    strip: PaddedRows,
    line: AxisMap,
    x: IRPointer,
    start: IRValue,
    plane: int,
    isInside: IRValue,
    to: IRPointer,
) -> None:
    """The same as `copyRow`, from channels `plane` elements apart (NCHW) to channels last."""
    lanes = jit.lanes(SIZES[x.kind])
    last = code.splat(code.select(isInside, code.i64(line.length), 0), lanes)

    def put(w: IRValue | int, isWhole: bool) -> None:
        at = code.iota(lanes) + code.splat(code.i64(w), lanes) + line.first
        live = (at >= 0) & (at < last)
        rows = [x.load(start + w + (c * plane + line.first), lanes, live) for c in range(strip.channels)]
        for v, value in enumerate(interleaved(code, rows)):
            index = w * strip.channels + v * lanes
            to.store(index, value, None if isWhole else code.mask(strip.pitch - code.i64(index), lanes))

    vectorEnd = strip.wide // lanes * lanes
    with code.loop(0, vectorEnd, lanes, unroll=1) as w:
        put(w, True)
    if vectorEnd < strip.wide:
        put(vectorEnd, False)


def interleaved(code: IRBuilder, rows: list[IRValue]) -> Iterator[IRValue]:
    """Several vectors interleaved: the first elements of all, then the second ones, ..."""
    lanes, channels = rows[0].lanes, len(rows)
    for v in range(channels):
        indices = [divmod(v * lanes + lane, channels) for lane in range(lanes)]
        vector = rows[0]
        for c, row in enumerate(rows[1:], 1):
            before = [index if c == 1 else lane for lane, (index, _) in enumerate(indices)]
            vector = code.shuffle(
                vector, row, [lanes + index if of == c else b for b, (index, of) in zip(before, indices)]
            )
        yield vector


def copyRow(
    code: IRBuilder,
    strip: PaddedRows,
    line: AxisMap,
    x: IRPointer,
    start: IRValue,
    pixel: int,
    isInside: IRValue,
    to: IRPointer,
) -> None:
    """A row of the copy from the row of x that begins at `start`; zeros outside."""
    lanes = jit.lanes(SIZES[x.kind])
    if pixel == strip.channels:
        before = -line.first * strip.channels
        last = code.select(isInside, code.i64(line.length * strip.channels + before), 0)
        with code.loop(0, strip.pitch, lanes, unroll=1) as j:
            at = code.iota(lanes) + code.splat(j, lanes)
            live = (at >= before) & (at < code.splat(last, lanes))
            to.store(j, x.load(start + j - before, lanes, live), at < strip.pitch)
        return
    with code.loop(0, strip.wide, unroll=1) as j:
        w = j + line.first
        live = isInside & (w >= 0) & (w < line.length)
        for c in range(strip.channels):
            element = code.variable(code.constant(0, IRType(x.kind)))
            with code.when(live):
                element.value = x.load(start + w * pixel + c)
            to.store(j * strip.channels + c, element.value)
