"""Arrays as a user gives them: one, or a list of them, checked before anything runs."""

from __future__ import annotations

from typing import Any

import numpy as np

from puregraph.errors import DataError


def isArray(value: Any) -> bool:
    """Whether it has a shape and a dtype, on whichever device."""
    return hasattr(value, "shape") and hasattr(value, "dtype")


def arraysFrom(value: Any, what: str) -> list[Any]:
    """One array or a list of arrays as a list; lists of numbers become an array.

    Raises    DataError unless they hold numbers, have a first axis, and agree in its length
    """
    several = isinstance(value, (list, tuple)) and len(value) > 0 and all(map(isArray, value))
    given = list(value) if several else [value if isArray(value) else fromList(value, what)]
    for number, array in enumerate(given):
        name = f"{what}[{number}]" if several else what
        if array.dtype.kind not in "fiub":
            raise DataError(f"{name}: wanted numbers, got dtype {array.dtype}")
        if len(array.shape) == 0:
            raise DataError(f"{name}: wanted samples along the first axis, got a single number")
    lengths = [len(array) for array in given]
    if len(set(lengths)) > 1:
        raise DataError(f"{what}: wanted arrays of one length, got {', '.join(map(str, lengths))} samples")
    return given


def fromList(value: Any, what: str) -> np.ndarray:
    """An array from rows of numbers."""
    try:
        return np.asarray(value)
    except ValueError as error:
        raise DataError(f"{what}: wanted an array or a list of arrays, got rows that make none: {error}") from None


def pairFrom(data: Any, target: Any) -> tuple[list[Any], list[Any]]:
    """Data and target as lists of arrays of one length; no target is an empty list.

    Raises    DataError if they differ in length or are empty
    """
    given = arraysFrom(data, "data")
    targets = [] if target is None else arraysFrom(target, "target")
    samples = len(given[0])
    if targets and len(targets[0]) != samples:
        raise DataError(f"data has {samples} samples, target {len(targets[0])}: wanted one target for each sample")
    if samples == 0:
        raise DataError(f"wanted at least one sample, got data of shape {tuple(given[0].shape)}")
    return given, targets
