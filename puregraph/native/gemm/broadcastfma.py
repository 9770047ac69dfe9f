"""Sums: sums of products kept in registers, rows of numbers that are repeated times vectors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from puregraph.native.llvm import jit
from puregraph.native.llvm.irbuilder import IRBuilder, IRPointer, IRType, IRValue


class BroadcastTile(NamedTuple):
    """What is summed in registers: so many rows of so many vectors of so many lanes."""

    rows: int
    vectors: int
    lanes: int

    @property
    def columns(self) -> int:
        return self.vectors * self.lanes


def tileHere(vectors: int = 2) -> BroadcastTile:
    """A tile of that many vectors that the registers of this CPU hold."""
    lanes = jit.lanes(4)
    registers = 16 if lanes == 8 else 32
    return BroadcastTile(min(8, (registers - vectors - 1) // vectors // 2 * 2), vectors, lanes)


class BroadcastRows(NamedTuple):
    """Rows of numbers in memory."""

    start: IRPointer
    stride: IRValue

    def at(self, row: Any) -> IRPointer:
        return self.start.at(row * self.stride)

    def down(self, rows: Any) -> BroadcastRows:
        """From a further row on."""
        return BroadcastRows(self.at(rows), self.stride)


def chosen(code: IRBuilder, condition: IRValue, x: IRPointer, y: IRPointer) -> IRPointer:
    """One of two places."""
    one, other = (IRValue(code, p.name, IRType("ptr")) for p in (x, y))
    return IRPointer(code, code.select(condition, one, other).name, x.kind)


def sums(
    code: IRBuilder,
    lanes: int,
    count: Any,
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
