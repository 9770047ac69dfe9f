"""Starting buckets: behind the last gradient of each bucket comes the Python call that sends it to others.

It is the last pass: what a step computes, and in which order, is what it would be without buckets, to the bit. Where
gradients are only handed over, their starts are among the calls that are traced, since nothing else reads these.
"""

from __future__ import annotations

from typing import Any

from puregraph.compile.gradientbuckets import BucketStart, GradientBuckets
from puregraph.compile.ir.external import GradientOf
from puregraph.compile.ir.value import Call, CallOrigin, Value


def startBuckets(schedule: Any) -> Any:
    """Add the start of each bucket, in the order of their numbers, if the step has buckets and keeps the gradients."""
    buckets = schedule.buckets
    if buckets is None or buckets.isPassing:
        return schedule
    gradOf = {id(t.param): v for t, v in schedule.stores if type(t) is GradientOf}
    schedule.calls = withStarts(schedule.calls, buckets, gradOf)
    return schedule


def withStarts(calls: list[Call], buckets: GradientBuckets, gradOf: dict[int, Value]) -> list[Call]:
    """The calls, and behind the last gradient of each bucket its start; gradients are by the ids of parameters."""
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
