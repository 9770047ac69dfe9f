"""Loop works: the native kernel calls of a loop; the code of its body is made once, and each run has its addresses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
from puregraph.ops.ir.strides import contiguous
from puregraph.ops.ir.value import Call, CallOrigin, Offset, Value, copy, fill, store
from puregraph.ops.operation import declared
from puregraph.ops.recurrent.repeat import repeat

if TYPE_CHECKING:
    from puregraph.compile.lower.workspace import LoweringWorkspace
    from puregraph.ops.native.llvm.kernelcall import KernelCall

FLOAT = np.dtype(np.float32)
MAX_WORKS = 1 << 17  # most kernel calls of one loop: each takes a row of the program's table


class Place(NamedTuple):
    """Where a Value of the body is in run k: `start + k step` bytes into a Value of the program."""

    value: Value
    start: int = 0
    step: int = 0


class RowTarget:
    """The target that a run stores one of its results to."""

    def __init__(self, value: Value):
        self.value = value
        self.array = np.ndarray(value.shape, value.dtype, np.empty(max(1, value.size), value.dtype))


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


@lowers(repeat)
def lowerLoop(call: Call, workspace: LoweringWorkspace) -> list[KernelCall] | None:
    """The kernel calls of all runs, one after another; None if a call of the body has no native code."""
    loop: LoopBody = call.function
    schedule = bodySchedule(loop, workspace)
    packed = PackedOnce(workspace)
    lowered = lowerBody(schedule, workspace, packed)
    if lowered is None:
        return None
    plan = MemoryPlan(lowered)
    places = placesOf(loop, call, schedule.stores, workspace(-(-plan.bytes // FLOAT.itemsize) + 1))
    ends = [declared(store, "lower")(value, targetLike(target, value)) for target, value in plan.copies]
    first = firstWorks(loop, call)
    if None in ends or first is None:
        return None
    works = [w for c in lowered.calls if c.kind.isNative for w in c.function.works]
    works += [w for end in ends for w in end]
    if loop.count * len(works) > MAX_WORKS:
        return None
    find = Finder(plan, places)
    rows = [find.slots(w) for w in works]
    packs = [w._replace(slots=slotsAt(find.slots(w), 0)) for w in packed.works]
    return [*first, *packs, *(w._replace(slots=slotsAt(row, k)) for k in range(loop.count) for w, row in zip(works, rows))]


def bodySchedule(loop: LoopBody, workspace: LoweringWorkspace) -> Schedule:
    """The body as a schedule that stores its results."""
    schedule: Any = Schedule.__new__(Schedule)
    Schedule.__init__(schedule, loop, None)  # type: ignore[arg-type]
    schedule.calls = [clone(c) for c in loop.calls]
    for value in loop.results:
        lay = contiguous(value.shape, value.dtype.itemsize)
        target = RowTarget(Value(workspace.new(0).number, value.shape, value.dtype, lay, "state"))
        schedule.stores.append((target, value))
    sums = schedule.stores[loop.carried : loop.carried + loop.sums]
    schedule.held = [(target, old) for (target, _), old in zip(sums, loop.oldSums)]
    return schedule


def clone(call: Call) -> Call:
    """A call that passes may change."""
    return Call(call.function, call.arguments, dict(call.options), list(call.outs), call.kind, call.origin, call.several)


def lowerBody(schedule: Schedule, workspace: LoweringWorkspace, packed: PackedOnce) -> Schedule | None:
    """The schedule with native calls alone; None if that is not possible."""
    passes = eliminateCommonSubexpressions, readReluSigns, eliminateDeadCode, fuse, inlineCheapValues
    for change in passes:
        schedule = change(schedule)

    weights: Any = workspace.packedWeights or packed
    schedule.calls = Lowering(schedule.calls, schedule.kept(), {}, workspace.new, weights).run()
    isNative = all(c.kind.isView or c.kind.isNative and not c.function.checks for c in schedule.calls)
    return schedule if isNative else None


def targetLike(target: Any, value: Value) -> Value:
    """The memory of a target in the shape of the value that is stored there."""
    to = (target.target if type(target) is ReshapedTarget else target).value
    return Value(to.number, value.shape, to.dtype, contiguous(value.shape, to.dtype.itemsize), to.role)


def placesOf(loop: LoopBody, call: Call, stores: Sequence[Any], scratch: Value) -> dict[int, Place]:
    """The places of the body's operands and results by Value number, and of its memory as number 0."""
    places = {0: Place(scratch)}
    operands, outs, last = list(call.values()), call.outs, loop.count - 1

    def along(value: Value, start: int = 0) -> Place:
        step = value.strides[0]
        back = loop.isReversed
        return Place(value.root, value.offset + start + (last * step if back else 0), -step if back else step)

    for i, (formal, x) in enumerate(zip(loop.formals, operands)):
        if i < loop.carried:
            places[formal.number] = Place(outs[i], 0, outs[i].strides[0])
        elif i < loop.carried + loop.sliced:
            places[formal.number] = along(x)
        else:
            places[formal.number] = Place(x.root, x.offset)
    for i, (target, _) in enumerate(stores):
        out = outs[i]
        if i < loop.carried:
            place = Place(out, out.strides[0], out.strides[0])
        else:
            place = Place(out) if i < loop.carried + loop.sums else along(out)
        places[target.value.number] = place
    places.update({old.number: Place(outs[loop.carried + i]) for i, old in enumerate(loop.oldSums)})
    return places


def firstWorks(loop: LoopBody, call: Call) -> list[KernelCall] | None:
    """The kernel calls before the first run: carried values are copied to the states, and sums are zero."""
    works: list[KernelCall] = []
    origin = CallOrigin("loop")
    for i, y in enumerate(call.outs[: loop.carried + loop.sums]):
        if i < loop.carried:
            to = Value(y.number, y.shape[1:], y.dtype, y.strides[1:])
            made = Call(copy, (call.arguments[i],), {}, [to], "copy", origin)
        else:
            made = Call(fill, (0.0,), {}, [y], "fill", origin)
        lowered = declared(made.function, "lower")(made, None)
        if lowered is None:
            return None
        works += lowered
    return works


class Finder:
    """Finds the place of each slot of a kernel call of the body."""

    def __init__(self, plan: MemoryPlan, places: dict[int, Place]):
        self.plan, self.places = plan, places

    def slots(self, work: KernelCall) -> dict[str, Any]:
        """The slots with a Place for each address in memory that the program plans."""
        return {name: self.place(what) for name, what in work.slots.items()}

    def place(self, what: Any) -> Any:
        value, start = what if type(what) is Offset else (what, 0)
        if type(value) is not Value:
            return what
        root = value.root
        start += value.offset
        known = self.places.get(root.number)
        if known is None and root.number in self.plan.locations:
            location = self.plan.locations[root.number]
            location = location.target if type(location) is ReshapedTarget else location
            if type(location) is RowTarget:
                known = self.places[location.value.number]
            else:
                known = Place(self.places[0].value, location.offset)
        return what if known is None else known._replace(start=known.start + start)


def slotsAt(slots: dict[str, Any], k: int) -> dict[str, Any]:
    """The slots of run k."""
    return {
        name: Offset(what.value, what.start + k * what.step) if type(what) is Place else what
        for name, what in slots.items()
    }
