"""Fused cross-entropy: compute its gradient from the scores, so that no probabilities are stored.

    dx = (exp(x - peak) w / total - onehot(k) w) scale

Only the scores are stored, possibly in 16 bits, and two numbers for each position: no pass writes all probabilities
in float32, and the backward pass reads half the bytes.

If formulas compute 16-bit scores, the reductions in the same launch read them before rounding, and probabilities of
rounded scores would not add up to one. Then the probabilities are stored.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from puregraph.compile.gpu.passes.attentionbackward import narrow
from puregraph.compile.passes.dce import eliminateDeadCode
from puregraph.core.tracer import astype
from puregraph.ops.ir.value import Call, Value
from puregraph.ops.reduction.entropy import entropyGrad, ofScores

if TYPE_CHECKING:
    from types import NotImplementedType

    from puregraph.compile.trace.schedule import Schedule
    from puregraph.core.rules import ArrayFunction
    from puregraph.ops.cuda.runtime.launch import Launch


class FusedCrossEntropyGrad:
    """The function of a call that reads scores, peak and total instead of probabilities."""

    __name__ = "entropyGrad"

    def launches(self, call: Call) -> list[Launch] | NotImplementedType:
        """The launches of the call; NotImplemented for dtypes without a kernel."""
        x, *others = call.arguments
        dx, x = withGaps(call.outs[0], x)
        return ofScores(dx, x, *others)


class WholeRows:
    """A Value with the gaps between its rows as extra, unread classes, so that rows have an even length."""

    def __init__(self, value: Value, width: int):
        self.value, self.dtype, self.strides = value, value.dtype, value.strides
        self.shape = value.shape[0], width, *value.shape[2:]
        self.size = prod(self.shape)


def withGaps(*values: Value) -> Any:
    """Values of one shape as WholeRows, if all have the same gaps between rows; otherwise unchanged."""
    size = values[0].dtype.itemsize
    steps = {tuple([s // v.dtype.itemsize for s in v.strides]) for v in values}
    width = min([s for n, s in zip(values[0].shape, values[0].strides) if n > 1 and s > size], default=0) // size
    hasGaps = len(steps) == 1 and values[0].strides[1] == size and width > values[0].shape[1]
    return [WholeRows(v, width) for v in values] if hasGaps else values


def fuseCrossEntropy(schedule: Schedule) -> Schedule:
    """Make gradients of cross-entropies read scores instead of probabilities."""
    calls = [changed(call) if call.function is entropyGrad else call for call in schedule.calls]
    if any(type(call.function) is FusedCrossEntropyGrad for call in calls):
        schedule.calls = rounding(calls, {v.root.number for v in schedule.kept()})
        eliminateDeadCode(schedule)
    return schedule


def rounding(calls: list[Call], kept: set[int]) -> list[Call]:
    """Compute a gradient directly in its rounded dtype, if only a rounding call reads it."""
    readers: dict[int, list[Call]] = {}
    for call in calls:
        for v in call.values():
            readers.setdefault(v.root.number, []).append(call)
    gone = set()
    for call in calls:
        if type(call.function) is FusedCrossEntropyGrad and call.outs[0].number not in kept:
            after = readers.get(call.outs[0].number, [])
            if len(after) == 1 and after[0].function is astype:
                gone.add(id(after[0]))
                call.outs = after[0].outs
                call.outs[0].call = call
    return [call for call in calls if id(call) not in gone]


def changed(call: Call) -> Call:
    """The gradient that reads scores, if its probabilities are a softmax; otherwise the call itself."""
    p, *others = call.arguments
    e, total = parts(bare(p), np.divide)
    z = parts(e, np.exp)[0]
    x, peak = parts(z, np.subtract)
    if x is None or total.shape != peak.shape or x.shape != p.shape:
        return call
    x = narrow(x) if narrow(x).dtype.itemsize < x.dtype.itemsize else x
    if isRounded(x):
        return call
    back = Call(FusedCrossEntropyGrad(), (x, peak, total, *others), {}, call.outs, "launch", call.origin)
    return call if back.function.launches(back) is NotImplemented else back


def bare(value: Value) -> Value:
    """The value before all conversions."""
    while narrow(value) is not value:
        value = narrow(value)
    return value


def isRounded(x: Value) -> bool:
    """True if readers in a value's group see it before rounding, while later readers see the rounded value."""
    made = x.root.call
    return x.dtype.itemsize < 4 and made is not None and (made.kind.isElementwise or made.kind.isReduction)


def parts(value: object, function: ArrayFunction) -> tuple[Any, ...]:
    """The arguments of the call that computes a value, if its function is this one; otherwise (None, None)."""
    made = getattr(value, "call", None)
    if made is None or made.function is not function or made.options:
        return None, None
    return made.arguments if all(type(v) is Value for v in made.arguments) else (None, None)
