"""Concurrent: consecutive independent native steps of one kind run in parallel as one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from puregraph.compile.runtime.buffers import Buffers
from puregraph.ops.ir.value import Call, Value

if TYPE_CHECKING:
    from puregraph.ops.native.llvm.kernelcall import KernelCall

MAX_PARALLEL_STEPS = 64  # most steps that run as one
MIN_PARALLEL_BYTES = 1 << 16  # bytes written by single-task steps that are worth a barrier of all threads

Range = tuple[int, int]


def concurrentSteps(calls: list[Call], memory: Buffers) -> list[list[Call]]:
    """The kernel calls of native steps in order, in lists whose calls may run at the same time."""
    groups: list[list[Call]] = []
    batch: list[Call] = []
    reads, writes = list[Range](), list[Range]()  # byte ranges of the batch, once it has two calls
    for call in calls:
        isNext = bool(batch) and len(batch) < MAX_PARALLEL_STEPS and isAlike(call, batch[0])
        if isNext and len(batch) == 1:
            reads, writes = rangesOf(batch[0].values(), memory), rangesOf(batch[0].outs, memory)
        if isNext:
            read, written = rangesOf(call.values(), memory), rangesOf(call.outs, memory)
            isNext = not (overlap(written, writes) or overlap(read, writes) or overlap(written, reads))
            reads, writes = reads + read, writes + written
        if not isNext:
            groups += scheduled(batch)
            batch = []
        batch.append(call)
    return groups + scheduled(batch)


def scheduled(batch: list[Call]) -> list[list[Call]]:
    """The kernel calls of a batch, in one list if running them together pays."""
    if len(batch) == 1:
        return [[w] for w in batch[0].function.works if w.tasks]
    works = [w for call in batch for w in call.function.works if w.tasks]
    written = sum(y.nbytes for call in batch for y in call.outs if y is not None)
    isWide = len(batch) > 1 and (written >= MIN_PARALLEL_BYTES or all(w.tasks > 1 for w in works))
    return [works] if isWide and works else [[w] for w in works]


def isAlike(a: Call, b: Call) -> bool:
    """True if two calls are one kernel call each, with the same code."""
    if not len(a.function.works) == len(b.function.works) == 1:
        return False
    (x,), (y,) = a.function.works, b.function.works
    return x.key == y.key and codeOf(x) == codeOf(y)


def codeOf(work: KernelCall) -> Any:
    """The function that generates the code of a kernel call."""
    return getattr(work.write, "func", work.write), getattr(work.write, "args", ())


def rangesOf(values: Iterable[Value], memory: Buffers) -> list[Range]:
    """The byte ranges of some Values, without inputs: no step writes to these."""
    roots = {v.root for v in values if v is not None and v.root.role != "input"}
    return [(start, start + extent(v)) for v in roots for start in [memory.address(v)]]


def extent(value: Value) -> int:
    """The bytes from the first to the last element."""
    return sum((n - 1) * abs(s) for n, s in zip(value.shape, value.strides) if n) + value.dtype.itemsize


def overlap(a: list[Range], b: list[Range]) -> bool:
    """True if any range of a overlaps one of b."""
    return any(x[0] < y[1] and y[0] < x[1] for x in a for y in b)
