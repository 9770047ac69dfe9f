"""Sums: sums of products kept in registers, rows of numbers that are repeated times vectors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from puregraph.native import machine
from puregraph.native.code import Code, Pointer, Type, Value


class Tile(NamedTuple):
    """What is summed in registers: so many rows of so many vectors of so many lanes."""

    rows: int
    vectors: int
    lanes: int

    @property
    def columns(self) -> int:
        return self.vectors * self.lanes


def tileHere(vectors: int = 2) -> Tile:
    """A tile of that many vectors that the registers of this CPU hold."""
    lanes = machine.lanes(4)
    registers = 16 if lanes == 8 else 32
    return Tile(min(8, (registers - vectors - 1) // vectors // 2 * 2), vectors, lanes)


class Rows(NamedTuple):
    """Rows of numbers in memory."""

    start: Pointer
    stride: Value

    def at(self, row: Any) -> Pointer:
        return self.start.at(row * self.stride)

    def down(self, rows: Any) -> Rows:
        """From a further row on."""
        return Rows(self.at(rows), self.stride)


def chosen(code: Code, condition: Value, x: Pointer, y: Pointer) -> Pointer:
    """One of two places."""
    one, other = (Value(code, p.name, Type("ptr")) for p in (x, y))
    return Pointer(code, code.select(condition, one, other).name, x.kind)


def sums(
    code: Code,
    lanes: int,
    count: Any,
    rows: int,
    scalar: Callable[[Value, int], Value],
    vectors: Callable[[Value], list[Value]],
    starts: list[list[Value]],
) -> list[list[Value]]:
    """starts r, u + sum over k < count of scalar k, r times vector k, u."""
    totals = [[code.variable(x) for x in row] for row in starts]
    with code.loop(0, count, 1, unroll=1) as k:
        right = vectors(k)
        for r in range(rows):
            left = code.splat(scalar(k, r), lanes)
            for total, x in zip(totals[r], right):
                total.value = code.fma(left, x, total.value)
    return [[total.value for total in row] for row in totals]
