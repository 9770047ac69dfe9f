"""OnnxSequence: a sequence of a file while it is read. Its length is known, so its elements become ordinary values."""

from __future__ import annotations

from typing import Any


class OnnxSequence:
    """A list of values that is used like an `OnnxValue`; the sequence itself has no shape, elements or node.

    With `isAbsent` it stands for an optional without a value.
    """

    array = before = computed = dtype = edge = numbers = origin = rank = shape = None
    readers = 1
    isMerged = isShared = isWeight = False

    def __init__(self, items: list[Any], isAbsent: bool = False):
        self.items, self.isAbsent, self.name = items, isAbsent, ""


def flattened(values: list[Any]) -> list[Any]:
    """Values, with sequences replaced by their elements."""
    return [item for v in values for item in (v.items if isinstance(v, OnnxSequence) else [v])]


def structureOf(values: list[Any]) -> list[int | None]:
    """The length of each sequence among some values; None for other values."""
    return [len(v.items) if isinstance(v, OnnxSequence) else None for v in values]


def regrouped(values: list[Any], structure: list[int | None]) -> list[Any]:
    """Flattened values, grouped into sequences again."""
    left, groups = list(values), []
    for length in structure:
        count = 1 if length is None else length
        items, left = left[:count], left[count:]
        groups.append(items[0] if length is None else OnnxSequence(items))
    return groups
