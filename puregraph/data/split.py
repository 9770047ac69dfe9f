"""Split: a part of the samples held out, the same one for the same seed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from puregraph.core import device
from puregraph.core.arguments import Flag, Fraction, Size, takes
from puregraph.core.errors import DataError
from puregraph.data.arrays import arraysFrom, checkLengths, checkPair, checkRows, isSeveral, plain, rowsOf

if TYPE_CHECKING:
    from puregraph.core.protocols import AnyArray

Pair = tuple[Any, Any]


@takes(part=Fraction, seed=Size | None, stratify=Flag)
def split(
    data: Any, target: AnyArray | None = None, part: float = 0.25, seed: int = 0, stratify: bool = True
) -> tuple[Pair, Pair]:
    """Return ((data, target), (data, target)): the samples kept, and the `part` held out, each in the original order.

    `stratify`  hold out this part of every class, up to rounding; `target` then holds classes. False draws from all
                samples alike.

    Lists of arrays stay lists, dicts stay dicts. Tables, dicts of columns of text or DataFrames, stay tables, too, so
    that a TableReader can be fitted to the samples kept.

    Raises    DataError if lengths differ, either side would be empty, or with `stratify` `target` holds no classes
    """
    if target is None:
        raise DataError(
            "split: wanted data and target, got data alone; of a table the target is one of its columns: "
            "(train, _), (test, _) = split(table, table['bought'])"
        )
    checkRows(data=data, target=target)
    inputs, targets = columnsOf(data, "data"), columnsOf(target, "target")
    samples = len(inputs[0])
    checkPair(inputs, targets)
    count = round(part * samples)
    if not 0 < part < 1 or not 0 < count < samples:
        raise DataError(f"part: wanted at least one of {samples} samples on each side, got {part}")
    rng = np.random.default_rng(seed)
    classes = classesFrom(device.toHost(targets[0])) if stratify else np.zeros(samples, np.int64)
    chosen = heldOut(classes, count, rng)
    return tuple(  # type: ignore[return-value]
        (rows(data, inputs, side), rows(target, targets, side)) for side in (~chosen, chosen)
    )


def isFrame(value: object) -> bool:
    """True for a DataFrame, whose rows are not indexed like those of an array."""
    return hasattr(value, "columns") and hasattr(value, "shape")


def columnsOf(data: Any, what: str) -> list[AnyArray]:
    """Return the columns to split: those of a dict, a DataFrame, a single column, an array, or a list of arrays.

    Raises    DataError for an empty dict, and for anything but numbers outside of a table
    """
    if isinstance(data, dict):
        columns = [plain(column, f"{what}[{name!r}]") for name, column in data.items()]
        checkLengths(dict(zip(data, columns)), what)
        return columns
    if isFrame(data):
        return [data]
    isColumn = getattr(getattr(data, "dtype", None), "kind", "") in ("O", "S", "U")
    return [plain(data, what)] if isColumn else arraysFrom(data, what)


def classesFrom(target: AnyArray) -> np.ndarray:
    """The class of each sample, of numbers or texts, as integers from 0 on."""
    if target.dtype.kind not in "iubSUO" or target.ndim != 1:
        raise DataError(
            f"stratify: wanted a target of one whole number for each sample, got shape {tuple(target.shape)} of "
            f"{target.dtype}; stratify=False draws from all samples alike"
        )
    names = target.astype(str) if target.dtype.kind == "O" else target
    return np.unique(names, return_inverse=True)[1].reshape(-1)


def heldOut(classes: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """Choose the samples to hold out, as a mask: `count` shared among classes in proportion, by largest remainder."""
    sizes = np.bincount(classes)
    share = sizes * (count / len(classes))
    quota = np.floor(share).astype(np.int64)
    most = np.argsort(quota - share, kind="stable")[: count - quota.sum()]
    quota[most] += 1
    chosen = np.zeros(len(classes), bool)
    for number, held in enumerate(quota):
        chosen[rng.permutation(np.flatnonzero(classes == number))[:held]] = True
    return chosen


def rows(data: Any, arrays: list[AnyArray], side: np.ndarray) -> Any:
    """Select rows; the result is a list or dict if the data is one."""
    order = np.flatnonzero(side)
    if isFrame(data):
        return data.iloc[order] if hasattr(data, "iloc") else data[order]
    chosen = [rowsOf(x, order, device.toDevice(order) if device.isDeviceArray(x) else None) for x in arrays]
    if isinstance(data, dict):
        return dict(zip(data, chosen))
    return chosen if isSeveral(data) else chosen[0]
