"""WeightGather: gather sharded weights right before their first reader in a step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from puregraph.ops.ir.value import Call

if TYPE_CHECKING:
    from puregraph.core.param import Param


class WeightGather:
    """The call that gathers a sharded weight into its Value; a weight that forward and backward read is gathered twice.

    `weights`  has `has(param)`, and `read(param, into)`
    """

    def __init__(self, weights: Any, param: Param):
        self.weights, self.param, self.isTrainable = weights, param, param.trainable

    def into(self, out: np.ndarray) -> None:
        """Fill an array with the weight."""
        self.weights.read(self.param, out)

    def __call__(self) -> np.ndarray:
        weight = np.empty(self.param.shape, self.param.dtype)
        self.into(weight)
        return weight

    @property
    def isSame(self) -> bool:
        """True if the weight is still sharded and its `trainable` has not changed."""
        return self.weights.has(self.param) and self.param.trainable == self.isTrainable


def beforeReaders(calls: list[Call]) -> list[Call]:
    """Move every WeightGather to right before its first reader; drop those without readers."""
    gathers = {call.outs[0].number: call for call in calls if type(call.function) is WeightGather}
    if not gathers:
        return calls
    ordered: list[Call] = []
    for call in calls:
        if type(call.function) is WeightGather:
            continue
        for v in call.values():
            if v.root.number in gathers:
                ordered.append(gathers.pop(v.root.number))
        ordered.append(call)
    return ordered
