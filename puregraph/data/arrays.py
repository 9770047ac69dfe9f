"""Arrays as a user gives them: one, or a list of them, checked before anything runs."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from puregraph.core import device
from puregraph.core.accumulate import needPlain
from puregraph.core.base.dtype import isNumeric
from puregraph.core.errors import DataError, show
from puregraph.graph.lookup import few

if TYPE_CHECKING:
    from puregraph.core.protocols import AnyArray


def isArray(value: Any) -> bool:
    """True for an array with axes, on any device; False for a scalar."""
    return hasattr(value, "dtype") and bool(getattr(value, "shape", ()))


def isSeveral(value: object) -> bool:
    """True for a list of arrays, one for each input or target."""
    return isinstance(value, (list, tuple)) and len(value) > 0 and all(map(isArray, value))


def arraysFrom(value: Any, what: str) -> list[AnyArray]:
    """Convert an array or a list of arrays to a list; lists of numbers, tables and tensors become arrays.

    Raises    DataError unless they are numeric, have a first axis, and agree in its length
    """
    several = isSeveral(value)
    names = [f"{what}[{number}]" for number in range(len(value))] if several else [what]
    arrays = [plain(array, name) for array, name in zip(value if several else [value], names, strict=True)]
    for array, name in zip(arrays, names, strict=True):
        if not isNumeric(array.dtype):
            raise DataError(f"{name}: wanted numbers, got dtype {array.dtype}{kindHint(value, array, what)}")
        if len(array.shape) == 0:
            raise DataError(f"{name}: wanted samples along the first axis, got a single number")
    checkLengths(dict(zip(names, arrays)), what)
    return arrays


def checkLengths(arrays: dict[str, AnyArray], what: str) -> None:
    """Refuse arrays of several lengths, and none at all.

    Raises    DataError naming them with their lengths
    """
    if not arrays:
        raise DataError(f"{what}: wanted at least one array, got none")
    (first, length), *others = [(name, len(array)) for name, array in arrays.items()]
    odd = [f"{count} of '{name}'" for name, count in others if count != length]
    if odd:
        raise DataError(f"{what}: wanted arrays of one length, got {length} samples of '{first}', {few(odd, 8)}")


def plain(value: Any, name: str) -> Any:
    """Convert a value to an array whose rows are indexed by position; arrays of a device or an HDF5 file are kept."""
    needPlain(value, name)
    isKept = isArray(value) and isinstance(value.dtype, np.dtype) and not isinstance(value, np.ndarray)
    if device.isDeviceArray(value) or isKept and not hasattr(value, "iloc"):  # a pandas Series is indexed by labels
        return value
    try:
        return np.asarray(value)
    except (ValueError, TypeError, RuntimeError) as error:
        hint = objectHint(value, name)
        why = "" if hint else f": {error}"
        raise DataError(f"{name}: wanted an array or a list of arrays, got values that make none{why}{hint}") from None


def kindHint(value: object, array: AnyArray, what: str) -> str:
    """Return a hint for an array that holds no numbers, but class names or objects."""
    hint = objectHint(value, what)
    isText = array.dtype.kind in "UST" or isinstance(next(iter(getattr(array, "flat", ())), None), str)
    if not hint and what == "target" and isText:
        return "; names, target = np.unique(target, return_inverse=True) counts classes from 0"
    if not hint and array.dtype.kind == "O":
        return "; array.astype('float32') makes numbers of objects"
    return hint


def objectHint(value: object, name: str) -> str:
    """Return a hint for values that form no numeric array: None, sequences of different lengths, a table."""
    if hasattr(value, "columns"):
        return "; TableReader(numbers=[...], categories=[...], classes=...) makes arrays of a table"
    if not isinstance(value, (list, tuple)):
        return ""
    nothing = next((i for i, element in enumerate(value) if element is None), None)
    if nothing is not None:
        hint = "; an output without a target has no cost: CostSum({name: cost}) names those that have one"
        return f"; {name}[{nothing}] is None{hint if name == 'target' else ''}"
    lengths = {len(sequence) for sequence in value if hasattr(sequence, "__len__")}
    if len(lengths) > 1 and not any(map(isArray, value)):
        return "; sequences of several lengths become one array and their lengths by padded(sequences)"
    return ""


def rowsOf(array: AnyArray, rows: Any, there: Any = None) -> AnyArray:
    """Select rows, in the order of `rows`. A file is read in ascending order. On a GPU, `there` holds the same rows on
    the device."""
    if device.isDeviceArray(array):
        return array[rows if there is None else there]
    if isinstance(rows, slice) or isinstance(array, np.ndarray):
        return array[rows]
    order = np.argsort(rows)
    ascending = array[rows[order]]
    return ascending[np.argsort(order)]


def pairFrom(data: Any, target: AnyArray | None) -> tuple[list[Any], list[Any]]:
    """Data and target as lists of arrays of one length; no target is an empty list.

    Raises    DataError if they differ in length or in the order of their rows, or are empty
    """
    checkRows(data=data, target=target)
    inputs = arraysFrom(data, "data")
    targets = [] if target is None else arraysFrom(target, "target")
    checkPair(inputs, targets)
    return inputs, targets


def checkRows(**tables: Any) -> None:
    """Refuse tables with equal rows in different orders, as after `frame.sample(frac=1)` of one of them, because rows
    are matched by position."""
    labels = [(what, getattr(table, "index", None)) for what, table in tables.items() if hasattr(table, "iloc")]
    indexed = [(what, index) for what, index in labels if index is not None]
    for (first, firstIndex), (second, secondIndex) in pairwise(indexed):
        isMixed = len(firstIndex) == len(secondIndex) and not firstIndex.equals(secondIndex)
        if isMixed and Counter(firstIndex) == Counter(secondIndex):
            raise DataError(
                f"{first} and {second}: wanted rows in one order, got the same labels of rows in another; rows are "
                f"taken by position: {second}.loc[{first}.index] brings them into one order"
            )


def checkPair(inputs: list[AnyArray], targets: list[AnyArray]) -> None:
    """Refuse data without a sample, and targets of another length."""
    samples = len(inputs[0])
    if targets and len(targets[0]) != samples:
        count = len(inputs)
        hint = f"; a list of {count} arrays is {count} inputs, np.stack(data) makes one" if count > 1 else ""
        raise DataError(
            f"data has {samples} samples, target {len(targets[0])}: wanted one target for each sample{hint}"
        )
    if samples == 0:
        raise DataError(f"wanted at least one sample, got data of shape {tuple(inputs[0].shape)}")


def weightFrom(weight: Any, samples: int) -> AnyArray:
    """The weights of samples as an array of floats.

    Raises    DataError unless they are one finite number from 0 on for each sample; it names the first that is not
    """
    if isinstance(weight, dict):
        hint = "CrossEntropy(weights={0: 1, 1: 5}) weighs classes"
        raise DataError(f"sampleWeight: wanted a number for each of {samples} samples, got a dict; {hint}")
    (array,) = arraysFrom([weight if isArray(weight) else np.asarray(weight)], "sampleWeight")
    if array.shape != (samples,):
        raise DataError(f"sampleWeight: wanted a number for each of {samples} samples, got shape {show(array.shape)}")
    there = device.toHost(array[:])
    wrong = ~(np.isfinite(there) & (there >= 0))
    if wrong.any():
        i = int(wrong.argmax())
        raise DataError(f"sampleWeight: wanted finite numbers from 0 on, got {there[i]} for sample {i}")
    return array.astype(np.float32) if array.dtype.kind in "iub" else array
