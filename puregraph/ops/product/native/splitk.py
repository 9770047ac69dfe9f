"""Split-k: a long k is cut into parts that are summed by different tasks, and the partial sums are added."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING

from puregraph.core.opensize import decided, isOpen, largest, sized, smallest
from puregraph.ops.native.llvm.instructions import IRPointer, IRValue
from puregraph.ops.native.llvm.irbuilder import IRBuilder
from puregraph.ops.native.llvm.kernelcall import EpilogueSpec, KernelCall

if TYPE_CHECKING:
    from typing import Any

    from puregraph.core.protocols import Strided

FEW_VECTORS = 1 << 8  # vectors of results; with fewer, a long k is split
LONG_K = 4096  # the shortest k that is split
SHORTEST_PART = 1024  # shortest part of k
MOST_PARTS = 16  # maximum number of parts
MANY_PRODUCTS = 1 << 26  # fewest multiplications for which a sum over samples is split
LARGE_RESULT = 1 << 21  # maximum number of results of such a sum: two partial sums of more take too much memory


@decided
def splitSize(m: int, n: int, k: int, batch: int, lanes: int, overSamples: bool = False) -> int:
    """The length of a part of k: it follows from the sizes alone, so that sums do not depend on the threads.

    A large sum over samples, `x.T @ dy`, is split in two: a core has the samples that it computed in its own cache.
    """
    if (
        overSamples
        and batch == 1
        and k >= SHORTEST_PART
        and m * n <= LARGE_RESULT
        and m * n * k >= MANY_PRODUCTS
        and k * (m + n) >= 2 * m * n
    ):
        return -(-k // 2 // lanes) * lanes
    if batch * m * -(-n // lanes) >= FEW_VECTORS or k < LONG_K:
        return k
    return -(-k // min(MOST_PARTS, k // SHORTEST_PART) // lanes) * lanes


def partialsSize(batch: int, m: int, n: int, k: int, part: int) -> int:
    """The number of partial sums; 0 if k is not split. Open sizes may split it, and have memory for one at least."""
    size = decidedSize(batch, m, n, k, part)
    return largest(1, size) if isOpen(size) else size


@decided
def decidedSize(batch: int, m: int, n: int, k: int, part: int) -> int:
    """The number of partial sums for some sizes."""
    return batch * -(-k // part) * m * n if part < k else 0


def partialSums(partials: Strided, m: int, n: int, parts: int, batch: Sequence[int], real: str = "f32") -> EpilogueSpec:
    """The epilogue that stores partial sums as [batch][part][row][column]."""
    steps = [prod(batch[i + 1 :]) * parts * m * n for i in range(len(batch))]
    return EpilogueSpec(partials, n, (*steps, m * n), real)


def reduceParts(
    partials: Any,
    epilogue: EpilogueSpec,
    m: int,
    n: int,
    parts: int,
    batch: Sequence[int],
    lanes: int,
    real: str = "f32",
) -> KernelCall:
    """The partial sums added in their order and given to the epilogue; a task has some rows."""
    chunk = largest(1, smallest(m, -(-(1 << 13) // n)))
    chunks = -(-m // chunk)

    def write(code: IRBuilder) -> None:
        start = code.pointer("parts", real)
        rows, columns, count, rowsEach = (code.integer(name) for name in ("m", "n", "count", "chunk"))
        sizes = [code.integer(f"batch{i}") for i in range(len(batch))]
        epilogue.open(code)
        blocks = (rows + rowsEach - 1) / rowsEach
        left, indices = code.task / blocks, list[IRValue]()
        start = start.at(left * count * rows * columns)
        for size in reversed(sizes):
            indices.insert(0, left % size)
            left = left / size
        if indices:
            epilogue.enter(code, indices)
        first = code.task % blocks * rowsEach

        def add(at: IRPointer, mask: IRValue | None = None) -> IRValue:
            sums = code.variable(at.load(0, lanes, mask))
            with code.loop(1, count, unroll=1) as part:
                sums.value = sums.value + at.load(part * rows * columns, lanes, mask)
            return sums.value

        vectorEnd = columns - columns % lanes
        with code.loop(first, code.min(first + rowsEach, rows), unroll=1) as row:
            line = start.at(row * columns)
            with code.loop(0, vectorEnd, lanes, unroll=1) as column:
                epilogue.put(code, row, column, add(line.at(column)))
            with code.when(vectorEnd < columns):
                mask = code.mask(columns - vectorEnd, lanes)
                epilogue.put(code, row, vectorEnd, add(line.at(vectorEnd), mask), mask)

    slots = {"parts": partials, "m": m, "n": n, "count": parts, "chunk": chunk}
    slots |= {f"batch{i}": size for i, size in enumerate(batch)} | epilogue.slots
    key = f"parts {lanes} {real} {len(batch)} {epilogue.key}"
    return KernelCall(sized("total {}x{}x{}", parts, m, n), key, write, slots, chunks * prod(batch))
