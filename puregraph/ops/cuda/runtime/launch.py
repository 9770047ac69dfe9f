"""Launch: one launch of a kernel on a GPU, described before addresses are known.

A kernel's CUDA implementation returns a list of them. It reads only shape, dtype, strides and size of arguments: so
it serves arrays on a GPU, values of a compiled step, and numpy arrays in the emulator. What shapes the code (dtypes,
ranks, sizes of blocks) is in the text; sizes and strides are arguments, so that few texts serve many shapes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from math import gcd, prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from puregraph.ops.cuda.runtime.preprocess import dtypeOf

if TYPE_CHECKING:
    from numpy.typing import DTypeLike


WARP = 32
THREADS = 256  # default number of threads of a block
MAX_LOAD_BYTES = 16  # bytes that a thread loads at once
PROCESSORS = 132  # multiprocessors of a large GPU
BUSIEST = 1152  # threads of a multiprocessor with 56 registers each: more than half of its limit
WAVE = PROCESSORS * 8  # blocks of 256 threads that a large GPU runs at a time


class Launch(NamedTuple):
    """One launch of a kernel.

    `name`    its name in tables
    `source`  CUDA C, to follow `common.h`
    `entry`   the kernel's name there: `extern "C" __global__ void entry(...)`
    `slots`   its arguments in order, as (type, what): a "pointer" to an array, or a placeholder of one, a Scratch,
              TICKETS or a PointerTable; or an integer as "int" (32 bits), "long" (64 bits), or a "float" or "double"
    `grid`    the number of blocks along x, y and z
    `block`   the number of threads of a block, likewise
    `shared`  bytes of dynamic shared memory, which the text takes by DYNAMIC
    `cooperative`  whether its blocks wait for each other: all are resident at once, one or more per multiprocessor
    """

    name: str
    source: str
    entry: str
    slots: tuple[tuple[str, Any], ...]
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared: int = 0
    cooperative: bool = False


class Scratch:
    """Scratch memory for the launches of one list alone; the same Scratch in several slots is the same memory."""

    __slots__ = ("dtype", "shape", "strides")

    def __init__(self, shape: tuple[int, ...], dtype: DTypeLike):
        self.shape, self.dtype = tuple(shape), dtypeOf(dtype)
        self.strides = contiguous(self.shape, self.dtype.itemsize)

    @property
    def size(self) -> int:
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    def __repr__(self) -> str:
        return f"<scratch {self.dtype}{list(self.shape)}>"


class Tickets:
    """Counters that identify the last block of a launch: 0 before and after each launch."""

    __slots__ = ()
    shape, strides, size, dtype = (512,), (4,), 512, np.dtype(np.uint32)

    def __repr__(self) -> str:
        return "<tickets>"


TICKETS = Tickets()  # shared by all launches, since launches of one stream run one after the other


class PointerTable:
    """A table in memory of the addresses of arrays, and integers: int64, row after row.

    With it one launch works on any number of arrays. Its entries are integers, and arrays or placeholders of them.
    """

    __slots__ = ("columns", "dtype", "entries", "shape", "strides")

    def __init__(self, rows: Sequence[Sequence[Any]]):
        self.entries = tuple([entry for row in rows for entry in row])
        self.columns = len(rows[0])
        self.dtype, self.shape, self.strides = np.dtype(np.int64), (len(self.entries),), (8,)

    @property
    def size(self) -> int:
        return len(self.entries)

    @property
    def whats(self) -> tuple[Any, ...]:
        """The entries that have an address."""
        return tuple([entry for entry in self.entries if not isinstance(entry, int)])

    def filled(self, addressOf: Callable[[Any], int]) -> np.ndarray:
        """Its content, once all addresses are known."""
        return np.array([e if isinstance(e, int) else addressOf(e) for e in self.entries], np.uint64).view(np.int64)

    def __repr__(self) -> str:
        return f"<table of {self.size // self.columns} rows>"


def contiguous(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """The strides in bytes of a row-major array without gaps."""
    strides, step = [], itemsize
    for n in reversed(shape):
        strides.append(step)
        step *= n
    return tuple(strides[::-1])


def isContiguous(x: Any) -> bool:
    """True if an array is row-major without gaps."""
    wanted = contiguous(x.shape, x.dtype.itemsize)
    return x.size == 0 or all(n == 1 or s == w for n, s, w in zip(x.shape, x.strides, wanted))


def stridesOf(x: Any) -> tuple[int, ...]:
    """The strides of an array in elements, not bytes."""
    return tuple(stride // x.dtype.itemsize for stride in x.strides)


def blocksFor(count: int, size: int) -> int:
    """The number of blocks of a size that cover n elements; at least one, because a grid is never empty."""
    return max(1, -(-count // size))


def gridFor(count: int, threads: int = THREADS) -> tuple[int, int, int]:
    """The grid of a kernel with grid-stride loops over n elements: no more blocks than fill a
    large GPU twice."""
    return min(blocksFor(count, threads), 2 * WAVE), 1, 1


def eachOf(count: int, most: int) -> int:
    """The number of elements per thread: `most`, or half of it if `most` occupies 1/8 to 1/2 of a large GPU."""
    blocks = blocksFor(count, most * THREADS)
    return most // 2 if most > 1 and WAVE // 8 <= blocks < WAVE // 2 else most


def widest(*sizes: int) -> int:
    """The largest power of two up to 16 bytes that divides all these sizes."""
    return gcd(MAX_LOAD_BYTES, *sizes)


def divisor(by: int) -> tuple[int, int]:
    """The factor and the shift by which `quotient` of common.h divides.

    Source    Granlund and Montgomery 1994, Division by Invariant Integers using Multiplication
    """
    log = max(by - 1, 1).bit_length() if by > 1 else 1
    return -(-(1 << (31 + log)) // by) % (1 << 32), log - 1


def isDense(x: Any) -> bool:
    """True if an array has no gaps, in any order of its axes."""
    order = sorted(range(len(x.shape)), key=lambda a: (-x.strides[a], -x.shape[a]))
    wanted = contiguous(tuple([x.shape[a] for a in order]), x.dtype.itemsize)
    return x.size == 0 or all(x.shape[a] == 1 or x.strides[a] == w for a, w in zip(order, wanted))


def memories(launches: Iterable[Any]) -> Iterator[Any]:
    """The memory that launches have pointers to, and the entries of their tables."""
    for launch in launches:
        for kind, what in launch.slots:
            if kind == "pointer":
                yield what
                if isinstance(what, PointerTable):
                    yield from what.whats


def scratches(launches: Iterable[object]) -> list[Scratch]:
    """The scratch memory of launches, each once."""
    return list({id(what): what for what in memories(launches) if isinstance(what, Scratch)}.values())


def tables(launches: Iterable[object]) -> list[PointerTable]:
    """The tables that launches read, each once."""
    return list({id(what): what for what in memories(launches) if isinstance(what, PointerTable)}.values())
