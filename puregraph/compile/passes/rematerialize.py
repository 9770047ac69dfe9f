"""Rematerialization: compute cheap values again in backward instead of keeping them, until the plan fits a budget."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import TYPE_CHECKING, Any

from puregraph.compile.memory.planner import ALIGNMENT_BYTES, MemoryPlan
from puregraph.core.errors import PuregraphError
from puregraph.ops.ir.value import Call, Value, changed

if TYPE_CHECKING:
    from puregraph.compile.memory.outputs import StepOutput
    from puregraph.compile.trace.schedule import Schedule

MAXROUNDS = 8  # rounds without gain before it gives up
MAXCALLS = 12  # most calls that are computed again for one value


def planned(
    schedule: Schedule,
    budget: int | None = None,
    lower: Callable[[Schedule], Schedule] = copy,
    alignment: int = ALIGNMENT_BYTES,
    outputType: type[StepOutput] | None = None,
) -> MemoryPlan:
    """Plan the memory of a schedule, and compute calls again until it fits a budget in bytes.

    `lower` returns a lowered copy of a schedule; `outputType` is the memory of large results, if any.

    Raises    PuregraphError if the budget cannot be met; the message has the bytes that can be reached
    """
    plan = MemoryPlan(lower(schedule), alignment, outputType)
    least, rounds = plan.bytes, 0
    while budget is not None and plan.bytes > budget:
        rounds += 1
        if rounds > MAXROUNDS or not reducePeak(schedule, MemoryPlan(schedule), plan.bytes - budget):
            raise PuregraphError(
                f"{schedule.graph.title()}: wanted a step within {budget:,} bytes, got down to {least:,} by computing "
                "cheap values again; give a larger budget, or smaller batches with accumulate"
            )
        plan = MemoryPlan(lower(schedule), alignment, outputType)
        if plan.bytes < least:
            least, rounds = plan.bytes, 0
    return plan


def reducePeak(schedule: Schedule, plan: MemoryPlan, wanted: int) -> bool:
    """Compute some of the values that are kept across the memory peak again; False if there are none."""
    liveness = PeakReaders(schedule, peakOf(plan))
    candidates = sorted(liveness.waiting(), key=lambda v: (-v.nbytes, v.number))
    gained, chosen = 0, {}
    for value in candidates:
        if gained >= wanted:
            break
        first = liveness.firstAfter(value)
        clones = Clones(schedule, liveness, first, value)
        if clones.isPossible():
            liveness.pinned.update(clones.sources)
            liveness.dropped.add(value.number)
            chosen[value.number] = clones
            gained += value.nbytes
    if chosen:
        insert(schedule, chosen.values(), liveness.peak)
    return bool(chosen)


def peakOf(plan: MemoryPlan) -> int:
    """The index of the call at which most bytes are in use."""
    change = [0] * (len(plan.schedule.calls) + 2)
    for b in plan.buffers:
        change[b.birth] += b.size
        change[min(b.death, len(change) - 2) + 1] -= b.size
    most = inUse = peak = 0
    for i, more in enumerate(change):
        inUse += more
        if inUse > most:
            most, peak = inUse, i
    return peak


class PeakReaders:
    """Liveness of values around the call at the peak of memory.

    `readers`  by number of a value with memory, the calls that read it or a view of it
    `pinned`   values that must be kept because clones are computed from them; `dropped`: values that are not kept
    """

    def __init__(self, schedule: Schedule, peak: int):
        self.schedule, self.peak = schedule, peak
        self.readers: dict[int, list[int]] = {}
        self.pinned: set[int] = set()
        self.dropped: set[int] = set()
        for i, call in enumerate(schedule.calls):
            for v in call.values() if not call.kind.isView else ():
                self.readers.setdefault(v.root.number, []).append(i)
        self.kept = {v.root.number for v in schedule.kept()}

    def waiting(self) -> list[Value]:
        """The cheap values that are computed before the peak and read after it, but not at it."""
        values = []
        for call in self.schedule.calls[: self.peak]:
            for y in call.outs:
                if y is None or y.base is not None or not call.kind.isCheap or y.number in self.kept:
                    continue
                readers = self.readers.get(y.number, [])
                if readers and readers[-1] > self.peak and self.peak not in readers:
                    values.append(y)
        return values

    def firstAfter(self, value: Value) -> int:
        """The first call after the peak that reads a value."""
        return next(i for i in self.readers[value.number] if i > self.peak)

    def stays(self, value: Value, until: int) -> bool:
        """True if a value, or its base, is kept until a later call anyway."""
        root = value.root
        if root.role != "made":
            return True
        if root.number in self.dropped:
            return False
        return root.number in self.kept or self.readers.get(root.number, [-1])[-1] >= until


class Clones:
    """The calls that compute one value again before a call that reads it, from values that are kept anyway."""

    def __init__(self, schedule: Schedule, liveness: PeakReaders, start: int, value: Value):
        self.schedule, self.liveness, self.start, self.value = schedule, liveness, start, value
        self.calls: list[Call] = []
        self.made: dict[int, Value] = {}
        self.sources: set[int] = set()

    def isPossible(self) -> bool:
        """True if the value can be computed again."""
        if self.value.number in self.liveness.pinned:
            return False
        self.liveness.dropped.add(self.value.number)
        canClone = self.again(self.value) is not None
        self.liveness.dropped.discard(self.value.number)
        return canClone

    def again(self, value: Value) -> Value | None:
        """The clone of a value; None if computing it again would take too many calls."""
        if value.number in self.made:
            return self.made[value.number]
        if self.liveness.stays(value, self.start):
            self.sources.add(value.root.number)
            return value
        call = value.call
        if call is None or not call.kind.isCheap or len(self.calls) >= MAXCALLS:
            return None
        parts = {v.number: self.again(v) for v in call.values()}
        if any(v is None for v in parts.values()):
            return None
        return self.clone(call, parts)[value.number]

    def clone(self, call: Call, parts: dict[int, Any]) -> dict[int, Value]:
        """Clone a call on other values."""

        def now(v: Value) -> Value:
            return parts[v.number]

        arguments, options = changed(call.arguments, now), {k: changed(v, now) for k, v in call.options.items()}
        outs = [None if y is None else self.like(y) for y in call.outs]
        origin = call.origin._replace(phase="backward")
        again = Call(call.function, arguments, options, outs, call.kind, origin, call.several)
        for y, new in zip(call.outs, outs):
            if new is not None:
                new.call = again
                self.made[y.number] = new
                if y.base is not None:
                    new.base = self.made[y.base.number] if y.base.number in self.made else y.base
        self.calls.append(again)
        return self.made

    def like(self, y: Value) -> Value:
        """A new Value of the same shape, dtype and layout."""
        self.schedule.count += 1
        new = Value(self.schedule.count, y.shape, y.dtype, y.strides, name=y.name)
        new.offset = y.offset
        return new


def insert(schedule: Schedule, chosen: Any, peak: int) -> None:
    """Insert clones before the first calls that read them, and make all later calls read them."""
    before: dict[int, list[Call]] = {}
    instead: dict[int, Value] = {}
    for clones in chosen:
        before.setdefault(clones.start, []).extend(clones.calls)
        instead[clones.value.number] = clones.made[clones.value.number]
    calls: list[Call] = []
    views: dict[int, Value] = {}

    def now(v: Value) -> Value:
        if v.base is None:
            return instead.get(v.number, v)
        return viewed(v) if v.base.number in instead else v

    def viewed(v: Any) -> Value:
        """A view of a clone."""
        if v.number not in views:
            call: Any = v.call
            schedule.count += 1
            new = Value(schedule.count, v.shape, v.dtype, v.strides, name=v.name)
            new.base, new.offset = instead[v.base.number], v.offset
            new.call = Call(call.function, changed(call.arguments, now), call.options, [new], "view", call.origin)
            views[v.number] = new
            calls.append(new.call)
        return views[v.number]

    for i, call in enumerate(schedule.calls):
        calls += before.get(i, ())
        if i > peak and call.kind.isView and call.outs[0].base is not None and call.outs[0].base.number in instead:
            continue  # views are cloned when they are read
        if i > peak:
            call.arguments = changed(call.arguments, now)
            call.options = {k: changed(v, now) for k, v in call.options.items()}
        calls.append(call)
    schedule.calls = calls
