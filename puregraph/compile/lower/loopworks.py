"""Loop works: the native kernel calls of a loop. The code of its body is made once; each run has its own addresses."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from puregraph.compile.ir.external import ReshapedTarget
from puregraph.compile.lower.lowering import Lowering
from puregraph.compile.lower.registry import lowers
from puregraph.compile.memory.planner import MemoryPlan
from puregraph.compile.passes.cse import eliminateCommonSubexpressions
from puregraph.compile.passes.dce import eliminateDeadCode
from puregraph.compile.passes.fusion import fuse
from puregraph.compile.passes.inline import inlineCheapValues
from puregraph.compile.passes.relusign import readReluSigns
from puregraph.compile.trace.loopbody import LoopBody
from puregraph.compile.trace.schedule import Schedule
from puregraph.core.opensize import ClosedStepError, isOpen
from puregraph.ops.ir.strides import contiguous
from puregraph.ops.ir.value import Call, CallOrigin, Offset, Value, copy, fill, store
from puregraph.ops.operation import declared
from puregraph.ops.recurrent.repeatbody import repeatBody

if TYPE_CHECKING:
    from puregraph.compile.lower.workspace import LoweringWorkspace
    from puregraph.ops.native.llvm.kernelcall import KernelCall

FLOAT = np.dtype(np.float32)
MAX_WORKS = 1 << 17  # most kernel calls of one loop: each takes a row of the program's table


class RunAddress(NamedTuple):
    """The address of a Value of the body in run k: `start + k step` bytes into a Value of the program."""

    value: Value
    start: int = 0
    step: int = 0

    def at(self, k: int) -> Offset:
        """The address in run k."""
        return Offset(self.value, self.start + k * self.step)


class RunTarget:
    """The target that a run stores a result to; the array has its layout alone."""

    def __init__(self, value: Value):
        self.value = value
        self.array = np.empty(value.shape, value.dtype)


class PackedOnce:
    """Packed weights of a loop, packed before its first run."""

    def __init__(self, workspace: LoweringWorkspace):
        self.workspace = workspace
        self.works: list[KernelCall] = []
        self.made: dict[Any, Value] = {}

    def keep(self, weight: Value, number: int, count: int, write: Callable[[Value], list[KernelCall]]) -> Value:
        """The Value with the packed weight; `write(to)` returns the kernel calls that pack it."""
        key = weight.number, *((w.key, *[v for v in w.slots.values() if isinstance(v, int)]) for w in write(weight))
        if key not in self.made:
            self.made[key] = self.workspace(count, weight.dtype)
            self.works += write(self.made[key])
        return self.made[key]


@lowers(repeatBody)
def lowerLoop(call: Call, workspace: LoweringWorkspace) -> list[KernelCall] | None:
    """The kernel calls of all runs, one after another; None if a call of the body has no native code."""
    loop: LoopBody = call.function
    if any(isOpen(v.shape) for v in call.values()):
        raise ClosedStepError("the runs of a loop are laid out one by one")
    schedule, packed = bodySchedule(loop, workspace), PackedOnce(workspace)
    if not lowerBody(schedule, workspace, packed):
        return None
    plan = MemoryPlan(schedule)
    ends = [declared(store, "lower")(value, targetLike(target, value)) for target, value in plan.copies]
    first = firstWorks(loop, call)
    works = [w for c in schedule.calls if c.kind.isNative for w in c.function.works]
    if None in ends or first is None or loop.count * len(works) > MAX_WORKS:
        return None
    works += [w for end in ends for w in end]
    memory = RunMemory(plan, loop, call, workspace(plan.bytes // FLOAT.itemsize + 1))
    packs = [work._replace(slots=slotsAt(memory.slots(work), 0)) for work in packed.works]
    rows = [(work, memory.slots(work)) for work in works]
    runs = [work._replace(slots=slotsAt(slots, k)) for k in range(loop.count) for work, slots in rows]
    return [*first, *packs, *runs]


def bodySchedule(loop: LoopBody, workspace: LoweringWorkspace) -> Schedule:
    """The body as a schedule that stores its results."""
    schedule: Any = Schedule.__new__(Schedule)
    Schedule.__init__(schedule, loop, None)  # type: ignore[arg-type]
    for c in loop.calls:
        origin = c.origin._replace(precision="float32")  # as the eager loop that verifies this one
        schedule.calls.append(Call(c.function, c.arguments, dict(c.options), list(c.outs), c.kind, origin, c.several))
    for value in loop.results:
        layout = contiguous(value.shape, value.dtype.itemsize)
        target = RunTarget(Value(workspace.new(0).number, value.shape, value.dtype, layout, "state"))
        schedule.stores.append((target, value))
    sums = schedule.stores[loop.carried : loop.carried + loop.sums]
    schedule.held = [(target, old) for (target, _), old in zip(sums, loop.oldSums)]
    return schedule


def lowerBody(schedule: Schedule, workspace: LoweringWorkspace, packed: PackedOnce) -> bool:
    """Lower the calls of a body; False unless all of them have native code that needs no checks before a run."""
    for change in (eliminateCommonSubexpressions, readReluSigns, eliminateDeadCode, fuse, inlineCheapValues):
        change(schedule)
    weights: Any = workspace.packedWeights or packed
    schedule.calls = Lowering(schedule.calls, schedule.kept(), {}, workspace.new, weights).run()
    return all(c.kind.isView or c.kind.isNative and not c.function.checks for c in schedule.calls)


def targetLike(target: Any, value: Value) -> Value:
    """The memory of a target in the shape of the value that is stored there."""
    inner: Any = target.target if type(target) is ReshapedTarget else target
    to = inner.value
    return Value(to.number, value.shape, to.dtype, contiguous(value.shape, to.dtype.itemsize), to.role)


def firstWorks(loop: LoopBody, call: Call) -> list[KernelCall] | None:
    """The kernel calls before the first run: carried values are copied to the states, and sums are zero."""
    works: list[KernelCall] = []
    for i, y in enumerate(call.outs[: loop.carried + loop.sums]):
        if i < loop.carried:
            to = Value(y.number, y.shape[1:], y.dtype, y.strides[1:])
            made = Call(copy, (call.arguments[i],), {}, [to], "copy", CallOrigin(""))
        else:
            made = Call(fill, (0,), {}, [y], "fill", CallOrigin(""))
        lowered = declared(made.function, "lower")(made, None)
        if lowered is None:
            return None
        works += lowered
    return works


class RunMemory:
    """The addresses of a body's Values: in the operands and results of the loop, and in its scratch memory."""

    def __init__(self, plan: MemoryPlan, loop: LoopBody, call: Call, scratch: Value):
        self.plan, self.scratch, self.isReversed, self.last = plan, scratch, loop.isReversed, loop.count - 1
        outs, first = call.outs, loop.carried + loop.sums
        self.known: dict[int, RunAddress] = {}
        for i, (formal, x) in enumerate(zip(loop.formals, call.values())):
            if i < loop.carried:
                address = RunAddress(outs[i], 0, outs[i].strides[0])
            elif i < loop.carried + loop.sliced:
                address = self.along(x)
            else:
                address = RunAddress(x.root, x.offset)
            self.known[formal.number] = address
        targets: list[Any] = [target for target, _ in plan.schedule.stores]
        for i, target in enumerate(targets):
            if i < loop.carried:
                address = RunAddress(outs[i], outs[i].strides[0], outs[i].strides[0])
            else:
                address = RunAddress(outs[i]) if i < first else self.along(outs[i])
            self.known[target.value.number] = address
        self.known.update({old.number: RunAddress(y) for old, y in zip(loop.oldSums, outs[loop.carried : first])})

    def along(self, value: Value) -> RunAddress:
        """The address of the slice, or row, of each run."""
        step = value.strides[0]
        start = value.offset + (self.last * step if self.isReversed else 0)
        return RunAddress(value.root, start, -step if self.isReversed else step)

    def slots(self, work: KernelCall) -> dict[str, Any]:
        """The slots of a kernel call, with RunAddresses."""
        return {name: self.address(what) for name, what in work.slots.items()}

    def address(self, what: Any) -> Any:
        """The RunAddress of a Value of the body, or of an Offset in it; anything else unchanged."""
        value, start = what if type(what) is Offset else (what, 0)
        if type(value) is not Value:
            return what
        number = value.root.number
        location: Any = self.plan.locations.get(number)
        location = location.target if type(location) is ReshapedTarget else location
        if number in self.known or type(location) is RunTarget:
            known = self.known[number if number in self.known else location.value.number]
        elif location is not None:
            known = RunAddress(self.scratch, location.offset)
        else:  # a constant, or memory of the loop itself
            return what
        return known._replace(start=known.start + value.offset + start)


def slotsAt(slots: dict[str, Any], k: int) -> dict[str, Any]:
    """The slots of run k."""
    return {name: what.at(k) if type(what) is RunAddress else what for name, what in slots.items()}
