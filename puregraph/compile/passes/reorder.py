"""Reordering: of two neighbouring independent calls, run the one that frees more memory first.

The gradient of a layer's input is often as large as the input, which only the gradient of the weight still reads. If
the weight gradient runs first, both are never in memory at the same time.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from puregraph.core.opensize import numberOf
from puregraph.ops.ir.value import Call, Value

if TYPE_CHECKING:
    from puregraph.compile.trace.schedule import Schedule

MIN_FREED_BYTES = (
    1 << 24
)  # fewest bytes that must be freed: a smaller value may be in cache, so its reader should come next


def reorderForMemory(schedule: Schedule) -> Schedule:
    """Reorder the calls of a schedule to use less memory."""
    calls = list(schedule.calls)
    last = {v.root.number: call for call in calls for v in call.values()}
    kept = {v.root.number for v in schedule.kept()}
    old = {id(target): value.number for target, value in schedule.held}
    before = {new.root.number: old.get(id(target)) for target, new in schedule.stores}
    for i in range(len(calls) - 2, -1, -1):
        first, second = calls[i : i + 2]
        if not first.kind.isNative or not second.kind.isNative or bytesOf(first) < MIN_FREED_BYTES:
            continue
        reads, made = rootsOf(first.values()), rootsOf(first.outs)
        replaced = {before.get(n) for n in rootsOf(second.outs)}
        replaced |= rootsOf(second.outs).keys()
        if made.keys() & rootsOf(second.values()).keys() or reads.keys() & replaced:
            continue
        read = rootsOf(second.values()).items()
        ended = [v for n, v in read if v.role == "made" and last[n] is second and n not in kept and n not in reads]
        if sum(numberOf(v.nbytes) for v in ended) - bytesOf(second) >= MIN_FREED_BYTES:
            calls[i : i + 2] = second, first
    schedule.calls = calls
    return schedule


def rootsOf(values: Iterable[Value | None]) -> dict[int, Value]:
    """The Values that own the memory of some Values, by number."""
    return {v.root.number: v.root for v in values if v is not None}


def bytesOf(call: Call) -> int:
    """The bytes of a call's results and scratch memory."""
    return sum(numberOf(y.nbytes) for y in call.outs if y is not None and y.base is None)
