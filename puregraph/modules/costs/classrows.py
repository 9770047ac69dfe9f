"""Class rows: values of classes read by label, and values written at the class of each label."""

from __future__ import annotations

from typing import Any

from puregraph.ops.gather.reference import gather, putClass


def ofLabels(values: Any, index: Any) -> Any:
    """Return values[label] for each label; 0 for labels below 0."""
    return gather(values, index)


def atLabels(values: Any, index: Any, classes: int) -> Any:
    """Return zeros, except each value at the class of its label: (n, ...) -> (n, classes, ...)."""
    return putClass(values, index, classes)
