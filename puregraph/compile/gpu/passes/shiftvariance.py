"""Shifted variance: compute mean and variance in one pass over memory, from x minus a pivot.

    mean = p + sum (x - p) / m,    variance = sum (x - p)^2 / m - (sum (x - p) / m)^2

Rules subtract a first mean (`ops/reduction/reference.py`), which takes a separate pass. Any p within some standard
deviations of the mean will do: the error of the variance is 1 + ((p - mean) / deviation)^2 ulp. Here p is, for each
channel, the median of five elements, spread from the start to the end, so two of them may be outliers. For elements
drawn at random it is k deviations away with a probability below 10 / k^6, for any distribution. If all elements are
equal, the variance is exactly 0.

Rows that a block keeps in registers are read once in either case, and keep their first mean.

Source    Chan, Golub, LeVeque 1983, Algorithms for Computing the Sample Variance, eq. 1.5 and 1.6
"""

from __future__ import annotations

import operator
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from puregraph.ops.formula import Formula
from puregraph.ops.formula.formula import numpyFrom
from puregraph.ops.ir.value import Call, Value

if TYPE_CHECKING:
    from typing import Any

    from puregraph.compile.trace.schedule import Schedule

HELD = 1 << 16  # most bytes of a row that a block keeps in registers
SAMPLES = {"p": 0.0, "q": 0.25, "r": 0.5, "s": 0.75, "t": 1.0}  # positions along the reduced axes, as fractions
LOW, HIGH = "maximum(minimum(p, q), minimum(r, s))", "minimum(maximum(p, q), maximum(r, s))"
PIVOT = f"maximum(minimum({LOW}, {HIGH}), minimum(maximum({LOW}, {HIGH}), t))"  # the median of the samples
CENTERED, MEAN = Formula(f"x - {PIVOT}"), Formula(f"{PIVOT} + x")


def shiftVariance(schedule: Schedule) -> Schedule:
    """Replace each first mean that costs a separate pass by a pivot."""
    readers: dict[int, list[Call]] = {v.root.number: [] for v in schedule.kept()}
    kept = set(readers)
    for call in schedule.calls:
        for v in () if call.kind.isView else {v.root.number: v for v in call.values()}.values():
            readers.setdefault(v.root.number, []).append(call)
    instead: dict[int, list[Call]] = {}
    for call in schedule.calls:
        if call.function is np.mean and call.options.get("keepdims") and call.outs[0].number not in kept:
            pair = uses(call, readers)
            if pair is not None and not isHeld(call):
                centered, mean = pair
                pivot = list(map(row(schedule, call), SAMPLES.values()))
                (x,), (slip,) = call.arguments, [v for v in mean.values() if v is not call.outs[0]]
                views = [v.call for v in pivot if v.call is not None]
                instead |= {id(call): views, id(centered): [formula(CENTERED, x, pivot, centered)]}
                instead[id(mean)] = [formula(MEAN, slip, pivot, mean)]
    schedule.calls = [replacement for call in schedule.calls for replacement in instead.get(id(call), [call])]
    return schedule


def uses(call: Call, readers: dict[int, list[Call]]) -> tuple[Call, Call] | None:
    """The calls that subtract a first mean and that correct it; None if they are not part of a variance."""
    if len(call.arguments) != 1 or call.options.keys() != {"axis", "keepdims"}:
        return None
    (x,), (first,) = call.arguments, call.outs
    users = readers.get(first.number, [])
    centered = next((c for c in users if c.function is np.subtract and c.arguments == (x, first)), None)
    mean = next((c for c in users if c.function is np.add and c.arguments[0] is first), None)
    if centered is None or mean is None or len(users) != 2:
        return None
    slip = mean.arguments[1]
    after = readers.get(centered.outs[0].number, [])
    isMean = any(c.function is np.mean and c.outs[0] is slip and c.options == call.options for c in after)
    isSquare = any(c.function is np.multiply and c.arguments == (centered.outs[0],) * 2 for c in after)
    return (centered, mean) if len(after) == 2 and isMean and isSquare else None


def isHeld(call: Call) -> bool:
    """True if a block keeps the elements of one mean in registers."""
    x = call.arguments[0]
    axes = reduced(call)
    inner = min((a for a in range(x.ndim) if x.shape[a] > 1), key=lambda a: (abs(x.strides[a]), -a), default=0)
    return inner in axes and prod(x.shape[a] for a in axes) * x.dtype.itemsize <= HELD


def reduced(call: Call) -> set[int]:
    """The axes of a reduction."""
    axis, rank = call.options["axis"], call.arguments[0].ndim
    return {a % rank for a in (range(rank) if axis is None else axis if isinstance(axis, tuple) else (axis,))}


def row(schedule: Schedule, call: Call) -> Any:
    """A function that makes the view of one element for each mean, at a fraction along the reduced axes."""
    (x,), (first,) = call.arguments, call.outs
    axes = reduced(call)

    def at(part: float) -> Value:
        index = {a: int(part * (x.shape[a] - 1)) for a in axes}
        schedule.count += 1
        view = Value(schedule.count, first.shape, x.dtype, x.strides, name=x.name)
        view.base, view.offset = x.root, x.offset + sum(i * x.strides[a] for a, i in index.items())
        key = tuple([slice(index[a], index[a] + 1) if a in axes else slice(None) for a in range(x.ndim)])
        view.call = Call(operator.getitem, (x, key), {}, [view], "view", call.origin)
        return view

    return at


def formula(text: Formula, x: Value, pivot: list[Value], call: Call) -> Call:
    """The formula of a Value and a pivot that replaces a call."""
    (y,) = call.outs
    made = Call(numpyFrom([text], ("x", *SAMPLES)), (x, *pivot), {}, [y], "pointwise", call.origin, True)
    y.call = made
    return made
