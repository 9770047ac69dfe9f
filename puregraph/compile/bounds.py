"""Bounds: what whole numbers that come in have to be, so that a step can use them as indices."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from puregraph.compile.value import Value
from puregraph.native import guard
from puregraph.native.move import merged


class Bounds(NamedTuple):
    """What whole numbers of an input have to be: from `low` to below `limit`, or `ignored`."""

    value: Value
    low: int
    limit: int
    ignored: int | None = None

    def holds(self, numbers: Any) -> bool:
        """Whether all numbers of an array are so."""
        if self.ignored is not None:
            numbers = numbers[numbers != self.ignored]
        return not numbers.size or bool(numbers.min() >= self.low and numbers.max() < self.limit)

    @property
    def record(self) -> list[int]:
        """As `native.guard` reads it, but for the address."""
        axes = axesOf(self.value)
        lies = [n for axis in [(1, 0)] * (guard.AXES - len(axes)) + axes for n in axis]
        return [0, self.low, self.limit, self.ignored or 0, int(self.ignored is not None), *lies]


def axesOf(value: Value) -> list[tuple[int, int]]:
    """The axes of a Value as few as they can be, with their strides in bytes."""
    return [(a.size, a.source) for a in merged(value.shape, value.strides, value.strides)]


def canBeBounded(value: Value) -> bool:
    """Whether the numbers of a Value can be looked at: they are an input, or a view of one."""
    return value.dtype == np.int64 and value.root.role == "input" and len(axesOf(value)) <= guard.AXES
