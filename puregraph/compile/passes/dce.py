"""Dead code elimination: leave out calls whose results are not read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from puregraph.ops.ir.value import Call

if TYPE_CHECKING:
    from puregraph.compile.trace.schedule import Schedule


def eliminateDeadCode(schedule: Schedule) -> Schedule:
    """Leave out calls whose results are not read; calls with effects always run."""
    needed = {v.number for v in schedule.kept()}
    calls: list[Call] = []
    for call in reversed(schedule.calls):
        if call.kind.hasEffect or any(y is not None and y.number in needed for y in call.outs):
            needed.update(v.number for v in call.values())
            calls.append(call)
    calls.reverse()
    schedule.calls = calls
    return schedule
