"""Class rows: numbers of classes by label, and rows that have a number at their class."""

from __future__ import annotations

from typing import Any

from puregraph.ops.gather.reference import gather, putClass


def ofLabels(values: Any, index: Any) -> Any:
    """The number of each label's class; labels below 0 get 0."""
    return gather(values, index)


def atLabels(values: Any, index: Any, classes: int) -> Any:
    """Zeros but for a number at the class of each label: (n, ...) -> (n, classes, ...)."""
    return putClass(values, index, classes)
