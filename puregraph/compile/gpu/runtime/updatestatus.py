"""Update status: what became of an optimizer's updates on a GPU, stored there, and read by the host some steps later.

A step on a GPU decides itself whether its cost and its gradients are finite, by selecting between new values and old
ones. It stores its decision in the fields of an update status, which are copied to the host behind every step. The
host reads a copy some steps later, so that it need not wait; then it takes back what it counted too much.
"""

from __future__ import annotations

import sys
from collections import deque
from typing import Any
from weakref import ref

import numpy as np

from puregraph.compile.gpu.runtime.devicearena import block
from puregraph.errors import NotFiniteError

# why updates have stopped, how many were left out so far, the last norm; by how much gradients in float16 are larger
# than they are, and how many updates were made since that changed
FIELDS = ("halt", "missed", "norm", "scale", "good")
FIRST, LEAST, MOST = 2.0**16, 1.0, 2.0**24  # of the scale
PATIENCE = 2000  # updates in a row that double it
COST, GRADIENT = 1.0, 2.0  # what was not finite; no update is made until the host has taken note
DEPTH = 8  # steps that the host may be ahead of what it has read
FLOAT = np.dtype(np.float32)


class StatusField:
    """A field, as a target that steps read and store."""

    def __init__(self, array: Any):
        self.array = array


class StatusReport:
    """A copy of the fields behind one step, in pinned memory; `count` steps were started by then.

    `slots` are those that this step updates.
    """

    def __init__(self) -> None:
        cuda, size = sys.modules["cupy"].cuda, len(FIELDS) * FLOAT.itemsize
        self.pinned = cuda.alloc_pinned_memory(size)
        self.values = np.frombuffer(self.pinned, FLOAT, len(FIELDS))
        self.event, self.count = cuda.Event(disable_timing=True), 0
        self.slots: list[Any] = []

    def take(self, memory: Any, count: int, slots: list[Any]) -> None:
        """Copy the fields once the steps before are done."""
        cuda = sys.modules["cupy"].cuda
        stream, runtime = cuda.get_current_stream(), cuda.runtime
        size, kind = len(FIELDS) * FLOAT.itemsize, runtime.memcpyDeviceToHost
        runtime.memcpyAsync(self.pinned.ptr, memory.data.ptr, size, kind, stream.ptr)
        self.event.record(stream)
        self.count, self.slots = count, slots


class UpdateStatus:
    """The fields of one optimizer, and what the host has read of them.

    `clear`   whether the next step is to go on, although updates have stopped
    `skips`   whether updates are skipped where a gradient is not finite, and training goes on
    `scale`   the scale of gradients in float16, as last read, if anything `scales` them
    """

    def __init__(self, optimizer: Any):
        self.optimizer = ref(optimizer)
        self.memory = block(len(FIELDS) * FLOAT.itemsize)
        self.memory[...] = 0
        cupy = sys.modules["cupy"]
        addresses = [self.memory.data + i * FLOAT.itemsize for i in range(len(FIELDS))]
        self.fields = {name: StatusField(cupy.ndarray((), FLOAT, at)) for name, at in zip(FIELDS, addresses)}
        self.open: deque[StatusReport] = deque()
        self.free: list[StatusReport] = []
        self.started = self.missed = self.cleared = 0
        self.clear = self.skips = self.scales = False
        self.scale = FIRST
        cupy.ndarray((1,), FLOAT, addresses[FIELDS.index("scale")])[...] = FIRST

    def __reduce__(self) -> Any:
        return type(None), ()  # a copy of an optimizer gets an update status of its own

    def begin(self, depth: int = DEPTH) -> None:
        """Before a step: read the reports that are due.

        Raises    NotFiniteError if a cost or a gradient was not, in one of the last steps; nothing was updated since
        """
        while len(self.open) >= depth:
            self.read()

    def end(self, slots: list[Any]) -> None:
        """After a step was started, which updates these slots."""
        self.clear = False
        self.started += 1
        report = self.free.pop() if self.free else StatusReport()
        report.take(self.memory, self.started, slots)
        self.open.append(report)

    def read(self) -> None:
        """Wait for the oldest report, and apply it; where updates have stopped, have the next step go on."""
        count, halt, norm = self.taken()
        optimizer: Any = self.optimizer()
        if optimizer is not None and optimizer.looks:
            optimizer.norm = norm
        if halt and count > self.cleared:
            behind = self.started - count
            self.release()
            what = "the cost" if halt == COST else "a gradient"
            error = NotFiniteError.atUpdate(type(optimizer).__name__, optimizer.step, what)
            error.behind = behind
            raise error

    def taken(self) -> tuple[int, float, float]:
        """The oldest report: how many steps were started by then, why updates have stopped, the norm."""
        report = self.open.popleft()
        report.event.synchronize()
        halt, missed, norm, self.scale, _ = report.values.tolist()
        self.free.append(report)
        self.takeBack(int(missed) - self.missed, report.slots)
        return report.count, halt, norm

    def release(self) -> None:
        """Wait for the steps that were held back, and have the next one go on."""
        while self.open:
            self.taken()
        self.cleared, self.clear = self.started, True

    def takeBack(self, count: int, slots: list[Any]) -> None:
        """Take back n updates of these slots, which the host has counted, but which were skipped."""
        optimizer: Any = self.optimizer()
        self.missed += count
        if count and optimizer is not None:
            for slot in slots:
                slot.step -= count
            optimizer.step -= count

    def sync(self) -> None:
        """Wait for all steps, and apply their reports.

        Raises    NotFiniteError if a cost or a gradient was not
        """
        while self.open:
            self.read()


def statusOf(optimizer: Any) -> UpdateStatus:
    """The update status of an optimizer."""
    if optimizer.later is None:
        optimizer.later = UpdateStatus(optimizer)
    return optimizer.later
