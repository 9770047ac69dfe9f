"""Split: a part of the samples held out, the same one for the same seed."""

from __future__ import annotations

from typing import Any

import numpy as np

from puregraph import device
from puregraph.arguments import Flag, Fraction, Natural, optional, takes
from puregraph.data.arrays import isSeveral, pairFrom, rowsOf
from puregraph.errors import DataError

Pair = tuple[Any, Any]


@takes(part=Fraction, seed=optional(Natural), stratify=Flag)
def split(data: Any, target: Any, part: float = 0.25, seed: int = 0, stratify: bool = True) -> tuple[Pair, Pair]:
    """((data, target), (data, target)) of what stays and of the `part` held out, each in its old order.

    `stratify`  hold out this part of every class, to within one sample; `target` then holds classes. False draws from
                all samples alike.

    Lists of arrays stay lists.

    Raises    DataError if lengths differ, either side would be empty, or classes are wanted and `target` holds none
    """
    inputs, targets = pairFrom(data, target)
    if not targets:
        raise DataError("split: wanted data and target, got data alone")
    samples = len(inputs[0])
    count = round(part * samples)
    if not 0 < part < 1 or not 0 < count < samples:
        raise DataError(f"part: wanted at least one of {samples} samples on each side, got {part}")
    rng = np.random.default_rng(seed)
    classes = classesFrom(device.toHost(targets[0])) if stratify else np.zeros(samples, np.int64)
    chosen = heldOut(classes, count, rng)
    return tuple(  # type: ignore[return-value]
        (rows(data, inputs, side), rows(target, targets, side)) for side in (~chosen, chosen)
    )


def classesFrom(target: Any) -> np.ndarray:
    """The class of each sample, as integers from 0 on."""
    if target.dtype.kind not in "iub" or target.ndim != 1:
        raise DataError(
            f"stratify: wanted a target of one whole number for each sample, got shape {tuple(target.shape)} of "
            f"{target.dtype}; stratify=False draws from all samples alike"
        )
    return np.unique(target, return_inverse=True)[1].reshape(-1)


def heldOut(classes: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """Which samples are held out: of each class its share of `count`, rounded by largest remainder."""
    sizes = np.bincount(classes)
    share = sizes * (count / len(classes))
    quota = np.floor(share).astype(np.int64)
    most = np.argsort(quota - share, kind="stable")[: count - quota.sum()]
    quota[most] += 1
    chosen = np.zeros(len(classes), bool)
    for number, held in enumerate(quota):
        chosen[rng.permutation(np.flatnonzero(classes == number))[:held]] = True
    return chosen


def rows(given: Any, arrays: list[Any], side: np.ndarray) -> Any:
    """The chosen rows, as a list only where a list of arrays was given."""
    order = np.flatnonzero(side)
    found = [rowsOf(x, order, device.toDevice(order) if device.isDeviceArray(x) else None) for x in arrays]
    return found if isSeveral(given) else found[0]
