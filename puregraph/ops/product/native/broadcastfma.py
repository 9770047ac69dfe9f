"""Broadcast FMA: the register tile of kernels that multiply broadcast scalars of rows by vectors."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from puregraph.ops.native.llvm import jit
from puregraph.ops.native.llvm.instructions import SIZES, IRPointer, IRType, IRValue
from puregraph.ops.native.llvm.irbuilder import IRBuilder
from puregraph.ops.product.native.microkernel import registers


class BroadcastTile(NamedTuple):
    """A register tile: rows x vectors x lanes of accumulators of the kind `real`."""

    rows: int
    vectors: int
    lanes: int
    real: str = "f32"

    @property
    def columns(self) -> int:
        return self.vectors * self.lanes


def tileFor(vectors: int = 2, real: str = "f32") -> BroadcastTile:
    """The largest tile of `vectors` vectors a row that the registers of this CPU hold."""
    lanes = jit.lanes(SIZES[real])
    return BroadcastTile(min(8, (registers(lanes, real) - vectors - 1) // vectors // 2 * 2), vectors, lanes, real)


class BroadcastRows(NamedTuple):
    """Rows of a matrix in memory."""

    start: IRPointer
    stride: IRValue

    def at(self, row: IRValue | int) -> IRPointer:
        return self.start.at(row * self.stride)

    def down(self, rows: IRValue | int) -> BroadcastRows:
        """The rows from a later one on."""
        return BroadcastRows(self.at(rows), self.stride)


def selectPointer(code: IRBuilder, condition: IRValue, x: IRPointer, y: IRPointer) -> IRPointer:
    """x where the condition holds, else y."""
    one, other = (IRValue(code, p.name, IRType("ptr")) for p in (x, y))
    return IRPointer(code, code.select(condition, one, other).name, x.kind)


def broadcastFma(
    code: IRBuilder,
    lanes: int,
    count: IRValue | int,
    rows: int,
    scalar: Callable[[IRValue, int], IRValue],
    vectors: Callable[[IRValue], list[IRValue]],
    starts: list[list[IRValue]],
) -> list[list[IRValue]]:
    """starts r, u + sum over k < count of scalar k, r times vector k, u."""
    totals = [[code.variable(x) for x in row] for row in starts]
    with code.loop(0, count, 1, unroll=1) as k:
        right = vectors(k)
        for r in range(rows):
            left = code.splat(scalar(k, r), lanes)
            for total, x in zip(totals[r], right):
                total.value = code.fma(left, x, total.value)
    return [[total.value for total in row] for row in totals]
