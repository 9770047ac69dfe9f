"""Byte rows: rows of the first factor of a product of bytes, copied to scratch memory as unsigned bytes.

A row is a line of a matrix, or the window of one output pixel of feature maps that are stored channels last, with the
zero point in place of the padding.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

from puregraph.ops.native.llvm.instructions import IRPointer, IRType, IRValue
from puregraph.ops.native.llvm.irbuilder import IRBuilder

SIGN = 0x80


class MatrixRows(NamedTuple):
    """Lines of contiguous bytes, `row` apart, of groups that are `group` apart."""

    what: Any
    row: int
    group: int
    isSigned: bool

    @property
    def key(self) -> str:
        return f"rows {self.isSigned:d}"

    @property
    def slots(self) -> dict[str, Any]:
        return {"a": self.what, "aRow": self.row, "aGroup": self.group}

    def open(self, code: IRBuilder) -> ByteCopier:
        """Read the arguments."""
        a, row, group = code.pointer("a", "u8"), code.integer("aRow"), code.integer("aGroup")

        def copy(groupIndex: IRValue, index: IRValue, k: IRValue, zero: IRValue, to: IRPointer, lanes: int) -> None:
            source = a.at(groupIndex * group + index * row)
            copyRun(code, source, k, code.i64(0), k, zero, to, lanes, self.isSigned)

        return copy


class WindowRows(NamedTuple):
    """Windows of pixels that are `pixel` bytes apart; all axes are samples, then three of space.

    `isMerged`: the taps of the last axis are contiguous, so that they are copied at once.
    """

    what: Any
    pixel: int
    channels: int
    space: tuple[int, int, int]
    outputs: tuple[int, int, int]
    size: tuple[int, int, int]
    stride: tuple[int, int, int]
    before: tuple[int, int, int]
    dilation: tuple[int, int, int]
    isSigned: bool
    isMerged: bool

    @property
    def key(self) -> str:
        return f"windows {self.isSigned:d} {self.isMerged:d}"

    @property
    def slots(self) -> dict[str, Any]:
        slots = {"a": self.what, "pixel": self.pixel, "channels": self.channels}
        for name in ("space", "outputs", "size", "stride", "before", "dilation"):
            slots |= {f"{name}{i}": value for i, value in enumerate(getattr(self, name))}
        return slots

    def openTaps(self, code: IRBuilder) -> Any:
        """Read the arguments; a function that writes the addresses of the taps of some output pixels to a table."""
        a, pixel, _ = code.pointer("a", "u8"), code.integer("pixel"), code.integer("channels")
        space, outputs, size, stride, before, dilation = (
            [code.integer(f"{name}{i}") for i in range(3)]
            for name in ("space", "outputs", "size", "stride", "before", "dilation")
        )

        def locate(first: IRValue, count: IRValue, table: IRPointer, pitch: int, outside: IRValue) -> None:
            """Taps that do not exist, up to `pitch`, are outside as well."""
            at: list[Any] = []
            index = first
            for axis in (2, 1, 0):
                at.insert(0, code.variable(index % outputs[axis]))
                index = index // outputs[axis]
            sample, behind = code.variable(index), code.variable(code.i64(0))
            step, taps = stride[2] * pixel, size[0] * size[1] * size[2]
            with code.loop(0, count, unroll=1) as i:
                to = table.at(i * pitch)
                left = at[2].value * stride[2] - before[2]
                isInner = (left >= 0) & (left + (size[2] - 1) * dilation[2] < space[2])
                isNext = isInner & (behind.value > 0)  # all taps of the pixel before are inside along the row as well
                with code.when(isNext):
                    with code.loop(0, pitch, unroll=1) as tap:
                        last = table.load((i - 1) * pitch + tap)
                        to.store(tap, code.select(last == outside, outside, last + step))
                with code.when(~isNext):
                    with code.loop(taps, pitch, unroll=1) as tap:
                        to.store(tap, outside)
                    with nested(code, size) as tap:
                        one, two, three = (at[d].value * stride[d] - before[d] + tap[d] * dilation[d] for d in range(3))
                        isInside = inside(one, space[0]) & inside(two, space[1]) & inside(three, space[2])
                        line = (sample.value * space[0] + one) * space[1] + two
                        source = a.at((line * space[2] + three) * pixel)
                        address = code.emit(f"ptrtoint ptr {source.name} to i64", IRType("i64"))
                        number = (tap[0] * size[1] + tap[1]) * size[2] + tap[2]
                        to.store(number, code.select(isInside, address, outside))
                carry = code.i64(1)
                for axis in (2, 1, 0):
                    following = at[axis].value + carry
                    isEnd = following == outputs[axis]
                    at[axis].value, carry = code.select(isEnd, 0, following), code.select(isEnd, code.i64(1), 0)
                sample.value = sample.value + carry
                behind.value = code.select(isInner & (at[2].value > 0), code.i64(1), 0)

        return locate

    def open(self, code: IRBuilder) -> ByteCopier:
        """Read the arguments."""
        a, pixel, channels = code.pointer("a", "u8"), code.integer("pixel"), code.integer("channels")
        space, outputs, size, stride, before, dilation = (
            [code.integer(f"{name}{i}") for i in range(3)]
            for name in ("space", "outputs", "size", "stride", "before", "dilation")
        )

        def copy(groupIndex: IRValue, index: IRValue, k: IRValue, zero: IRValue, to: IRPointer, lanes: int) -> None:
            at: list[IRValue] = []
            for i in (2, 1, 0):
                at.insert(0, index % outputs[i] * stride[i] - before[i])
                index = index // outputs[i]
            maps = a.at(groupIndex * channels)
            run = size[2] * channels if self.isMerged else channels
            with nested(code, [size[0], size[1], *([] if self.isMerged else [size[2]])]) as taps:
                one, two = (at[i] + taps[i] * dilation[i] for i in (0, 1))
                lastTap = code.i64(0) if self.isMerged else taps[2]
                three = at[2] + lastTap * dilation[2]
                line = (index * space[0] + one) * space[1] + two
                isInside = inside(one, space[0]) & inside(two, space[1])
                number = taps[0] * size[1] + taps[1]
                number = number if self.isMerged else number * size[2] + taps[2]
                low, high = code.i64(0), run
                if self.isMerged:
                    low = code.max(0 - three * pixel, low)
                    high = code.min(run, (space[2] - three) * pixel)
                else:
                    isInside = isInside & inside(three, space[2])
                high = code.select(isInside, high, 0)
                source = maps.at((line * space[2] + three) * pixel)
                copyRun(code, source, run, low, high, zero, to.at(number * run), lanes, self.isSigned)

        return copy


ByteCopier = Any


def inside(index: IRValue, size: IRValue) -> IRValue:
    """True if an index is within an axis."""
    return (index >= 0) & (index < size)


@contextmanager
def nested(code: IRBuilder, sizes: list[IRValue]) -> Iterator[list[IRValue]]:
    """Nested loops: their indices."""
    with ExitStack() as stack:
        yield [stack.enter_context(code.loop(0, size, unroll=1)) for size in sizes]


def copyRun(
    code: IRBuilder,
    source: IRPointer,
    run: IRValue,
    low: IRValue,
    high: IRValue,
    zero: IRValue,
    to: IRPointer,
    lanes: int,
    isSigned: bool,
) -> None:
    """Copy `run` bytes, with the zero point for those before `low` and from `high` on.

    Signed bytes get an offset of 128. Up to a vector of bytes behind the run is overwritten.
    """
    with code.loop(0, run, lanes, unroll=1) as v:
        isWhole = (low <= v) & (v + lanes <= high)
        with code.when(isWhole):
            to.store(v, unsigned(source.load(v, lanes), isSigned))
        with code.when(~isWhole):
            first, last = (code.min(code.max(x - v, 0), lanes) for x in (low, high))
            positions = code.iota(lanes, "i8")
            first, last = (code.splat(code.convert(x, "i8"), lanes) for x in (first, last))
            mask = (positions >= first) & (positions < last)
            value = code.select(mask, source.load(v, lanes, mask), code.splat(zero, lanes))
            to.store(v, unsigned(value, isSigned))


def unsigned(x: IRValue, isSigned: bool) -> IRValue:
    """Add 128 to signed bytes; unsigned ones are unchanged."""
    return x ^ x.code.constant(SIGN, IRType("u8", x.lanes)) if isSigned else x
