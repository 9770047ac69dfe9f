"""Buffers: the arrays of a step's Values, in the arena, in external targets, or in inputs."""

from __future__ import annotations

import ctypes
from bisect import bisect_left
from typing import TYPE_CHECKING, Any

import numpy as np

from puregraph.compile.memory.outputs import StepOutput
from puregraph.compile.memory.planner import Buffer, MemoryPlan, room
from puregraph.core.base.align import addressOf
from puregraph.core.base.mutex import Mutex
from puregraph.core.errors import PuregraphError
from puregraph.ops.ir.value import ARRAYS, Value, changed
from puregraph.ops.native.threads.pages import AlignedBlock

if TYPE_CHECKING:
    from puregraph.compile.gpu.runtime.devicearena import DeviceWorkspace
    from puregraph.core.device import Array


class Workspace(Mutex):
    """Memory that several programs share, as large as the largest of them needs; `device` has the GPU's memory.

    A run holds its lock until the results have been copied out.
    """

    def __init__(self) -> None:
        super().__init__()
        self.array = alignedBytes(0)
        self.device: DeviceWorkspace | None = None

    def reserve(self, size: int) -> np.ndarray:
        """Reserve at least n bytes; if the memory grows, all programs move to the new one."""
        if size > self.array.size:
            self.array = alignedBytes(size)
        return self.array

    def abandon(self) -> None:
        """Drop this memory: an interrupted step has left it, and the packed weights, half written."""
        super().abandon()
        self.array = alignedBytes(self.array.size)

    def refusal(self) -> PuregraphError:
        """The error for a signal handler or a rule that runs a program during that program's own run."""
        return PuregraphError(
            "this program, or another one of its graph, is running in this very thread: a signal's handler, or a "
            "rule, that runs in the middle of a run cannot run it again; have the handler note what it wants, and do "
            "that between two runs"
        )


class Buffers:
    """Gives the array of every Value of a plan.

    `arena`  the planned memory, as bytes
    `known`  the arrays made so far, by Value number; scalars and inputs have memory outside the arena
    """

    def __init__(self, plan: MemoryPlan, workspace: Workspace | DeviceWorkspace):
        self.plan, self.workspace = plan, workspace
        self.arena: Any = workspace.reserve(plan.bytes)
        self.known: dict[int, Array] = {v.number: target.array for target, v in plan.schedule.held}
        self.starts: dict[int, int] = {}
        targets = [t.array for t, _ in (*plan.schedule.held, *plan.schedule.stores)]
        owned = {addressOf(a): addressOf(a) + a.nbytes for a in (self.arena, *targets) if isinstance(a, np.ndarray)}
        self.begins = sorted(owned)
        self.ends = [owned[begin] for begin in self.begins]

    def isOwn(self, begin: int, end: int) -> bool:
        """True if bytes are in memory that a run may write to: the arena, parameters, states, gradients."""
        i = bisect_left(self.begins, end)
        return i > 0 and self.ends[i - 1] > begin

    @property
    def isCurrent(self) -> bool:
        """True if the workspace has not moved."""
        return self.arena is self.workspace.array

    def __call__(self, value: Value) -> Array:
        array = self.known.get(value.number)
        if array is None and value.number in self.plan.ownOutputs:
            return self.plan.ownOutputs[value.number].array
        if array is None:
            array = self.known[value.number] = self.make(value)
        return array

    def make(self, value: Value) -> Array:
        """Make the array of a Value; a view is made by its call in the schedule."""
        if value.base is not None and value.call is not None:
            call = value.call
            arguments = [changed(a, self) for a in call.arguments]
            return call.function(*arguments, **{k: changed(a, self) for k, a in call.options.items()})
        if value.role in ARRAYS:
            return value.source
        if value.role == "scalar":
            return np.zeros(value.shape, value.dtype)
        if value.role == "input":  # pages take no memory until they are written
            return np.ndarray(value.shape, value.dtype, alignedBytes(room(value)), 0, value.strides)
        location = self.plan.locations[value.number]
        if isinstance(location, Buffer):
            return np.ndarray(value.shape, value.dtype, self.arena, location.offset, value.strides)
        return location.array

    def address(self, value: Value) -> int:
        """The address of the first element of a Value."""
        root = value.root
        start = self.starts.get(root.number)
        if start is None:
            self.starts[root.number] = start = self.startOf(root)
        return start + value.offset

    def startOf(self, root: Value) -> int:
        """The address of the first byte of a Value."""
        location = self.plan.locations.get(root.number)
        if isinstance(location, Buffer):
            return addressOf(self.arena) + location.offset
        return location.start if isinstance(location, StepOutput) else addressOf(self(root))

    def region(self, buffer: Buffer) -> Any:
        """The bytes of a buffer."""
        return self.arena[buffer.offset : buffer.offset + buffer.size]


def alignedBytes(size: int) -> np.ndarray:
    """n zero bytes that start at a page, or at a huge page if they fill one."""
    block = AlignedBlock(size)
    return np.frombuffer(block.map, np.uint8, size, block.address - ctypes.addressof(block.start))
