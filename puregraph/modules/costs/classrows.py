"""Class rows: values of classes read by label, and values written at the class of each label."""

from __future__ import annotations

from typing import Any

from puregraph.ops.gather.labels import classIndex
from puregraph.ops.gather.reference import gather, putClass, takeClass


def ofLabels(values: Any, index: Any) -> Any:
    """Return values[label] for each label; 0 for labels below 0."""
    return gather(values, index)


def atLabels(values: Any, index: Any, classes: int) -> Any:
    """Return zeros, except each value at the class of its label: (n, ...) -> (n, classes, ...)."""
    return putClass(values, index, classes)


def checkedIndex(labels: Any, classes: int, ignored: int | None = None) -> Any:
    """Return labels as int64, -1 for ignored ones; a label that is no class is refused."""
    return classIndex(labels, classes, ignored)


def ofClass(x: Any, index: Any) -> Any:
    """Return x[n, index[n], ...], the value at the class of each label; 0 for labels below 0."""
    return takeClass(x, index)
