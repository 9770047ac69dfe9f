"""Update status: the outcome of an optimizer's updates, stored on the GPU and read by the host some steps later.

A step on a GPU checks its cost and gradients itself and selects between new and old values. It stores the decision in
the fields of an update status, which are copied to the host after every step. The host reads a copy some steps later,
so that it does not wait, and then takes back the count of skipped updates.
"""

from __future__ import annotations

import sys
from collections import deque
from typing import TYPE_CHECKING, Any
from weakref import ref

import numpy as np

from puregraph.compile.gpu.runtime.devicearena import block
from puregraph.core.errors import NotFiniteError

if TYPE_CHECKING:
    from puregraph.core.protocols import AnyArray
    from puregraph.optimizers.optimizer import Optimizer
    from puregraph.optimizers.slot import Slot

# halt: why updates have stopped; missed: number of skipped updates; norm: the last norm; scale: the loss scale of
# float16 gradients; good: number of updates since the scale changed
FIELDS = ("halt", "missed", "norm", "scale", "good")
FIRST_SCALE, MIN_SCALE, MAX_SCALE = 2.0**16, 1.0, 2.0**24  # bounds of the scale
UPDATES_PER_DOUBLING = 2000  # consecutive updates after which the scale doubles
COST, GRADIENT = 1.0, 2.0  # values of halt: what was not finite; updates stop until the host has read it
MAX_STEPS_AHEAD = 8  # most steps that the host may be ahead of its last report
FLOAT = np.dtype(np.float32)


class StatusField:
    """A field as a target that steps read and store."""

    def __init__(self, array: AnyArray):
        self.array = array


class StatusReport:
    """A copy of the fields after one step, in pinned memory; `count` steps had been started by then.

    `slots` are the slots that this step updates.
    """

    def __init__(self) -> None:
        cuda, size = sys.modules["cupy"].cuda, len(FIELDS) * FLOAT.itemsize
        self.pinned = cuda.alloc_pinned_memory(size)
        self.values = np.frombuffer(self.pinned, FLOAT, len(FIELDS))
        self.event, self.count = cuda.Event(disable_timing=True), 0
        self.slots: list[Slot] = []

    def take(self, memory: Any, count: int, slots: list[Slot]) -> None:
        """Copy the fields after all previous steps."""
        cuda = sys.modules["cupy"].cuda
        stream, runtime = cuda.get_current_stream(), cuda.runtime
        size, kind = len(FIELDS) * FLOAT.itemsize, runtime.memcpyDeviceToHost
        runtime.memcpyAsync(self.pinned.ptr, memory.data.ptr, size, kind, stream.ptr)
        self.event.record(stream)
        self.count, self.slots = count, slots


class UpdateStatus:
    """The fields of one optimizer, and their contents as last read by the host.

    `clear`   whether the next step resumes updates that have stopped
    `skips`   whether an update with a gradient that is not finite is skipped, and training goes on
    `scale`   the loss scale as last read, if float16 gradients are scaled (`scales`)
    """

    def __init__(self, optimizer: Optimizer):
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
        self.scale = FIRST_SCALE
        cupy.ndarray((1,), FLOAT, addresses[FIELDS.index("scale")])[...] = FIRST_SCALE

    def __reduce__(self) -> tuple:
        return type(None), ()  # a copied optimizer gets a new update status

    def begin(self, depth: int = MAX_STEPS_AHEAD) -> None:
        """Read the reports that are due before a step.

        Raises    NotFiniteError if a cost or gradient of a recent step was not finite; there were no updates since
        """
        while len(self.open) >= depth:
            self.read()

    def end(self, slots: list[Slot]) -> None:
        """Add a report after a step that updates these slots has been started."""
        self.clear = False
        self.started += 1
        report = self.free.pop() if self.free else StatusReport()
        report.take(self.memory, self.started, slots)
        self.open.append(report)

    def read(self) -> None:
        """Wait for the oldest report and apply it; if updates have stopped, let the next step resume and raise."""
        count, halt, norm = self.taken()
        optimizer: Any = self.optimizer()
        if optimizer is not None and optimizer.needsNorm:
            optimizer.norm = norm
        if halt and count > self.cleared:
            behind = self.started - count
            self.release()
            what = "the cost" if halt == COST else "a gradient"
            error = NotFiniteError.atUpdate(type(optimizer).__name__, optimizer.step, what)
            error.behind = behind
            raise error

    def taken(self) -> tuple[int, float, float]:
        """Take the oldest report: the number of steps started by then, why updates have stopped, the norm."""
        report = self.open.popleft()
        report.event.synchronize()
        halt, missed, norm, self.scale, _ = report.values.tolist()
        self.free.append(report)
        self.takeBack(int(missed) - self.missed, report.slots)
        return report.count, halt, norm

    def release(self) -> None:
        """Wait for the started steps, and let the next one resume updates."""
        while self.open:
            self.taken()
        self.cleared, self.clear = self.started, True

    def takeBack(self, count: int, slots: list[Slot]) -> None:
        """Uncount n updates of these slots that the host has counted but that were skipped."""
        optimizer: Any = self.optimizer()
        self.missed += count
        if count and optimizer is not None:
            for slot in slots:
                slot.step -= count
            optimizer.step -= count

    def sync(self) -> None:
        """Wait for all steps, and apply their reports.

        Raises    NotFiniteError if a cost or a gradient was not finite
        """
        while self.open:
            self.read()


def statusOf(optimizer: Any) -> UpdateStatus:
    """The update status of an optimizer."""
    if optimizer.later is None:
        optimizer.later = UpdateStatus(optimizer)
    return optimizer.later
