"""Inputs: pass an input to its readers, without a copy if possible."""

from __future__ import annotations

from collections.abc import Container
from typing import TYPE_CHECKING, Any

from puregraph.compile.runtime.bind import Bound
from puregraph.compile.runtime.buffers import Buffers
from puregraph.core.base.align import addressOf, empty
from puregraph.ops.ir.strides import isContiguous, sameStrides
from puregraph.ops.ir.value import Value

if TYPE_CHECKING:
    from puregraph.compile.trace.schedule import Schedule
    from puregraph.core.device import Array

COPIED_INPUT_BYTES = 1 << 14  # an input of up to this many bytes is copied
COPIED_BYTES_PER_READER = 1 << 11  # and so much more for each reader


class StepInput:
    """An input of a step.

    `views`   the Values in its memory, in order
    `readers` (list, index, Value) of every argument of a call that is the input or a view of it
    `patches` (slots, index, Value, bytes) of every native argument that is an address in the input
    `fixed`   True if some reader cannot be given a new array; the input is then copied to a fixed address
    `isRead`  False if the step needs only the input's shape
    """

    def __init__(self, value: Value, memory: Buffers):
        self.value, self.memory = value, memory
        self.array = memory(value)
        self.views: list[Value] = []
        self.readers: list[tuple[list, int, Value]] = []
        self.patches: list[tuple[list, int, Value, int]] = []
        self.fixed, self.isRead = False, True
        self.isRowMajor = isContiguous(value.shape, value.strides, value.dtype.itemsize)

    def chooseCopy(self, kept: Container[int]) -> None:
        """Choose whether to copy the input, once its readers are known; `kept` are Values read after the step."""
        readers = len(self.patches) + len(self.readers) + len(self.views)
        self.isRead = self.fixed or readers > 0 or self.value.number in kept
        self.fixed = self.fixed or self.value.nbytes <= COPIED_INPUT_BYTES + COPIED_BYTES_PER_READER * readers

    def put(self, x: Array) -> None:
        """Make the calls read this array."""
        if not self.isRead:
            return
        if self.fixed:
            self.array[...] = x
            return
        known, flags, start = self.memory.known, x.flags, addressOf(x)
        isLaidOut = flags.c_contiguous if self.isRowMajor else sameStrides(x.shape, x.strides, self.value.strides)
        isFit = isLaidOut and flags.aligned and not self.memory.isOwn(start, start + x.nbytes)
        if not isFit:  # inputs must not be in memory that the run writes to
            source, x = x, empty(self.value.shape, self.value.dtype, self.value.strides)
            x[...] = source
            start = addressOf(x)
        known[self.value.number] = x
        for slots, i, v, bytes in self.patches:
            slots[i] = start + v.offset + bytes
        for v in self.views:
            known[v.number] = self.memory.make(v)
        for arguments, i, v in self.readers:
            arguments[i] = known[v.number]

    def release(self) -> None:
        """Drop the array of the last run."""
        if not self.isRead or self.fixed:
            return
        known = self.memory.known
        known[self.value.number] = self.array
        for v in self.views:
            known.pop(v.number, None)
        for arguments, i, _ in self.readers:
            arguments[i] = None


def stepInputs(schedule: Schedule, memory: Buffers, steps: list[Bound]) -> list[StepInput]:
    """Make a StepInput for each input, with all its readers."""
    entries = {v.number: StepInput(v, memory) for v in schedule.inputs}
    for call in schedule.calls:
        for y in call.outs if call.kind.isView else ():
            if y.base.number in entries:
                entries[y.base.number].views.append(y)
    inputsById = {}
    for entry in entries.values():
        for v in (entry.value, *entry.views):
            inputsById[id(memory(v))] = entry, v
    for step in steps:
        note(step.arguments, inputsById)
        fix([*step.options.values()], inputsById)
    return [entries[v.number] for v in schedule.inputs]


def note(arguments: list, inputsById: dict[int, Any]) -> None:
    """Note the readers in a list of arguments and in nested lists."""
    for i, a in enumerate(arguments):
        if id(a) in inputsById:
            entry, value = inputsById[id(a)]
            entry.readers.append((arguments, i, value))
        elif type(a) is list:
            note(a, inputsById)
        elif type(a) is tuple:
            fix(a, inputsById)


def fix(parts: Any, inputsById: dict[int, Any]) -> None:
    """Mark inputs that occur where their array cannot be replaced."""
    for a in parts:
        if id(a) in inputsById:
            inputsById[id(a)][0].fixed = True
        elif type(a) in (tuple, list):
            fix(a, inputsById)
