"""Depthwise convolution of bytes: four taps of many channels at once, interleaved in registers.

The addresses of the taps of a task's output pixels are computed once; those outside lead to a line of zero points.
Bytes of four taps are interleaved within blocks of 128 bits, so that the sums are in another order of channels until
the end; filters are packed in that order.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from puregraph.ops.native.llvm import jit
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
MAX_PIXELS = 64  # most output pixels of a task, which has a table of addresses for all of them
HALF_COST = 0.6  # time of vectors of half the length, of that of full ones
UNROLLED_GROUPS = 7  # most groups of four taps without a loop: of 5x5 taps


def depthwiseLanes(channels: int) -> int:
    """Lanes of 32 bits of the vectors: all that there are, or half if that takes less, as of 32 channels."""
    lanes = jit.lanes(4)
    full, half = (-(-channels // (BYTES * count)) for count in (lanes, lanes // 2))
    return lanes // 2 if lanes // 2 >= LANE_ELEMENTS and HALF_COST * half < full else lanes


def blockOrder(lanes: int) -> list[int]:
    """The channel of each lane of the four vectors of sums."""
    size = LANE_ELEMENTS
    return [16 * (i // size) + size * v + i % size for v in range(BYTES) for i in range(lanes)]


def depthwiseBytes(
    name: str, rows: WindowRows, packed: Any, to: Requantization, sizes: tuple[int, int, int], lanes: int
) -> list[KernelCall]:
    """The kernel call of a convolution of each channel with its own filter; `sizes`: output pixels, channels, taps."""
    pixels, channels, taps = sizes
    spec = DepthwiseBytes(rows, to, pitchOf(channels), -(-taps // BYTES), lanes)
    step = max(1, min(MAX_PIXELS, TASK // (channels * taps)))
    slots = {"packed": packed, "pixels": pixels, "maps": channels, "step": step}
    return [KernelCall(name, spec.key, spec.write, slots | rows.slots | to.slots, -(-pixels // step))]


class DepthwiseBytes(NamedTuple):
    """The parameters of the code; `groups` of four taps."""

    rows: WindowRows
    to: Requantization
    pitch: int
    groups: int
    lanes: int

    @property
    def key(self) -> str:
        return f"depthwise bytes {self.lanes} {self.pitch} {self.groups} {self.rows.key} {self.to.key}"

    def write(self, code: IRBuilder) -> None:
        """Write a task: some output pixels."""
        code.flags = ""
        packed = code.pointer("packed", "i32")
        pixels, channels, step = (code.integer(name) for name in ("pixels", "maps", "step"))
        locate, ending = self.rows.openTaps(code), self.to.open(code)
        width, most = BYTES * self.lanes, BYTES * self.groups
        table, line = code.scratch("i64", MAX_PIXELS * most), code.scratch("u8", self.pitch)
        zero = code.splat(ending.fill(), width)
        with code.loop(0, channels, width, unroll=1) as v:
            line.store(v, zero)
        first = code.task * step
        count = code.min(pixels - first, step)
        locate(first, count, table, most, address(code, line))
        vectorized = channels // width * width
        with code.loop(0, vectorized, width, unroll=1) as v:
            self.panel(code, ending, table, packed.at(v * (self.groups + 1)), (first, count, v), None)
        with code.when(vectorized < channels):
            start, rest = packed.at(vectorized * (self.groups + 1)), channels - vectorized
            self.panel(code, ending, table, start, (first, count, vectorized), rest)

    def panel(
        self,
        code: IRBuilder,
        ending: RequantizationWriter,
        table: IRPointer,
        packed: IRPointer,
        where: tuple[IRValue, IRValue, IRValue],
        left: IRValue | None,
    ) -> None:
        """The sums of some pixels and as many channels as a vector has bytes, of which `left` exist."""
        lanes, (first, count, channel) = self.lanes, where
        width = BYTES * lanes
        nothing = code.constant(0, IRType("i32", lanes))
        aZero = ending.aZero(code.i64(0), self.rows.isSigned)
        columnSums = packed.at(self.groups * width)
        starts = [0 - aZero * columnSums.load(v * lanes, lanes) for v in range(BYTES)]
        live = None if left is None else bytesBelow(code, left, width)
        vectors = []
        for v in range(BYTES):
            mask = code.mask(width - v * lanes if left is None else left - v * lanes, lanes)
            vectors.append(ending.columns(channel + v * lanes, nothing, aZero, mask))
        with code.loop(0, count, unroll=1) as pixel:
            totals = [code.variable(start) for start in starts]
            sums = [code.variable(nothing) for _ in range(BYTES)]
            taps = table.at(pixel * (BYTES * self.groups))
            for group in self.groupsOf(code):
                bytesOf = []
                for i in range(BYTES):
                    source = code.pointerTo(taps.load(group * BYTES + i), "u8")
                    bytesOf.append(unsigned(source.load(channel, width, live), self.rows.isSigned))
                for v, x in enumerate(interleaved(code, bytesOf)):
                    totals[v].value = byteDot(code, totals[v].value, x, packed.load(group * width + v * lanes, lanes))
                    if self.to.bZero is not None:
                        ones = code.constant(ONES, nothing.type)
                        sums[v].value = byteDot(code, sums[v].value, x, ones)
            rowSums: list[Any] = [None] * BYTES
            if self.to.bZero is not None:
                terms = BYTES * self.groups * aZero
                rowSums = [total - terms for total in inOrder(code, [total.value for total in sums])]
            for v, total in enumerate(inOrder(code, [total.value for total in totals])):
                ending.put(first + pixel, vectors[v], total, aZero, rowSums[v])

    def groupsOf(self, code: IRBuilder) -> Iterator[Any]:
        """The groups of taps, in a loop if they are many."""
        if self.groups <= UNROLLED_GROUPS:
            yield from range(self.groups)
            return
        with code.loop(0, self.groups, unroll=1) as group:
            yield group


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
