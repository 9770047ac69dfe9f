"""Depthwise convolution of bytes: four taps of many channels at once, interleaved in registers.

For each output pixel the addresses of its taps are computed once; those outside lead to a line of zero points. Bytes of
four taps are interleaved within blocks of 128 bits, so that the sums are in another order of channels until the end;
filters are packed in that order.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from puregraph.ops.native.llvm.bytedot import BYTES, byteDot
from puregraph.ops.native.llvm.instructions import IRPointer, IRType, IRValue
from puregraph.ops.native.llvm.irbuilder import IRBuilder
from puregraph.ops.native.llvm.kernelcall import KernelCall
from puregraph.ops.native.llvm.registertranspose import LANE_ELEMENTS, exchanged
from puregraph.ops.quantized.native.byteproduct import pitchOf
from puregraph.ops.quantized.native.byterows import WindowRows, unsigned
from puregraph.ops.quantized.native.packbytes import ONES
from puregraph.ops.quantized.native.requantization import Requantization, RequantizationWriter

TASK = 1 << 15  # multiplications of a task
TABLE_TAPS = 32  # multiples of which the table of addresses is long


def blockOrder(lanes: int) -> list[int]:
    """The channel of each lane of the four vectors of sums."""
    size = LANE_ELEMENTS
    return [16 * (i // size) + size * v + i % size for v in range(BYTES) for i in range(lanes)]


def depthwiseBytes(
    name: str, rows: WindowRows, packed: Any, to: Requantization, sizes: tuple[int, int, int], lanes: int
) -> list[KernelCall]:
    """The kernel call of a convolution of each channel with its own filter; `sizes`: output pixels, channels, taps."""
    pixels, channels, taps = sizes
    spec = DepthwiseBytes(rows, to, pitchOf(channels), -(-taps // TABLE_TAPS) * TABLE_TAPS, lanes)
    step = max(1, TASK // (channels * taps))
    slots = {"packed": packed, "pixels": pixels, "maps": channels, "taps": taps, "step": step}
    return [KernelCall(name, spec.key, spec.write, slots | rows.slots | to.slots, -(-pixels // step))]


class DepthwiseBytes(NamedTuple):
    """The parameters of the code."""

    rows: WindowRows
    to: Requantization
    pitch: int
    most: int
    lanes: int

    @property
    def key(self) -> str:
        return f"depthwise bytes {self.lanes} {self.pitch} {self.most} {self.rows.key} {self.to.key}"

    def write(self, code: IRBuilder) -> None:
        """Write a task: some output pixels."""
        code.flags = ""
        packed = code.pointer("packed", "i32")
        pixels, channels, taps, step = (code.integer(name) for name in ("pixels", "maps", "taps", "step"))
        locate, ending = self.rows.openTaps(code), self.to.open(code)
        width = BYTES * self.lanes
        table, line = code.scratch("i64", self.most), code.scratch("u8", self.pitch)
        zero = code.splat(ending.fill(), width)
        with code.loop(0, channels, width, unroll=1) as v:
            line.store(v, zero)
        groups = (taps + (BYTES - 1)) // BYTES
        outside = address(code, line)
        with code.loop(taps, groups * BYTES, unroll=1) as i:
            table.store(i, outside)
        first = code.task * step
        with code.loop(first, code.min(first + step, pixels), unroll=1) as pixel:
            locate(pixel, table, outside)
            vectorized = channels // width * width
            with code.loop(0, vectorized, width, unroll=1) as v:
                self.panel(code, ending, table, packed.at(v * (groups + 1)), groups, (pixel, v), None)
            with code.when(vectorized < channels):
                start = packed.at(vectorized * (groups + 1))
                self.panel(code, ending, table, start, groups, (pixel, vectorized), channels - vectorized)

    def panel(
        self,
        code: IRBuilder,
        ending: RequantizationWriter,
        table: IRPointer,
        packed: IRPointer,
        groups: IRValue,
        where: tuple[IRValue, IRValue],
        left: IRValue | None,
    ) -> None:
        """The sums of a pixel and as many channels as a vector has bytes, of which `left` exist."""
        lanes, (pixel, channel) = self.lanes, where
        width = BYTES * lanes
        of = IRType("i32", lanes)
        live = None if left is None else bytesBelow(code, left, width)
        aZero = code.constant(128 if self.rows.isSigned else 0, IRType("i32"))
        if self.to.aZero is not None:
            aZero = ending.zeroOf("aZero", code.i64(0), 1)
        columnSums = packed.at(groups * width)
        totals = [code.variable(0 - aZero * columnSums.load(v * lanes, lanes)) for v in range(BYTES)]
        sums = [code.variable(code.constant(0, of)) for _ in range(BYTES)]
        with code.loop(0, groups, unroll=1) as group:
            bytesOf = []
            for i in range(BYTES):
                source = code.pointerTo(table.load(group * BYTES + i), "u8")
                bytesOf.append(unsigned(source.load(channel, width, live), self.rows.isSigned))
            for v, x in enumerate(interleaved(code, bytesOf)):
                totals[v].value = byteDot(code, totals[v].value, x, packed.load(group * width + v * lanes, lanes))
                if self.to.bZero is not None:
                    sums[v].value = byteDot(code, sums[v].value, x, code.constant(ONES, of))
        rowSums: list[Any] = [None] * BYTES
        if self.to.bZero is not None:
            terms = code.convert(groups * BYTES, "i32") * aZero
            rowSums = [total - terms for total in inOrder(code, [total.value for total in sums])]
        for v, total in enumerate(inOrder(code, [total.value for total in totals])):
            mask = code.mask(width - v * lanes if left is None else left - v * lanes, lanes)
            ending.put(pixel, channel + v * lanes, total, code.constant(0, of), aZero, rowSums[v], mask)


def address(code: IRBuilder, pointer: IRPointer) -> IRValue:
    """A pointer as an integer."""
    return code.emit(f"ptrtoint ptr {pointer.name} to i64", IRType("i64"))


def bytesBelow(code: IRBuilder, count: IRValue, lanes: int) -> IRValue:
    """A mask of the first `count` bytes of a vector."""
    return code.iota(lanes, "i8") < code.splat(code.convert(count, "i8"), lanes)


def interleaved(code: IRBuilder, taps: list[IRValue]) -> list[IRValue]:
    """Four vectors of bytes as four of groups of four, within blocks of 128 bits."""

    def halves(x: IRValue, y: IRValue) -> list[IRValue]:
        lanes, block = x.lanes, 16 * x.lanes // bytesIn(x)
        orders = [
            [start + i + side * lanes for start in range(0, lanes, block) for i in half for side in (0, 1)]
            for half in (range(block // 2), range(block // 2, block))
        ]
        return [code.shuffle(x, y, order) for order in orders]

    pairs = [[asKind(code, v, "i16", 2) for v in halves(*taps[i : i + 2])] for i in (0, 2)]
    return [asKind(code, v, "i32", 2) for x, y in zip(*pairs) for v in halves(x, y)]


def bytesIn(x: IRValue) -> int:
    """Bytes of a vector."""
    return x.lanes * (2 if x.kind == "i16" else 1)


def asKind(code: IRBuilder, x: IRValue, kind: str, fewer: int) -> IRValue:
    """The bits of a vector as fewer lanes of another kind."""
    of = IRType(kind, x.lanes // fewer)
    return code.emit(f"bitcast {x.type.text} {x.name} to {of.text}", of)


def inOrder(code: IRBuilder, sums: list[IRValue]) -> list[IRValue]:
    """Reorder sums by channel: each vector comes with parts of four groups of channels."""
    count = sums[0].lanes // LANE_ELEMENTS
    if count == BYTES:
        return exchanged(code, sums)
    if count == 1:
        return sums
    first, last = ([code.shuffle(sums[v], sums[v + 1], order) for v in (0, 2)] for order in ORDERS)
    return [first[0], first[1], last[0], last[1]]


ORDERS = ([0, 1, 2, 3, 8, 9, 10, 11], [4, 5, 6, 7, 12, 13, 14, 15])
