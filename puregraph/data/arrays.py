"""Arrays as a user gives them: one, or a list of them, checked before anything runs."""

from __future__ import annotations

from typing import Any

import numpy as np

from puregraph import device
from puregraph.base.dtype import isNumeric
from puregraph.errors import DataError, show


def isArray(value: Any) -> bool:
    """Whether it has a shape and a dtype, on whichever device, and is no scalar."""
    return hasattr(value, "dtype") and bool(getattr(value, "shape", ()))


def isSeveral(value: Any) -> bool:
    """Whether it is a list of arrays, one for each input or target."""
    return isinstance(value, (list, tuple)) and len(value) > 0 and all(map(isArray, value))


def arraysFrom(value: Any, what: str) -> list[Any]:
    """One array or a list of arrays as a list; lists of numbers, tables and tensors become arrays.

    Raises    DataError unless they are numeric, have a first axis, and agree in its length
    """
    several = isSeveral(value)
    names = [f"{what}[{number}]" for number in range(len(value))] if several else [what]
    given = [plain(array, name) for array, name in zip(value if several else [value], names, strict=True)]
    for array, name in zip(given, names, strict=True):
        if not isNumeric(array.dtype):
            raise DataError(f"{name}: wanted numbers, got dtype {array.dtype}")
        if len(array.shape) == 0:
            raise DataError(f"{name}: wanted samples along the first axis, got a single number")
    lengths = [len(array) for array in given]
    if len(set(lengths)) > 1:
        raise DataError(f"{what}: wanted arrays of one length, got {', '.join(map(str, lengths))} samples")
    return given


def plain(value: Any, name: str) -> Any:
    """An array whose rows are indexed by position: numpy's, the device's, or one that stays in its HDF5 file."""
    if isinstance(value, np.ma.MaskedArray):
        raise DataError(f"{name}: wanted plain numbers, got a masked array; fill it, as in array.filled(0)")
    isKept = isArray(value) and isinstance(value.dtype, np.dtype) and not isinstance(value, np.ndarray)
    if device.isDeviceArray(value) or isKept and not hasattr(value, "iloc"):  # a pandas Series looks for labels
        return value
    try:
        return np.asarray(value)
    except (ValueError, TypeError, RuntimeError) as error:
        raise DataError(f"{name}: wanted an array or a list of arrays, got what makes none: {error}") from None


def rowsOf(array: Any, rows: Any, there: Any = None) -> Any:
    """Some rows, in the order of `rows`; from a file they are read in the file's own, and on a GPU by `there`, which is
    the same order there."""
    if device.isDeviceArray(array):
        return array[rows if there is None else there]
    if isinstance(rows, slice) or isinstance(array, np.ndarray):
        return array[rows]
    order = np.argsort(rows)
    found = array[rows[order]]
    return found[np.argsort(order)]


def pairFrom(data: Any, target: Any) -> tuple[list[Any], list[Any]]:
    """Data and target as lists of arrays of one length; no target is an empty list.

    Raises    DataError if they differ in length or are empty
    """
    given = arraysFrom(data, "data")
    targets = [] if target is None else arraysFrom(target, "target")
    samples = len(given[0])
    if targets and len(targets[0]) != samples:
        count = len(given)
        hint = f"; a list of {count} arrays is {count} inputs, np.stack(data) makes one" if count > 1 else ""
        raise DataError(
            f"data has {samples} samples, target {len(targets[0])}: wanted one target for each sample{hint}"
        )
    if samples == 0:
        raise DataError(f"wanted at least one sample, got data of shape {tuple(given[0].shape)}")
    return given, targets


def weightFrom(weight: Any, samples: int) -> Any:
    """The weights of samples as an array of floats.

    Raises    DataError unless they are one finite number from 0 on for each sample; it names the first that is not
    """
    (array,) = arraysFrom([weight if isArray(weight) else np.asarray(weight)], "sampleWeight")
    if array.shape != (samples,):
        raise DataError(f"sampleWeight: wanted a number for each of {samples} samples, got shape {show(array.shape)}")
    there = device.toHost(array[:])
    wrong = ~(np.isfinite(there) & (there >= 0))
    if wrong.any():
        i = int(wrong.argmax())
        raise DataError(f"sampleWeight: wanted finite numbers from 0 on, got {there[i]} for sample {i}")
    return array.astype(np.float32) if array.dtype.kind in "iub" else array
