"""Common subexpression elimination: compute equal calls on equal values once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from puregraph.ops.ir.value import Call, Value, changed, comparable

if TYPE_CHECKING:
    from puregraph.compile.trace.schedule import Schedule

KEPT_RESULT_BYTES = 4096  # results of at most this many bytes are always kept


def eliminateCommonSubexpressions(schedule: Schedule) -> Schedule:
    """Compute equal calls on equal values once; cheap calls only within the same phase."""
    known: dict[Any, dict[str, list[Any]]] = {}
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
        if call.kind.hasEffect:
            calls.append(call)
            continue
        lays = tuple([(y.shape, y.dtype, y.strides) for y in call.outs])
        key = (
            call.origin.precision,
            comparable(call.function),
            comparable(call.arguments),
            comparable(call.options),
            lays,
        )
        phases, phase = known.setdefault(key, {}), call.origin.phase
        earlier = phases.get(phase) or (next(iter(phases.values())) if phases and stays(call) else None)
        if earlier is None:
            phases[phase] = call.outs
            calls.append(call)
        else:
            instead.update((y.number, same) for y, same in zip(call.outs, earlier))
    schedule.calls = calls
    replace(schedule, now)
    return schedule


def stays(call: Call) -> bool:
    """True if results are kept from one phase to another: those that take long to compute, or few bytes."""
    isFree = call.kind.isView or not (call.kind.isCheap or call.kind.isExact)
    return isFree or sum(y.nbytes for y in call.outs) <= KEPT_RESULT_BYTES


def replace(schedule: Schedule, now: Any) -> None:
    """Replace Values in the results of the schedule."""

    def replaced(values: list[Any]) -> list[Any]:
        return [None if v is None else now(v) for v in values]

    schedule.outputs, schedule.inputGrads = replaced(schedule.outputs), replaced(schedule.inputGrads)
    schedule.gradients = replaced(schedule.gradients)
    schedule.paramGrads = [(p, now(v)) for p, v in schedule.paramGrads]
    schedule.stores = [(p, now(v)) for p, v in schedule.stores]
