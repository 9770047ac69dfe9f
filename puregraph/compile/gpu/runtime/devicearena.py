"""Device arena: GPU memory of programs: one arena outside CuPy's pool, and a block of inputs from the host."""

from __future__ import annotations

import ctypes
import math
import sys
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import numpy as np

from puregraph.compile.gpu.runtime.h2d import DeviceInputs
from puregraph.compile.memory.planner import Buffer, MemoryPlan
from puregraph.compile.runtime.buffers import Buffers as HostMemory
from puregraph.ops.ir.value import ARRAYS, Value

if TYPE_CHECKING:
    from collections.abc import Sequence

    import cupy

OUTOFMEMORY = 2  # cudaErrorMemoryAllocation


def block(size: int) -> cupy.ndarray:
    """n bytes outside CuPy's pool: a captured graph may write to them at any time.

    Raises    MemoryError if there is not enough memory, even after CuPy's pool has freed its unused blocks
    """
    cupy = sys.modules["cupy"]
    try:
        memory = allocated(size)
    except MemoryError:
        cupy.get_default_memory_pool().free_all_blocks()
        memory = allocated(size)
    return cupy.ndarray((size,), np.uint8, cupy.cuda.MemoryPointer(memory, 0))


def allocated(size: int) -> cupy.cuda.Memory:
    """n bytes of the device.

    Raises    MemoryError that says how much is free
    """
    cuda = sys.modules["cupy"].cuda
    try:
        return cuda.Memory(max(size, 1))
    except cuda.runtime.CUDARuntimeError as error:
        if error.status != OUTOFMEMORY:
            raise
        free, total = cuda.runtime.memGetInfo()
        raise MemoryError(
            f"a step needs {size:,} bytes of GPU memory, {free:,} of {total:,} are free: take a smaller batch, "
            "and Trainer(accumulate=...) for steps as large as before, or calcMode for parameters of fewer bits"
        ) from None


def emptied(shape: Sequence[int], dtype: np.dtype, strides: Any) -> cupy.ndarray:
    """An uninitialized array from CuPy's pool with these strides, without gaps."""
    cupy = sys.modules["cupy"]
    size = math.prod(shape) * np.dtype(dtype).itemsize
    return cupy.ndarray(shape, dtype, cupy.cuda.alloc(size), strides)


class DeviceWorkspace:
    """Memory that several programs share, as large as the largest of them needs."""

    def __init__(self) -> None:
        self.array: Any = None
        self.users: WeakSet[Any] = WeakSet()  # the executables of the programs

    def reserve(self, size: int) -> cupy.ndarray:
        """Reserve at least n bytes; if the memory grows, all programs first release the old memory, then move.

        Raises    MemoryError if there is not enough memory
        """
        if self.array is None or size > self.array.size:
            self.array = None
            for user in self.users:
                user.release()
            self.array = block(size)
        return self.array


class DeviceBuffers(HostMemory):
    """Gives the array of every Value of a plan, and its address."""

    def __init__(self, plan: MemoryPlan, room: DeviceWorkspace, deviceInputs: DeviceInputs):
        super().__init__(plan, room)
        self.deviceInputs = deviceInputs
        self.pointers: dict[int, Any] = {}

    @property
    def isCurrent(self) -> bool:
        return self.arena is not None and super().isCurrent

    def release(self) -> None:
        """Release the memory; these buffers are no longer current."""
        self.arena = None
        self.known.clear()
        self.pointers.clear()

    def make(self, value: Value) -> cupy.ndarray:
        """The array of a Value."""
        location = self.plan.locations.get(value.root.number)
        if value.base is None and location is not None and not isinstance(location, Buffer):
            return location.array
        start = self.pointer(value.root) + value.offset
        return sys.modules["cupy"].ndarray(value.shape, value.dtype, start, value.strides)

    def address(self, value: Value) -> int:
        """The address of the first element of a Value."""
        return self.pointer(value.root).ptr + value.offset

    def pointer(self, root: Value) -> cupy.cuda.MemoryPointer:
        """The address of the first byte of a Value."""
        address = self.pointers.get(root.number)
        if address is None:
            address = self.pointers[root.number] = self.pointerOf(root)
        return address

    def pointerOf(self, root: Value) -> cupy.cuda.MemoryPointer:
        if root.number in self.known:
            return self.known[root.number].data
        if root.role in ARRAYS:
            return onDevice(root)
        if root.role in ("input", "scalar"):
            return self.deviceInputs.pointer(root)
        location = self.plan.locations[root.number]
        return self.arena.data + location.offset if isinstance(location, Buffer) else location.array.data

    def region(self, buffer: Buffer) -> tuple[int, int]:
        """The address and bytes of a buffer."""
        return self.arena.data.ptr + buffer.offset, buffer.size


def onDevice(constant: Value) -> cupy.cuda.MemoryPointer:
    """A copy of a constant on the GPU, in its layout, and the address of its first element."""
    array = constant.source
    if not array.size:
        return block(1).data
    first, end = np.lib.array_utils.byte_bounds(array)
    there = sys.modules["cupy"].asarray(np.frombuffer(ctypes.string_at(first, end - first), np.uint8))
    return there.data + (array.__array_interface__["data"][0] - first)
