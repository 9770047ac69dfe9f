"""Built: a schedule with its memory, as flat lists of numpy calls that are ready to be made."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from puregraph.compile.bind import Bound, Running, bound
from puregraph.compile.entry import entriesOf
from puregraph.compile.memory import Memory, Room
from puregraph.compile.native import Segment
from puregraph.compile.plan import Buffer, Plan
from puregraph.compile.update import Prelude
from puregraph.compile.value import Call, Place, store

POISON = 255  # the byte that memory is filled with after its last use: NaN, -1, nothing that is right by chance


class Part:
    """Calls that follow one another, and what Python does after them: if it gives False, the step ends there."""

    __slots__ = ("host", "steps")

    def __init__(self) -> None:
        self.steps: list[Bound] = []
        self.host: Callable[[], bool] | None = None


class Built:
    """The calls of a schedule on the arrays of a plan.

    `parts`    the calls, in parts between which Python does something
    `entries`  how each input gets to where it is read
    `numbers`  (name, array) of what is set from outside
    """

    def __init__(self, plan: Plan, room: Room, poison: bool = False):
        self.schedule, self.plan = plan.schedule, plan
        self.memory = Memory(self.plan, room)
        self.objects: dict[int, Any] = {}
        self.parts = [Part()]
        ends = self.ending() if poison else {}
        self.segments: list[Segment] = []
        self.checks = [c for call in self.schedule.calls if call.kind == "native" for c in call.function.checks]
        waiting: list[Any] = []
        for i, call in enumerate(self.schedule.calls):
            if call.kind == "native":
                waiting.append(call)
            if waiting and (call.kind not in ("native", "view") or i in ends or call is self.schedule.calls[-1]):
                self.segments.append(Segment([w for c in waiting for w in c.function.works], self.memory))
                self.parts[-1].steps.append(Bound(waiting[0], self.segments[-1], [], {}))
                waiting = []
            if call.kind == "host":
                self.addHost(call)
            elif call.kind not in ("native", "view"):
                self.parts[-1].steps += self.boundTo(i, call)
            self.parts[-1].steps += [Bound(call, self.memory.region(b).fill, [POISON], {}) for b in ends.get(i, ())]
        for target, value in self.plan.copies:
            end = Call(store, (value,), {"target": target}, [], "store", Place("store", "", (), "update"))
            self.parts[-1].steps += bound(end, self.memory, None)
        self.failed: Any = None
        self.entries = entriesOf(self.schedule, self.memory, [s for part in self.parts for s in part.steps])
        for segment in self.segments:
            for patch in segment.patches:
                next(e for e in self.entries if e.value is patch[1].root).patches.append((segment.slots, *patch))
        self.frozen = self.schedule.frozen
        self.packing = None
        if self.frozen is not None and self.frozen.works:
            self.frozen.bind(self.memory)
            self.packing = Segment(self.frozen.works, self.memory)
        self.numbers = [(v.source, self.memory(v)) for v in self.schedule.scalars]
        if poison:
            self.memory.arena.fill(POISON)

    def boundTo(self, i: int, call: Any) -> list[Bound]:
        """A call as calls of numpy."""
        if call.kind == "rule":
            outs = [None if y is None or y.role == "object" else self.memory(y) for y in call.outs]
            given = [None if v is None or v.role == "object" else self.memory(v) for v in call.arguments]
            return [Bound(call, Running(call, outs, self.objects), given, {})]
        return bound(call, self.memory, self.plan.taken.get(i))

    def addHost(self, call: Any) -> None:
        """End a part with what Python does there."""
        given = [None if v is None else self.memory(v) for v in call.arguments]
        if isinstance(call.function, Prelude):
            call.function.bind(self.memory)
        self.parts[-1].host = partial(call.function, *given)
        self.parts.append(Part())

    def ending(self) -> dict[int, list[Buffer]]:
        """By the number of a call the buffers that nobody reads after it."""
        found: dict[int, list[Buffer]] = {}
        for buffer in self.plan.buffers:
            found.setdefault(buffer.death, []).append(buffer)
        return found

    def run(self, inputs: list[Any]) -> bool:
        """Do everything; the results lie in the memory. False, with nothing done, if an input is not fit for it.

        Raises    whatever a call raises, with that call in `failed`; what Python does between calls raises as it is
        """
        for entry, x in zip(self.entries, inputs):
            entry.put(x)
        if not all(isGood(self.memory(value)) for value, isGood in self.checks):
            return False
        if self.packing is not None and self.frozen.hasChanged():
            self.packing()
        self.failed = None
        step: Any = None
        for part in self.parts:
            try:
                for step in part.steps:
                    step.function(*step.arguments, **step.options)
            except Exception:
                self.failed = step.call
                raise
            if part.host is not None and not part.host():
                break
        self.objects.clear()
        return True
