"""Starting buckets: after the last gradient of each bucket, insert the Python call that starts its exchange.

It is the last pass, so a step computes the same bits in the same order as without buckets. If gradients are only
handed over, the starts are traced with the other calls, since no other call reads the gradients.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from puregraph.compile.gradientbuckets import BucketStart, GradientBuckets
from puregraph.compile.ir.external import GradientOf
from puregraph.ops.ir.value import Call, CallOrigin, Value

if TYPE_CHECKING:
    from puregraph.compile.trace.schedule import Schedule


def startBuckets(schedule: Schedule) -> Schedule:
    """Add the start of each bucket, in number order, if the step has buckets and keeps the gradients."""
    buckets = schedule.buckets
    if buckets is None or buckets.isPassing:
        return schedule
    gradOf = {id(t.param): v for t, v in schedule.stores if type(t) is GradientOf}
    schedule.calls = withStarts(schedule.calls, buckets, gradOf)
    return schedule


def withStarts(calls: list[Call], buckets: GradientBuckets, gradOf: dict[int, Value]) -> list[Call]:
    """The calls, with the start of each bucket inserted after its last gradient; `gradOf` is by parameter id."""
    makers = {y.number: i for i, call in enumerate(calls) for y in call.outs if y is not None}
    starts: dict[int, list[Call]] = {}
    last = 0
    for number, group in enumerate(buckets.groups):
        grads = {index: v for index in group if (v := gradOf.get(id(buckets.params[index]))) is not None}
        last = max([last, *[makers[v.number] for v in grads.values()]])
        function = BucketStart(buckets, number, list(grads))
        origin = CallOrigin(f"bucket {number + 1}", "", (), "backward")
        starts.setdefault(last, []).append(Call(function, tuple(grads.values()), {}, [], "host", origin))
    return [step for i, call in enumerate(calls) for step in (call, *starts.get(i, ()))]
