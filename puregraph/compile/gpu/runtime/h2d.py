"""H2D: host-to-device transfers of inputs and scalars, packed into one block with a fixed address.

Host arrays are copied to pinned memory and sent to the GPU in one transfer. A large block is sent on a separate stream
during the step before, then copied to its address at the start of its step. There are several blocks, so nothing waits
unless the host is that many steps ahead. Batches that a thread has prepared in pinned memory (`Pinner`) are sent from
there.
"""

from __future__ import annotations

import math
import sys
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary, finalize

import numpy as np

from puregraph.compile.runtime.guards import InputGuard
from puregraph.core import device
from puregraph.ops.cuda.runtime.perdevice import PerDevice
from puregraph.ops.ir.bounds import Bounds
from puregraph.ops.ir.value import Value
from puregraph.ops.native.llvm import jit

if TYPE_CHECKING:
    import cupy

    from puregraph.core.device import Array
    from puregraph.core.protocols import AnyArray

SAME_STREAM_BYTES = 1 << 17  # blocks of up to this many bytes need no separate stream
SMALL_COPY_BYTES, SMALL_COPY_BLOCKS = 1 << 20, 8  # with up to this many bytes there are more blocks
SCALAR_ALIGNMENT_BYTES = 8  # scalars start at multiples of this many bytes
INPUT_ALIGNMENT_BYTES = 512  # inputs start at multiples of this many bytes
There = tuple[bool, ...]  # for each input, whether it is on the GPU or pinned


@PerDevice
def copier() -> cupy.cuda.Stream:
    """The stream of transfers."""
    return sys.modules["cupy"].cuda.Stream(non_blocking=True)


PINNED: WeakValueDictionary[int, np.ndarray] = WeakValueDictionary()  # arrays made by Pinners, by address


