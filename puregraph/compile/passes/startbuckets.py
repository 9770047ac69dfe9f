"""Starting buckets: behind the last gradient of each bucket comes the Python call that sends it to others.

It is the last pass: what a step computes, and in which order, is what it would be without buckets, to the bit.
"""

from __future__ import annotations

from typing import Any

from puregraph.compile.gradientbuckets import BucketStart
from puregraph.compile.ir.external import GradientOf
from puregraph.compile.ir.value import Call, CallOrigin


def startBuckets(schedule: Any) -> Any:
    """Add the start of each bucket, in the order of their numbers, if the step has buckets."""
    buckets = schedule.buckets
    if buckets is None:
        return schedule
    gradOf = {id(t.param): v for t, v in schedule.stores if type(t) is GradientOf}
    makers = {y.number: i for i, call in enumerate(schedule.calls) for y in call.outs if y is not None}
    starts: dict[int, list[Call]] = {}
    last = 0
    for number, group in enumerate(buckets.groups):
        found = {index: v for index in group if (v := gradOf.get(id(buckets.params[index]))) is not None}
        last = max([last, *[makers[v.number] for v in found.values()]])
        function = BucketStart(buckets, number, list(found))
        origin = CallOrigin(f"bucket {number + 1}", "", (), "backward")
        starts.setdefault(last, []).append(Call(function, tuple(found.values()), {}, [], "host", origin))
    schedule.calls = [each for i, call in enumerate(schedule.calls) for each in (call, *starts.get(i, ()))]
    return schedule
