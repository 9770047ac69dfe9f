"""Packing bytes: the second factor of a product of bytes, in panels of four bytes along k for each column.

A panel has `width` columns. Its lines are steps of four elements of k, signed, zeros behind the last; one more line has
the sum of each column.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from puregraph.ops.native.llvm.bytedot import BYTES, byteDot
from puregraph.ops.native.llvm.instructions import IRPointer, IRType, IRValue
from puregraph.ops.native.llvm.irbuilder import IRBuilder
from puregraph.ops.native.llvm.kernelcall import KernelCall

ONES = 0x01010101


class ByteMatrix(NamedTuple):
    """b[k, n] of `groups`; k counts taps of `channels`, each with a stride. `isSigned` says how its bytes are read."""

    what: Any
    groups: int
    k: int
    n: int
    channels: int
    strides: tuple[int, int, int, int]
    isSigned: bool

    def stepsOf(self) -> int:
        """Steps of four along k."""
        return -(-self.k // BYTES)

    def panelsOf(self, width: int) -> int:
        """Panels of one group."""
        return -(-self.n // width)

    def bytesOf(self, width: int) -> int:
        """Bytes of all panels."""
        return self.groups * self.panelsOf(width) * (self.stepsOf() + 1) * width * BYTES


def packBytes(b: ByteMatrix, to: Any, width: int, lanes: int, order: Sequence[int] | None = None) -> list[KernelCall]:
    """The kernel call that packs b; a task packs one panel, whose columns may be in another `order`."""
    isLine = b.strides[3] == 1 and order is None

    def write(code: IRBuilder) -> None:
        source, goal = code.pointer("b", "u8"), code.pointer("packed", "i32")
        k, n, channels, panels = (code.integer(name) for name in ("k", "n", "channels", "panels"))
        group, tap, channel, column = (code.integer(name) for name in ("group", "tap", "channel", "column"))
        steps = (k + (BYTES - 1)) // BYTES
        first = code.task % panels * width
        source = source.at(code.task // panels * group)
        goal = goal.at(code.task * (steps + 1) * width)
        for v in range(0, width, lanes):
            picks = code.iota(lanes) + v if order is None else constants(code, order[v : v + lanes])
            live = picks < code.splat(n - first, lanes)
            start = source.at((first + v if isLine else first) * column)
            total = code.variable(code.constant(0, IRType("i32", lanes)))
            with code.loop(0, steps, unroll=1) as step:
                value = code.constant(0, IRType("i32", lanes))
                for i in range(BYTES):
                    index = step * BYTES + i
                    isInside = code.splat(index < k, lanes) & live
                    where = start.at(index // channels * tap + index % channels * channel)
                    value = value | bytesAt(code, where, picks * column, isInside, isLine, b.isSigned) << 8 * i
                goal.store(step * width + v, value)
                total.value = byteDot(code, total.value, code.constant(ONES, value.type), value)
            goal.store(steps * width + v, total.value)

    slots = {"b": b.what, "packed": to, "k": b.k, "n": b.n, "channels": max(1, b.channels)}
    slots |= {"panels": b.panelsOf(width)} | dict(zip(("group", "tap", "channel", "column"), b.strides))
    key = f"pack bytes {width} {lanes} {isLine:d} {b.isSigned:d} {order is not None:d}"
    tasks = b.groups * b.panelsOf(width)
    return [KernelCall(f"pack bytes {b.k}x{b.n}", key, write, slots, tasks)] if tasks else []


def constants(code: IRBuilder, numbers: Sequence[int]) -> IRValue:
    """A vector of known integers."""
    of = IRType("i64", len(numbers))
    return IRValue(code, f"<{', '.join(f'i64 {number}' for number in numbers)}>", of)


def bytesAt(
    code: IRBuilder, start: IRPointer, indices: IRValue, live: IRValue, isLine: bool, isSigned: bool
) -> IRValue:
    """One byte of each column in the lower bits of a lane, as a signed number; 0 in lanes that are off."""
    values = start.load(0, live.lanes, live) if isLine else start.gather(indices, live)
    wide = code.convert(code.convert(values, "u8"), "u32")
    wide = code.convert(wide, "i32")
    return wide if isSigned else code.select(live, wide ^ 0x80, 0)
