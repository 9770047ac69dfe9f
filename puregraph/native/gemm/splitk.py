"""Parts: sums over a long k cut into parts, which several tasks take, and the total of the parts."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from puregraph.native.llvm.irbuilder import IRBuilder, IRPointer, IRValue
from puregraph.native.llvm.kernelcall import EpilogueSpec, KernelCall

FEW = 1 << 8  # vectors of results: with fewer, a long k is cut
LONG = 4096  # the shortest k that is
SHORT = 1024  # the shortest part of it
MOST = 16  # parts
MUCH = 1 << 26  # multiplications
LARGE = 1 << 21  # results that are too many to be kept twice


def partOf(m: int, n: int, k: int, batch: int, lanes: int, overSamples: bool = False) -> int:
    """How much of k a part has: it follows from the sizes alone, so that sums do not depend on the threads.

    A large sum over samples, `x.T @ dy`, is cut in two: who made one half of the samples has them in its own cache.
    """
    if overSamples and batch == 1 and k >= SHORT and m * n <= LARGE and m * n * k >= MUCH and k * (m + n) >= 2 * m * n:
        return -(-k // 2 // lanes) * lanes
    if batch * m * -(-n // lanes) >= FEW or k < LONG:
        return k
    return -(-k // min(MOST, k // SHORT) // lanes) * lanes


def placeOf(to: Any, m: int, n: int, parts: int, batch: Sequence[int]) -> EpilogueSpec:
    """Where the sums of the parts wait: [batch][part][row][column]."""
    steps = [prod(batch[i + 1 :]) * parts * m * n for i in range(len(batch))]
    return EpilogueSpec(to, n, (*steps, m * n))


def total(place: Any, finish: EpilogueSpec, m: int, n: int, parts: int, batch: Sequence[int], lanes: int) -> KernelCall:
    """The sums of all parts, in their order, given to `finish`; a task takes some rows."""
    chunk = max(1, min(m, -(-(1 << 13) // n)))
    chunks = -(-m // chunk)

    def write(code: IRBuilder) -> None:
        start = code.pointer("parts", "f32")
        rows, columns, count, some = (code.integer(name) for name in ("m", "n", "count", "chunk"))
        sizes = [code.integer(f"batch{i}") for i in range(len(batch))]
        finish.open(code)
        blocks = (rows + some - 1) / some
        left, indices = code.task / blocks, list[IRValue]()
        start = start.at(left * count * rows * columns)
        for size in reversed(sizes):
            indices.insert(0, left % size)
            left = left / size
        if indices:
            finish.enter(code, indices)
        first = code.task % blocks * some

        def add(at: IRPointer, mask: IRValue | None = None) -> IRValue:
            sums = code.variable(at.load(0, lanes, mask))
            with code.loop(1, count, unroll=1) as part:
                sums.value = sums.value + at.load(part * rows * columns, lanes, mask)
            return sums.value

        whole = columns - columns % lanes
        with code.loop(first, code.least(first + some, rows), unroll=1) as row:
            line = start.at(row * columns)
            with code.loop(0, whole, lanes, unroll=1) as column:
                finish.put(code, row, column, add(line.at(column)))
            with code.when(whole < columns):
                mask = code.mask(columns - whole, lanes)
                finish.put(code, row, whole, add(line.at(whole), mask), mask)

    slots = {"parts": place, "m": m, "n": n, "count": parts, "chunk": chunk}
    slots |= {f"batch{i}": size for i, size in enumerate(batch)} | finish.slots
    key = f"parts {lanes} {len(batch)} {finish.key}"
    return KernelCall(f"total {parts}x{m}x{n}", key, write, slots, chunks * prod(batch))
