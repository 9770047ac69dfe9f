"""Scatter into: add gradient rows to the gradient of the same table that a product has computed.

    dW = x' dy,  dE = scatterAdd(g, k),  dW + dE        becomes        dW, with g added to its rows k

The embedding and the last layer of a language model share such a table. Without this pass, zeros, both gradients and
their sum go through memory, although few rows differ.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from puregraph.compile.passes.dce import eliminateDeadCode
from puregraph.ops.gather.reference import scatterAdd, scattered
from puregraph.ops.ir.value import Call, Value

if TYPE_CHECKING:
    from types import NotImplementedType

    from puregraph.compile.trace.schedule import Schedule
    from puregraph.ops.cuda.runtime.launch import Launch


class ScatterInto:
    """The function of a call that adds gradient rows to its first argument: base, grad, index."""

    __name__ = "scatterAdd"

    def __init__(self, calls: list[Call]):
        self.calls = calls

    def launches(self, call: Call) -> list[Launch] | NotImplementedType:
        """The launches of the call, or NotImplemented."""
        base, grad, index = call.arguments
        return scattered(call.outs[0], base, grad, index, base.shape[0])


def scatterIntoSums(schedule: Schedule) -> Schedule:
    """Combine each sum of a gradient and a scatter-add into one call."""
    readers: dict[int, int] = {v.root.number: 2 for v in schedule.kept()}
    for call in schedule.calls:
        for v in () if call.kind.isView else call.values():
            readers[v.root.number] = readers.get(v.root.number, 0) + 1
    calls = [into(call, readers) for call in schedule.calls]
    if any(type(call.function) is ScatterInto for call in calls):
        schedule.calls = calls
        eliminateDeadCode(schedule)
    return schedule


def into(call: Call, readers: dict[int, int]) -> Call:
    """The call that adds a scatter-add into the other term of a sum, if only the sum reads both terms."""
    if call.function is not np.add or call.options or len(call.arguments) != 2:
        return call
    for base, other in (call.arguments, call.arguments[::-1]):
        made = getattr(other, "call", None)
        if made is None or made.function is not scatterAdd or other.base is not None or type(base) is not Value:
            continue
        isOurs = base.base is None and base.role == "made" and readers[base.number] == readers[other.number] == 1
        if isOurs and base.shape == other.shape and base.dtype == other.dtype == call.outs[0].dtype:
            function, arguments = ScatterInto([made, call]), (base, *made.arguments[:2])
            replacement = Call(function, arguments, {}, call.outs, "launch", call.origin)
            if replacement.function.launches(replacement) is not NotImplemented:
                call.outs[0].call = replacement
                return replacement
    return call
