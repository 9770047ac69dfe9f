"""D2H: device-to-host transfers of results, which the host reads some runs later without waiting for the GPU.

Results are copied to pinned host memory after the run that computes them. Small ones use the run's stream, before the
next run overwrites them. Large ones are copied on the GPU first, then transferred on a separate stream during the next
run.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from puregraph.compile.gpu.runtime.devicearena import emptied
from puregraph.compile.gpu.runtime.h2d import SAME_STREAM_BYTES
from puregraph.core import device
from puregraph.ops.cuda.runtime.perdevice import PerDevice
from puregraph.ops.ir.strides import isDense

if TYPE_CHECKING:
    import cupy


MAX_PINNED_BYTES = 1 << 28  # most bytes of a pinned array; larger ones are copied synchronously
ALIGNMENT_BYTES = 64  # arrays start at multiples of this many bytes


@PerDevice
def sender() -> cupy.cuda.Stream:
    """The stream of large transfers."""
    return sys.modules["cupy"].cuda.Stream(non_blocking=True)


class DeviceResults:
    """Results that are being copied from a GPU to the host; host arrays and other values are unchanged.

    `nbytes`  bytes of host memory that they take
    """

    def __init__(self, arrays: Iterable[Any]):
        self.arrays, self.nbytes = list(arrays), 0
        self.event: Any = None
        self.sources: list[Any] = []  # kept alive until the event occurs
        there = {id(x): x for x in self.arrays if device.isDeviceArray(x)}
        if there:
            hostArrays = self.sent(there)
            self.arrays = [hostArrays.get(id(x), x) for x in self.arrays]

    def sent(self, there: dict[int, Any]) -> dict[int, Any]:
        """Start the transfers; returns the host arrays that will hold the results."""
        cuda = sys.modules["cupy"].cuda
        hostArrays = {i: device.toHost(x) for i, x in there.items() if x.nbytes > MAX_PINNED_BYTES}
        sources = {i: dense(x) for i, x in there.items() if i not in hostArrays}
        stream = carrier = cuda.get_current_stream()
        if sum(x.nbytes for x in sources.values()) > SAME_STREAM_BYTES:
            sources, carrier = {i: copied(x, stream) for i, x in sources.items()}, sender()
            made = cuda.Event(disable_timing=True)
            made.record(stream)
            carrier.wait_event(made)
        starts = {}
        for i, x in sources.items():
            starts[i] = self.nbytes
            self.nbytes += max(-(-x.nbytes // ALIGNMENT_BYTES), 1) * ALIGNMENT_BYTES
        if sources:
            pinned = cuda.alloc_pinned_memory(self.nbytes)  # goes back to CuPy's pool when no array refers to it
            buffer = np.frombuffer(pinned, np.uint8, self.nbytes)
        for i, x in sources.items():
            if x.nbytes:
                kind = cuda.runtime.memcpyDeviceToHost
                cuda.runtime.memcpyAsync(pinned.ptr + starts[i], x.data.ptr, x.nbytes, kind, carrier.ptr)
            hostArrays[i] = np.ndarray(x.shape, x.dtype, buffer, starts[i], x.strides)
        self.event, self.sources = cuda.Event(disable_timing=True), list(sources.values())
        self.event.record(carrier)
        return hostArrays

    def read(self, copy: bool = False) -> list[np.ndarray]:
        """Wait for the transfers and return all results on the host; with `copy` not in pinned memory."""
        if self.event is not None:
            self.event.synchronize()
            self.event, self.sources = None, []
        return [np.array(x) for x in self.arrays] if copy and self.nbytes else self.arrays

    def __del__(self) -> None:
        with suppress(Exception):  # errors when the process ends, or after a GPU fault
            self.read()  # memory that is still being written must not be reused


def dense(x: Any) -> Any:
    """An array without gaps."""
    return x if isDense(x.shape, x.strides, x.dtype.itemsize) else sys.modules["cupy"].ascontiguousarray(x)


def copied(x: Any, stream: Any) -> cupy.ndarray:
    """A copy that the next run does not write to."""
    made, runtime = emptied(x.shape, x.dtype, x.strides), sys.modules["cupy"].cuda.runtime
    if x.nbytes:
        runtime.memcpyAsync(made.data.ptr, x.data.ptr, x.nbytes, runtime.memcpyDeviceToDevice, stream.ptr)
    return made