class Pinner:
    """Allocates host arrays in pinned memory, in any thread, for the device of the thread that created the Pinner.

    Unreferenced memory is reused, because pinning is slow.

    `free`  unused large blocks, by size
    """

    def __init__(self) -> None:
        self.device = sys.modules["cupy"].cuda.Device()
        self.free: defaultdict[int, list[Any]] = defaultdict(list)

    def __call__(self, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        """Allocate an uninitialized array."""
        size = math.prod(shape) * np.dtype(dtype).itemsize
        free = self.free[size]
        with self.device:
            memory = free.pop() if free else pinnedMemory(size)
        buffer = np.frombuffer(memory, np.uint8, size)
        if size > SMALL_COPY_BYTES:  # smaller blocks go back to CuPy's pool
            finalize(buffer, free.append, memory).atexit = False
        made = PINNED[addressOf(buffer)] = np.ndarray(shape, dtype, buffer)
        return made


def pinnedMemory(size: int) -> cupy.cuda.PinnedMemoryPointer:
    """Long-lived pinned memory. Large blocks bypass CuPy's pool, which rounds up to a power of two."""
    cuda = sys.modules["cupy"].cuda
    return (
        cuda.alloc_pinned_memory(size)
        if size <= SMALL_COPY_BYTES
        else cuda.PinnedMemoryPointer(cuda.PinnedMemory(size), 0)
    )


def isPinned(x: AnyArray) -> bool:
    """True if a Pinner has allocated an array."""
    return type(x) is np.ndarray and PINNED.get(addressOf(x)) is x


def addressOf(x: np.ndarray) -> int:
    """The address of a host array."""
    return x.__array_interface__["data"][0]


class PinnedBlock:
    """Pinned host memory, and the GPU memory that a large block is sent to.

    `views`  the memory of each input
    `pinnedInputs`  inputs that are already pinned and are sent from their own memory, or None
    `sent`   the event after which the host memory may be written again; `used`: after which the GPU memory may be
    """

    def __init__(self, size: int, isLarge: bool):
        cuda = sys.modules["cupy"].cuda
        self.pinned = pinnedMemory(size)
        self.bytes = np.frombuffer(self.pinned, np.uint8, size)
        self.views: list[Any] = []
        self.pinnedInputs: list[Any] = []
        self.memory = cuda.Memory(size) if isLarge else None
        self.sent, self.used = cuda.Event(disable_timing=True), cuda.Event(disable_timing=True)
        self.isNew = True
        self.guards: dict[There, Callable[[], bool]] = {}

    def __del__(self) -> None:
        with suppress(Exception):  # errors when the process ends, or after a GPU fault
            if not self.isNew:
                self.sent.synchronize()  # memory that is still being read must not be reused


class DeviceInputs:
    """The GPU memory of scalars and inputs, and the transfers to it.

    `host`    the scalars for the next run
    `bounds`  the bounds of inputs that come from the host
    """

    def __init__(self, numbers: Sequence[Value], inputs: Sequence[Value], bounds: Sequence[Bounds], make: Any):
        self.offsets: dict[int, int] = {}
        end = 0
        for value in numbers:
            self.offsets[value.number] = end
            end += -(-value.nbytes // SCALAR_ALIGNMENT_BYTES) * SCALAR_ALIGNMENT_BYTES
        self.host = np.zeros(end, np.uint8)
        self.inputs, self.bounds = list(inputs), list(dict.fromkeys(bounds))
        for value in inputs:
            start = -(-end // INPUT_ALIGNMENT_BYTES) * INPUT_ALIGNMENT_BYTES
            self.offsets[value.number], end = start, start + value.nbytes
        self.size = max(end, 1)
        self.isLarge = end > SAME_STREAM_BYTES
        self.memory = make(self.size)
        self.start = self.memory.data.ptr
        self.blocks: list[PinnedBlock] = []
        self.turn = 0
        self.last = b""
        self.there: There = ()
        self.known: dict[Any, list[tuple[int, int]]] = {}

    def pointer(self, value: Value) -> cupy.cuda.MemoryPointer:
        """The address of a scalar or an input on the GPU."""
        return self.memory.data + self.offsets[value.number]

    def number(self, value: Value) -> Any:
        """The host array of a scalar; the next run reads it."""
        return self.seen(self.host, value)

    def seen(self, bytes: Any, value: Value) -> Any:
        """The bytes of a block for a Value."""
        start = self.offsets[value.number]
        return bytes[start : start + value.nbytes].view(value.dtype).reshape(value.shape)

    # A run ------------------------------------------------------------------------------------------------------------

    def fill(self, inputs: Sequence[Array]) -> PinnedBlock | None:
        """Fill the next free block with the host inputs; None if they are out of bounds."""
        there = self.there = tuple([device.isDeviceArray(x) or (self.isLarge and isPinned(x)) for x in inputs])
        if len(self.blocks) < (SMALL_COPY_BLOCKS if self.size <= SMALL_COPY_BYTES else 2):
            self.add()
            self.turn = len(self.blocks) - 1
        block = self.blocks[self.turn]
        if not block.isNew:
            block.sent.synchronize()
        block.pinnedInputs = [None] * len(there)
        for i, (view, x, isThere) in enumerate(zip(block.views, inputs, there)):
            if not isThere:
                view[...] = x
            elif type(x) is np.ndarray:
                block.pinnedInputs[i] = x
        if self.bounds:
            if there not in block.guards:
                block.guards[there] = self.guardFor(block, there)
            if not block.guards[there]():
                return None
        return block

    def put(self, block: PinnedBlock, inputs: Sequence[Array]) -> None:
        """Make the next step read these inputs and the current scalars."""
        spans = self.spans(self.there)
        stream = sys.modules["cupy"].cuda.get_current_stream()
        parts = [(start, size, block.pinned.ptr + start) for start, size in spans]
        for value, x in zip(self.inputs, block.pinnedInputs):
            if x is not None:
                parts.append((self.offsets[value.number], value.nbytes, addressOf(x)))
        if parts:
            block.bytes[: self.host.size] = self.host
            self.send(block, parts, stream)
            self.turn = (self.turn + 1) % len(self.blocks)
        for value, x, isThere, pinned in zip(self.inputs, inputs, self.there, block.pinnedInputs):
            if isThere and pinned is None:
                self.take(value, x, stream)

    def send(self, block: PinnedBlock, parts: Sequence[tuple[int, int, int]], stream: cupy.cuda.Stream) -> None:
        """Copy parts of a block, and pinned inputs beside it, to the GPU: (start, size, host address)."""
        runtime = sys.modules["cupy"].cuda.runtime
        to, isNew, block.isNew = self.start, block.isNew, False
        if block.memory is None:
            for start, size, source in parts:
                runtime.memcpyAsync(to + start, source, size, runtime.memcpyHostToDevice, stream.ptr)
            block.sent.record(stream)
            return
        copyStream = copier()
        if not isNew:
            copyStream.wait_event(block.used)
        for start, size, source in parts:
            between = block.memory.ptr + start
            runtime.memcpyAsync(between, source, size, runtime.memcpyHostToDevice, copyStream.ptr)
        block.sent.record(copyStream)
        stream.wait_event(block.sent)
        for start, size, _ in parts:
            between = block.memory.ptr + start
            runtime.memcpyAsync(to + start, between, size, runtime.memcpyDeviceToDevice, stream.ptr)
        block.used.record(stream)

    def take(self, value: Value, x: Any, stream: Any) -> None:
        """Copy an input that is on the GPU already; an empty one has no memory there."""
        if value.nbytes == 0:
            return
        runtime = sys.modules["cupy"].cuda.runtime
        x = sys.modules["cupy"].ascontiguousarray(x)
        kind = runtime.memcpyDeviceToDevice
        runtime.memcpyAsync(self.start + self.offsets[value.number], x.data.ptr, value.nbytes, kind, stream.ptr)

    # Blocks -----------------------------------------------------------------------------------------------------------

    def add(self) -> None:
        """Add a block."""
        block = PinnedBlock(self.size, self.isLarge)
        block.views = [self.seen(block.bytes, value) for value in self.inputs]
        self.blocks.append(block)

    def guardFor(self, block: PinnedBlock, there: There) -> Callable[[], bool]:
        """The guard that checks the bounds of inputs of a block that come from the host."""
        views = {v.number: view for v, view, isThere in zip(self.inputs, block.views, there) if not isThere}
        bounds = [b for b in self.bounds if b.value.root.number in views and b.value.size]

        def arrayOf(value: Value) -> Any:
            return np.ndarray(value.shape, value.dtype, views[value.root.number], value.offset, value.strides)

        if jit.available():
            guard = InputGuard(bounds, arrayOf)  # type: ignore[arg-type] # it asks for addresses alone
            return lambda: not guard()
        return lambda: all(b.holds(arrayOf(b.value)) for b in bounds)

    def spans(self, there: There) -> list[tuple[int, int]]:
        """The parts of a block to send: scalars if they have changed, and inputs that are not on the GPU."""
        numbers = self.host.tobytes()
        key = numbers != self.last, there
        self.last = numbers
        if key not in self.known:
            self.known[key] = self.parts(*key)
        return self.known[key]

    def parts(self, haveChanged: bool, there: There) -> list[tuple[int, int]]:
        """The start and size of each part to send; neighbours are merged."""
        spans = [(0, self.host.size)] if haveChanged else []
        for value, isThere in zip(self.inputs, there):
            if isThere or not value.nbytes:
                continue
            start = self.offsets[value.number]
            if spans and start - sum(spans[-1]) < INPUT_ALIGNMENT_BYTES:
                start, spans[-1:] = spans[-1][0], []
            spans.append((start, self.offsets[value.number] + value.nbytes - start))
        return spans
