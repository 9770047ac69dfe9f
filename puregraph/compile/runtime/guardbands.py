"""Guard bands: run kernels on copies of their buffers, between gaps of poison that no kernel may touch."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from puregraph.compile.memory.planner import Buffer, room
from puregraph.compile.runtime.bind import Bound
from puregraph.compile.runtime.concurrent import extent
from puregraph.compile.runtime.observer import StepObserver
from puregraph.compile.runtime.segment import Segment, keyOf
from puregraph.core.base.align import addressOf
from puregraph.core.errors import PuregraphError
from puregraph.ops.ir.value import Call, Offset, Value
from puregraph.ops.native.llvm.irbuilder import IRBuilder
from puregraph.ops.native.llvm.kernelcall import KernelCall

GAP_BYTES = 1 << 14  # bytes on either side of a buffer, and between blocks of scratch memory
PAGE_BYTES = 4096  # a copy keeps the buffer's offset in its page
FILLS = (0xFF, 0x3C)  # NaN or -1; the other is 0.0115 as float32, so that a stored NaN is detected too
ENTRY = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p)

LAYOUTS: dict[str, tuple[list[str], list[tuple[int, int]]]] = {}


class VerifyError(PuregraphError):
    """A step of a program computed a wrong result, or read or wrote outside its buffers."""


class GuardBands(StepObserver):
    """Runs the native code of a program inside guard bands, step by step.

    Raises    VerifyError naming step, nodes, kernel, buffer and bytes if a kernel leaves its buffers
    """

    gap = GAP_BYTES

    def around(self, number: int, call: Call, steps: list[Bound]) -> list[Bound]:
        for step in steps:
            if type(step.function) is Segment:
                step.function = partial(runGuarded, titleOf(number, call), step.function, written(call))
        return steps

    def aroundPacking(self, segment: Segment) -> Callable[[], None]:
        return partial(runGuarded, "packing weights", segment, [])


def titleOf(number: int, call: Call) -> str:
    """A step's name in an error: its number, its kernels and its nodes."""
    origins = dict.fromkeys(c.origin[:2] for c in (call.function.calls if call.kind.isNative else [call]))
    nodes = ", ".join(f"'{path}' ({label})" if label else f"'{path}'" for path, label in origins)
    return f"step {number} '{call.function.name if call.kind.isNative else call.name}' at {nodes}"


def written(call: Call) -> list[Value]:
    """The Values that a step writes."""
    return [y for y in call.outs if y is not None and y.base is None and y.role != "object"]


def runGuarded(title: str, segment: Segment, results: list[Value]) -> None:
    """Run the kernels of a segment inside guard bands; `title` names it in a VerifyError."""
    fault = faultOf(segment, results)
    if fault:
        raise VerifyError(f"{title}: {fault}")


class BufferExtent(NamedTuple):
    """The bytes of a buffer that a kernel uses, and its name in an error."""

    start: int
    stop: int
    name: str


class GuardedBuffer:
    """A copy of the bytes from `start` to `stop`, between two gaps; `names` are the names of its buffers."""

    def __init__(self, start: int, stop: int, names: list[str], fill: int):
        self.start, self.stop, self.names, self.fill = start, stop, names, fill
        self.memory = np.full(stop - start + 2 * GAP_BYTES + PAGE_BYTES, fill, np.uint8)
        base = addressOf(self.memory)
        self.first = GAP_BYTES + (start - base - GAP_BYTES) % PAGE_BYTES
        self.copy = self.memory[self.first : self.first + stop - start]
        ctypes.memmove(base + self.first, start, stop - start)

    def moved(self, address: int) -> int:
        """The address in the copy for an address in the buffer."""
        return address - self.start + addressOf(self.copy)

    def bytesOf(self, result: BufferExtent) -> Any:
        """The bytes of a buffer in the copy; empty if it is not in there."""
        return self.copy[max(result.start - self.start, 0) : max(result.stop - self.start, 0)]

    def overrun(self) -> str | None:
        """A description of the gap bytes that a kernel has written; None if there are none."""
        size = self.stop - self.start
        names = " and ".join(self.names)
        back = self.memory[self.first + size :]
        touched = np.flatnonzero(back != self.fill)
        if touched.size:
            last = int(touched[-1])
            return f"writes up to {last + 1:,} bytes beyond the end of {names}, which has {size:,} bytes"
        front = self.memory[: self.first]
        touched = np.flatnonzero(front != self.fill)
        if touched.size:
            return f"writes up to {self.first - int(touched[0]):,} bytes before the start of {names}"
        return None

    def store(self) -> None:
        """Copy the kernel's writes back into the buffer."""
        if ctypes.string_at(self.start, self.copy.size) != self.copy.tobytes():  # an unchanged buffer may be read-only
            ctypes.memmove(self.start, addressOf(self.copy), self.copy.size)


