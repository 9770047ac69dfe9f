"""Hoisting of updates: read their scalars before the backward pass, so that an update can follow its gradient."""

from __future__ import annotations

from typing import TYPE_CHECKING

from puregraph.compile.lower.registry import isLowered
from puregraph.ops.ir.bounds import canBeBounded, isProved
from puregraph.ops.ir.value import Call
from puregraph.ops.operation import declared

if TYPE_CHECKING:
    from puregraph.compile.trace.schedule import Schedule

MIN_HOISTED_BYTES = 1 << 18  # smallest gradient, in bytes, that is worth not storing


def hoistUpdates(schedule: Schedule) -> Schedule:
    """Read the scalars of an update before the backward pass or at the start, if no call in between can fail.

    An update can then follow its gradient, which is then often never stored. If large gradients are much of the
    memory, their updates move right after them; otherwise updates stay at the end, which has better locality.
    """
    calls = schedule.calls
    start = next((i for i, call in enumerate(calls) if call.origin.phase == "backward"), len(calls))
    checked = {rangeOf(call) for call in calls[:start]}
    start = start if any(map(canFail, calls[:start])) else 0
    for i, call in enumerate(calls):
        if i > start and call.kind.isHost and call.origin.phase == "update" and call.arguments:
            rest = [c for c in calls[start:i] if canFail(c) and not (start and rangeOf(c) in checked - {None})]
            if call.arguments[0] is None and not rest:
                early = Call(call.function, (None,), {}, [], "host", call.origin)
                calls = [*calls[:start], early, *calls[start:i], *calls[i + 1 :]]
                large = bytesOfUpdates(calls)
                isMuch = large and 2 * large > bytesKept(calls, start)
                schedule.calls = updatedSoon(calls, start) if isMuch else calls
            break
    return schedule


def isLarge(call: Call) -> bool:
    """True if a call updates a large parameter."""
    return call.origin.phase == "update" and call.kind.isElementwise and call.outs[0].nbytes >= MIN_HOISTED_BYTES


def bytesOfUpdates(calls: list[Call]) -> int:
    """The bytes of the gradients of all large parameters."""
    return sum(call.outs[0].nbytes for call in calls if isLarge(call))


def bytesKept(calls: list[Call], start: int) -> int:
    """The bytes of forward results that later calls read."""
    made = {y.number for call in calls[:start] for y in call.outs if y is not None and y.base is None}
    return sum(
        {v.root.number: v.root.nbytes for c in calls[start:] for v in c.values() if v.root.number in made}.values()
    )


def updatedSoon(calls: list[Call], start: int) -> list[Call]:
    """Move the updates of large parameters to right after the last call that computes or reads their operands."""
    latest: dict[int, int] = {}
    positions = []
    for i, call in enumerate(calls):
        roots = [v.root for v in (*call.values(), *call.outs) if v is not None and v.role != "scalar"]
        positions.append(max([latest.get(v.number, start) for v in roots]) if isLarge(call) else i)
        latest.update((v.number, positions[-1]) for v in roots)
    order = sorted(range(len(calls)), key=lambda i: (positions[i], i))
    return [calls[i] for i in order]


def canFail(call: Call) -> bool:
    """True if a call may raise when it runs."""
    rule = declared(call.function, "bounds")
    if rule is not None:
        index, low, limit, *_ = rule(*call.arguments, **call.options)
        maker = index.root.call
        isChecked = maker is not None and declared(maker.function, "bounds") is not None
        return not (isChecked or canBeBounded(index) or isProved(index, low, limit))
    isKnown = isLowered(call.function)
    return call.kind.isOpaque or call.kind.isHost or (call.kind.isRegistered and not call.kind.isExact and not isKnown)


def rangeOf(call: Call) -> tuple[int, int, int] | None:
    """The indices that a call checks, and their range; None if it checks none."""
    rule = declared(call.function, "bounds")
    if rule is None:
        return None
    index, low, limit, *_ = rule(*call.arguments, **call.options)
    return index.root.number, low, limit
