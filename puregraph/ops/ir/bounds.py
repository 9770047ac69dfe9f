"""Bounds: the valid range of inputs that are indices or fractions."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from puregraph.ops.ir.value import Value
from puregraph.ops.native.nests import inputchecks
from puregraph.ops.native.nests.copy import merged


class Bounds(NamedTuple):
    """The valid range of an integer input: from `low` to below `limit`, or equal to `ignored`.

    Floats are compared as integers with the same bits.
    """

    value: Value
    low: int
    limit: int
    ignored: int | None = None

    @property
    def kind(self) -> str:
        """The integer dtype that native code reads the elements as."""
        return f"i{8 * self.value.dtype.itemsize}"

    def holds(self, elements: Any) -> bool:
        """True if all elements of an array are in range."""
        elements = elements.view(f"i{elements.dtype.itemsize}")
        if self.ignored is not None:
            elements = elements[elements != self.ignored]
        return not elements.size or bool(elements.min() >= self.low and elements.max() < self.limit)

    @property
    def record(self) -> list[int]:
        """The record that `nests.inputchecks` reads, without the address."""
        axes = axesOf(self.value)
        layout = [n for axis in [(1, 0)] * (inputchecks.MAX_AXES - len(axes)) + axes for n in axis]
        return [0, self.low, self.limit, self.ignored or 0, int(self.ignored is not None), *layout]


def fractionBounds(value: Value) -> Bounds:
    """The bounds 0 to 1: the bits of non-negative floats are ordered like the floats; -0 is allowed as 0."""
    kind = np.dtype(f"i{value.dtype.itemsize}")
    oneBits, zeroBits = np.array([1.0, -0.0], value.dtype).view(kind).tolist()
    return Bounds(value, 0, oneBits + 1, zeroBits)


def axesOf(value: Value) -> list[tuple[int, int]]:
    """The axes of a Value, merged to as few as possible, with strides in bytes."""
    return [(a.size, a.source) for a in merged(value.shape, value.strides, value.strides)]


def canBeBounded(value: Value) -> bool:
    """True if integers can be checked before a step: they are an input, or a view of one."""
    return value.dtype == np.int64 and value.root.role == "input" and len(axesOf(value)) <= inputchecks.MAX_AXES


def isProved(value: Value, low: int, limit: int) -> bool:
    """True if integers are known to be in range ahead of a step: they are a constant, or a view of one."""
    root = value.root
    return root.role == "constant" and Bounds(root, low, limit).holds(np.asarray(root.source))


def canBeChecked(value: Value) -> bool:
    """True if the fractions of an input can be checked before a step."""
    return value.dtype in (np.float32, np.float64) and 0 not in value.shape
