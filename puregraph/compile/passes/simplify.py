"""Simplify: equal calls are made once, calls that nobody needs not at all, and less is kept."""

from __future__ import annotations

from typing import Any

from puregraph.compile.ir.value import Call, Value, changed, frozen
from puregraph.compile.passes.relusign import fromResults

CHEAP = ("view", "pointwise", "copy", "fill", "put")  # what is made again in backward rather than kept from forward
EFFECTS = ("rule", "host", "store")  # what is always done
LITTLE = 4096  # bytes that may always be kept


def simplified(schedule: Any) -> Any:
    """The same schedule with fewer calls."""
    once(schedule)
    fromResults(schedule)
    alive(schedule)
    return schedule


def once(schedule: Any) -> None:
    """Have equal calls on equal values made once: what is cheap only within forward, or within backward."""
    known: dict[Any, list[Any]] = {}
    instead: dict[int, Value] = {}
    calls = []

    def now(v: Value) -> Value:
        return instead.get(v.number, v)

    for call in schedule.calls:
        if instead:
            call.arguments = changed(call.arguments, now)
            call.options = {k: changed(v, now) for k, v in call.options.items()}
        for y in call.outs:
            if y is not None and y.base is not None:
                y.base = now(y.base)
        if call.kind in EFFECTS:
            calls.append(call)
            continue
        lays = tuple([(y.shape, y.dtype, y.strides) for y in call.outs])
        stays = call.kind not in CHEAP or sum(y.nbytes for y in call.outs) <= LITTLE
        phase = None if stays else call.place.phase
        key = phase, call.place.precision, frozen(call.function), frozen(call.arguments), frozen(call.options), lays
        found = known.get(key)
        if found is None:
            known[key] = call.outs
            calls.append(call)
        else:
            instead.update((y.number, same) for y, same in zip(call.outs, found))
    schedule.calls = calls
    replace(schedule, now)


def replace(schedule: Any, now: Any) -> None:
    """Put other Values in place of what the schedule hands out."""

    def each(values: list[Any]) -> list[Any]:
        return [None if v is None else now(v) for v in values]

    schedule.outputs, schedule.inputGrads = each(schedule.outputs), each(schedule.inputGrads)
    schedule.gradients = each(schedule.gradients)
    schedule.paramGrads = [(p, now(v)) for p, v in schedule.paramGrads]
    schedule.stores = [(p, now(v)) for p, v in schedule.stores]


def alive(schedule: Any) -> None:
    """Leave out calls whose results nobody reads; a rule that was kept whole always runs."""
    needed = {v.number for v in schedule.kept()}
    calls: list[Call] = []
    for call in reversed(schedule.calls):
        if call.kind in EFFECTS or any(y is not None and y.number in needed for y in call.outs):
            needed.update(v.number for v in call.values())
            calls.append(call)
    calls.reverse()
    schedule.calls = calls
