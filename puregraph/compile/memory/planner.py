"""Planner: choose the address of every value of a step, in one arena or outside of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from puregraph.compile.ir.external import GradientOf, ReshapedTarget
from puregraph.compile.memory.aliasing import isSame, overwritable
from puregraph.compile.memory.arena import BufferOrder, arranged
from puregraph.compile.memory.outputs import StepOutput
from puregraph.ops.ir.strides import isContiguous, isDense, sameStrides
from puregraph.ops.ir.value import Value

if TYPE_CHECKING:
    from puregraph.compile.ir.external import StoreTarget
    from puregraph.compile.lower.openstep import OpenStep
    from puregraph.compile.trace.schedule import Schedule
    from puregraph.ops.ir.value import Call

ALIGNMENT_BYTES = 64  # bytes
GPUALIGNMENT = 512  # bytes, as in CuPy's memory pool
MIN_UNCOPIED_BYTES = 1 << 16  # bytes of a result that is handed out without a copy


class Buffer:
    """A block of the arena and the calls that bound its lifetime; several values may use it in turn."""

    __slots__ = ("birth", "death", "offset", "size", "values")

    def __init__(self, value: Value, birth: int, death: int, alignment: int = ALIGNMENT_BYTES):
        self.size = -(-room(value) // alignment) * alignment
        self.birth, self.death, self.offset = birth, death, -1
        self.values = [value]


class MemoryPlan:
    """The location of every value that a call makes, at a multiple of `alignment` bytes.

    `buffers`     the blocks of the arena
    `locations`   by Value number, the Buffer or the external target that holds it
    `overwritten` by call number, the argument whose memory the result overwrites
    `copies`      (target, Value) for every value that is copied to a target after the last call
    `ownOutputs`  by Value number, the separate memory of a large result, if allowed and possible
    `bytes`       the size of the arena
    """

    def __init__(
        self, schedule: Schedule, alignment: int = ALIGNMENT_BYTES, outputType: type[StepOutput] | None = None
    ):
        self.schedule, self.alignment = schedule, alignment
        self.buffers: list[Buffer] = []
        self.locations: dict[int, Any] = {}
        self.overwritten: dict[int, int] = {}
        self.copies: list[tuple[StoreTarget, Value]] = []
        self.last = lastReads(schedule)
        self.storeInTargets(outputType is not None)
        self.assignBuffers()
        self.ownOutputs: dict[int, StepOutput] = {}
        if outputType is not None:
            self.separateOutputs(outputType)
        self.bytes = self.arrangeBuffers(schedule.model)

    def arrangeBuffers(self, model: OpenStep | None) -> int:
        """Give every buffer its offset, as in the last plan of a step for other sizes where that is good."""
        total = None if model is None or model.order is None else model.order.arrange(self.buffers)
        if total is None:
            total = arranged(self.buffers)
            if model is not None:
                model.order = BufferOrder(self.buffers)
        return total

    def storeInTargets(self, addsUp: bool) -> None:
        """Compute a stored value directly in its target's memory, if the old value is not read later.

        `addsUp` has partial sums computed there as well.
        """
        birth = {y.number: i for i, call in enumerate(self.schedule.calls) for y in call.outs if y is not None}
        old = {id(target): value for target, value in self.schedule.held}
        read = {id(target.param) for target, _ in self.schedule.held if type(target) is GradientOf}
        for target, value in self.schedule.stores:
            before = old.get(id(target))
            if isWhole(value, target):
                target, value = ReshapedTarget(target, value.root.shape), value.root
            free = value.number not in self.locations and value.base is None and fits(target, value)
            if free and self.mayOverwrite(before, value, birth[value.number]):
                self.locations[value.number] = target
                if addsUp and type(target) is GradientOf and id(target.param) not in read:
                    self.addUpInTarget(target, value, birth)
            else:
                self.copies.append((target, value))

    def addUpInTarget(self, target: StoreTarget, value: Value, birth: dict[int, int]) -> None:
        """Compute partial sums in the memory of the gradient that they become, too."""
        index: int | None = 0
        while index is not None:
            i = birth[value.number]
            call = self.schedule.calls[i]
            index = next((k for k in overwritable(call, value) if self.isPartOf(call, k, value, i)), None)
            if index is not None:
                value = call.arguments[index]
                self.locations[value.number] = target
                self.overwritten[i] = index

    def isPartOf(self, call: Call, index: int, y: Value, i: int) -> bool:
        """True if an argument is a value of the step that ends with this call, in the layout of its result."""
        x = call.arguments[index]
        isMade = type(x) is Value and x.role == "made" and x.base is None and x.number not in self.locations
        return isMade and self.last.get(x.number) == i and isSame(call, index, y)

    def mayOverwrite(self, old: Value | None, new: Value, birth: int) -> bool:
        """True if the call that computes a new value may write it over the old one."""
        if old is None or self.last.get(old.number, -1) < birth:
            return True
        call = self.schedule.calls[birth]
        if self.last[old.number] > birth:
            return False
        return any(call.arguments[i] is old and isSame(call, i, new) for i in overwritable(call, new))

    def assignBuffers(self) -> None:
        """Allocate every value that a call computes: over an argument whose lifetime ends, or in a new buffer."""
        for i, call in enumerate(self.schedule.calls):
            for y in call.outs:
                if y is None or y.base is not None or y.role == "object" or y.number in self.locations:
                    continue
                index = self.reusableArgument(i, call, y)
                death = self.last.get(y.number, i)
                if index is None:
                    buffer = Buffer(y, i, death, self.alignment)
                    self.buffers.append(buffer)
                else:
                    buffer = self.locations[call.arguments[index].root.number]
                    buffer.death = death
                    buffer.values.append(y)
                    self.overwritten[i] = index
                self.locations[y.number] = buffer

    def separateOutputs(self, outputType: type[StepOutput]) -> None:
        """Allocate large results in separate memory, if only native code uses them."""
        results = [v for v in (*self.schedule.outputs, *self.schedule.inputGrads) if v is not None]
        kept = [v.root.number for v in self.schedule.kept()]
        others = {
            v.root.number
            for call in self.schedule.calls
            if not (call.kind.isNative or call.kind.isView)
            for v in (*call.values(), *call.outs)
            if v is not None
        }
        for v in results:
            buffer = self.locations.get(v.root.number)
            isAll = v.nbytes == v.root.nbytes and isDense(v.shape, v.strides, v.dtype.itemsize)
            if type(buffer) is not Buffer or buffer.size < MIN_UNCOPIED_BYTES or not isAll:
                continue
            numbers = {x.number for x in buffer.values}
            if kept.count(v.root.number) == 1 and not numbers & others:
                self.ownOutputs[v.number] = output = outputType(v)
                self.buffers.remove(buffer)
                self.locations.update(dict.fromkeys(numbers, output))

    def reusableArgument(self, i: int, call: Call, y: Value) -> int | None:
        """The argument whose memory a result may take over, unless another result of the call has taken it."""
        for index in overwritable(call, y):
            x = call.arguments[index]
            if type(x) is Value and self.last.get(x.root.number) == i:
                buffer = self.locations.get(x.root.number)
                isFree = type(buffer) is Buffer and buffer.death == i and buffer.values[-1] is x.root
                if isFree and isSame(call, index, y):
                    return index
        return None


def room(value: Value) -> int:
    """The bytes that a value needs, with the gaps between its rows."""
    return max(value.nbytes, 1, *(n * s for n, s in zip(value.shape, value.strides)))


def isWhole(value: Value, target: StoreTarget) -> bool:
    """True if a view, its base and its target have the same elements in row-major order."""
    root, array = value.root, target.array
    if root is value or root.role != "made" or value.offset or root.size != value.size:
        return False
    rows = [(root.shape, root.strides), (value.shape, value.strides), (array.shape, array.strides)]
    same = root.dtype == value.dtype == array.dtype and array.shape == value.shape
    return same and all(isContiguous(shape, lay, value.dtype.itemsize) for shape, lay in rows)


def lastReads(schedule: Schedule) -> dict[int, int]:
    """Liveness: by number of a value with memory, the last call that reads it or a view of it."""
    end = len(schedule.calls)
    last: dict[int, int] = {}
    for i, call in enumerate(schedule.calls):
        if not call.kind.isView:
            for v in call.values():
                last[v.root.number] = i
    last.update((v.root.number, end) for v in schedule.kept())
    return last


def fits(target: StoreTarget, value: Value) -> bool:
    """True if a value can be computed in the memory of a target."""
    array = target.array
    same = array.shape == value.shape and array.dtype == value.dtype
    return same and sameStrides(array.shape, array.strides, value.strides)