def faultOf(segment: Segment, results: Iterable[Value]) -> str | None:
    """Run a segment's kernels, task by task, in this thread; describes the first fault, or None.

    Each kernel runs twice, with a different fill in gaps and scratch memory. It must not write to a gap. If the bytes
    of `results` depend on the fill, it reads outside its buffers, or scratch memory that it has not written.
    """
    written = [extentFrom(v, segment.memory.address(v), segment) for v in results]
    works = [work for step in segment.steps for work in step]
    for work, (address, slots, tasks) in zip(works, segment.kernels, strict=True):
        first = (slots - addressOf(segment.slots)) // segment.slots.itemsize
        names, blocks = layoutOf(work)
        numbers = segment.slots[first : first + len(names)]
        extents = [extentOf(work.slots[name], int(number), segment) for name, number in zip(names, numbers)]
        runs = []
        for fill in FILLS:
            buffers = guarded(extents, fill)
            fault = runKernel(address, relocated(numbers, extents, buffers), tasks, blocks, fill)
            fault = fault or next(filter(None, (buffer.overrun() for buffer in buffers)), None)
            if fault:
                return f"kernel '{work.name}' {fault}"
            runs.append(buffers)
        for result in written:
            if any(a.bytesOf(result).tobytes() != b.bytesOf(result).tobytes() for a, b in zip(*runs)):
                return f"kernel '{work.name}' computes {result.name} from bytes beside its buffers, or never written"
        for buffer in runs[0]:
            buffer.store()
    return None


def layoutOf(work: KernelCall) -> tuple[list[str], list[tuple[int, int]]]:
    """The names of a kernel's slots, and (offset, bytes) of its blocks of scratch memory."""
    key = keyOf(work)
    if key not in LAYOUTS:
        code = IRBuilder(gap=GAP_BYTES)
        work.write(code)
        LAYOUTS[key] = code.slots, code.blocks
    return LAYOUTS[key]


def extentOf(argument: Any, number: int, segment: Segment) -> BufferExtent | None:
    """The buffer that a slot points into; None for an integer."""
    if isinstance(argument, (int, np.integer)):
        return None
    if isinstance(argument, np.ndarray):
        return BufferExtent(*np.lib.array_utils.byte_bounds(argument), "an array of a parameter or state")
    value, offset = argument if isinstance(argument, Offset) else (argument, 0)
    return extentFrom(value.root, number - offset - value.offset, segment)


def extentFrom(value: Value, start: int, segment: Segment) -> BufferExtent:
    """The bytes of a Value: in the arena including the gap after its last row, elsewhere up to its last element."""
    isInArena = isinstance(segment.memory.plan.locations.get(value.number), Buffer)
    return BufferExtent(start, start + (room(value) if isInArena else extent(value)), named(value))


def guarded(extents: Iterable[BufferExtent | None], fill: int) -> list[GuardedBuffer]:
    """Guarded copies of some buffers; buffers that share memory share a copy."""
    merged: list[tuple[int, int, list[str]]] = []
    for start, stop, name in sorted({e for e in extents if e is not None and e.stop > e.start}):
        if merged and start < merged[-1][1]:
            begin, end, names = merged[-1]
            merged[-1] = begin, max(end, stop), [*names, *({name} - set(names))]
        else:
            merged.append((start, stop, [name]))
    return [GuardedBuffer(*block, fill) for block in merged]


def relocated(numbers: Any, extents: list[BufferExtent | None], buffers: list[GuardedBuffer]) -> Any:
    """The slots of a kernel with the addresses of the copies."""
    slots = numbers.copy()
    for i, pointed in enumerate(extents):
        if pointed is not None and pointed.stop > pointed.start:
            buffer = next(b for b in buffers if b.start <= pointed.start < b.stop)
            slots[i] = buffer.moved(int(numbers[i]))
    return slots


def runKernel(address: int, slots: Any, tasks: int, blocks: list[tuple[int, int]], fill: int) -> str | None:
    """Run all tasks of a kernel with poisoned scratch memory; describes an overrun of a scratch block, or None."""
    kernel = ENTRY(address)
    size = max((start + size + GAP_BYTES for start, size in blocks), default=0)
    memory = np.empty(size + PAGE_BYTES, np.uint8)
    first = -addressOf(memory) % PAGE_BYTES
    scratch = memory[first : first + size]
    for task in range(tasks):
        scratch.fill(fill)
        kernel(addressOf(slots), task, addressOf(scratch))
        for i, (start, count) in enumerate(blocks):
            touched = np.flatnonzero(scratch[start + count : start + count + GAP_BYTES] != fill)
            if touched.size:
                beyond = int(touched[-1]) + 1
                return f"writes up to {beyond:,} bytes beyond scratch block {i}, which has {count:,} bytes"
    return None


def named(value: Value) -> str:
    """A Value's name in an error."""
    return f"value %{value.number} {value.name!r}" if value.name else f"value %{value.number}"
