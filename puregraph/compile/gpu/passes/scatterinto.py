"""Scatter into: rows of gradients are added to the gradient that a product has computed of the same table.

    dW = x' dy,  dE = scatterAdd(g, k),  dW + dE        becomes        dW, with g added to its rows k

The embedding and the last layer of a language model share such a table: otherwise zeros, both gradients and their sum
pass through memory, of which few rows differ.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from puregraph.compile.ir.value import Call, Value
from puregraph.compile.passes.dce import eliminateDeadCode
from puregraph.kernels.scatter import scatterAdd, scattered


class ScatterInto:
    """The function of a call that adds rows of gradients to its first argument: base, grad, index."""

    __name__ = "scatterAdd"

    def __init__(self, calls: list[Call]):
        self.calls = calls

    def launches(self, call: Call) -> Any:
        """Its launches; NotImplemented for what has none."""
        base, grad, index = call.arguments
        return scattered(call.outs[0], base, grad, index, base.shape[0])


def scatterIntoSums(schedule: Any) -> Any:
    """The schedule with each sum of a gradient and a scatter-add as one call."""
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
    """A sum as a call that adds to its other part, if both parts are read by it alone."""
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
