"""Shifted variance: a mean and a variance in one pass over memory, of what is left of x after subtracting a pivot.

    mean = p + sum (x - p) / m,    variance = sum (x - p)^2 / m - (sum (x - p) / m)^2

Rules subtract a first mean (`kernels/reduce.py`), which is a pass of its own. Any p will do that is no further from the
mean than some standard deviations: the variance is off by 1 + ((p - mean) / deviation)^2 ulp. Here p is, for each
channel, the median of five elements, from the start to the end. Two of them may be anything. Were they drawn at random,
it would be k deviations away with a probability below 10 / k^6, whatever the distribution; and where all elements are
equal the variance is 0.

Rows that a block keeps in registers are read once either way, and keep their first mean.

Source    Chan, Golub, LeVeque 1983, Algorithms for Computing the Sample Variance, eq. 1.5 and 1.6
"""

from __future__ import annotations

import operator
from math import prod
from typing import Any

import numpy as np

from puregraph.compile.ir.value import Call, Value
from puregraph.formula import Formula
from puregraph.formula.formula import numpyFrom

HELD = 1 << 16  # bytes of a row that a block may keep in registers
SAMPLES = {"p": 0.0, "q": 0.25, "r": 0.5, "s": 0.75, "t": 1.0}  # how far along the axes that are reduced
LOW, HIGH = "maximum(minimum(p, q), minimum(r, s))", "minimum(maximum(p, q), maximum(r, s))"
PIVOT = f"maximum(minimum({LOW}, {HIGH}), minimum(maximum({LOW}, {HIGH}), t))"  # their median
CENTERED, MEAN = Formula(f"x - {PIVOT}"), Formula(f"{PIVOT} + x")


def shiftVariance(schedule: Any) -> Any:
    """The schedule with a pivot instead of each first mean that costs a pass of its own."""
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
    """The calls that subtract a first mean, and that correct it; None where no variance is computed so."""
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
    """Whether a block keeps the elements of one mean in registers."""
    x = call.arguments[0]
    axes = reduced(call)
    inner = min((a for a in range(x.ndim) if x.shape[a] > 1), key=lambda a: (abs(x.strides[a]), -a), default=0)
    return inner in axes and prod(x.shape[a] for a in axes) * x.dtype.itemsize <= HELD


def reduced(call: Call) -> set[int]:
    """The axes of a reduction."""
    axis, rank = call.options["axis"], call.arguments[0].ndim
    return {a % rank for a in (range(rank) if axis is None else axis if isinstance(axis, tuple) else (axis,))}


def row(schedule: Any, call: Call) -> Any:
    """What makes the view of one element for each mean, part of the way along the axes that are reduced."""
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
    """A formula of a Value and of a pivot that replaces a call."""
    (y,) = call.outs
    made = Call(numpyFrom([text], ("x", *SAMPLES)), (x, *pivot), {}, [y], "pointwise", call.origin, True)
    y.call = made
    return made
