"""Metric: a figure of a whole data set, gathered batch by batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from puregraph.core import device
from puregraph.core.arguments import Natural, Text, optional, takes
from puregraph.core.base.dtype import isFloating
from puregraph.core.base.keywords import ChecksKeywords
from puregraph.core.errors import DataError, show
from puregraph.ops.gather.labels import labelFault, positionOf

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from puregraph.core.protocols import AnyArray


class Metric(ChecksKeywords):
    """A ratio of two sums, to which every batch adds; a subclass says what it adds.

    `which`   the output and the target it looks at, where there are several
    `name`    what it is called in the history; by default its class in lower case
    `better`  "max" or "min": which way is better
    """

    better = "max"
    comparesValues = False  # whether predictions are to be near the targets, so that logits make no sense
    target: int | None = None  # which target it looks at, if not that of its output

    @takes(which=Natural, name=optional(Text))
    def __init__(self, which: int = 0, name: str | None = None):
        self.which = which
        self.name = type(self).__name__.lower() if name is None else name
        self.reset()

    def reset(self) -> None:
        """Begin anew."""
        self.sums: np.ndarray = np.zeros(2)

    def update(self, prediction: np.ndarray, target: np.ndarray) -> None:
        """Add a batch of predictions and their targets; arrays on a GPU are copied to the host."""
        added = self.share(device.toHost(prediction), device.toHost(target))
        if np.shape(added) != self.sums.shape:  # one number would be added to both sums
            got = f"{added!r:.60}" if np.ndim(added) == 0 else f"shape {np.shape(added)}"
            wanted = "two sums, such as how many are right and of how many"
            wanted = wanted if self.sums.shape == (2,) else f"sums of shape {self.sums.shape}"
            raise DataError(f"{self.name}: wanted share(prediction, target) to give {wanted}, got {got}")
        self.sums += added

    def share(self, prediction: np.ndarray, target: np.ndarray) -> ArrayLike:
        """Return the sums that a batch adds: numerator and denominator."""
        raise NotImplementedError(f"{type(self).__name__} counts nothing: write share(self, prediction, target)")

    def chosen(self, arrays: list[Any], what: str) -> AnyArray:
        """Return the output or target that this metric uses; `what` is "outputs" or "targets"."""
        which = self.which if self.target is None or what == "outputs" else self.target
        if which >= len(arrays):
            raise DataError(f"{self.name}: wanted number {which} of the {what}, got {len(arrays)}")
        return arrays[which]

    def value(self) -> Any:
        """The figure so far; nan before anything was counted."""
        over, under = self.sums
        return float(over / under) if under else float("nan")

    def state(self) -> dict[str, object]:
        """The running sums, to be saved."""
        return {"sums": self.sums.copy()}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from saved sums."""
        self.sums = np.array(state["sums"], self.sums.dtype).reshape(self.sums.shape)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name} = {self.value()})"


def labelled(prediction: np.ndarray, target: np.ndarray, metric: Any) -> tuple[np.ndarray, np.ndarray]:
    """(predictions, labels) of the positions that count, a row of classes and a number of one for each.

    Targets are labels, or one-hot: for each position zeros and one 1.

    Raises    DataError if they do not fit each other, or a label is no class
    """
    axis = metric.axis
    wanted = tuple(np.delete(prediction.shape, axis)) if -prediction.ndim <= axis < prediction.ndim else None
    if target.shape == prediction.shape and wanted is not None and isOneHot(target, axis):
        target = target.argmax(axis)
    if target.shape != wanted or target.dtype.kind not in "iub":
        raise DataError(
            f"{metric.name}: wanted predictions with classes on axis {axis} and a label for each position, "
            f"got predictions {prediction.shape} and {target.dtype} targets {target.shape}"
            + unlike(prediction, target, metric)
        )
    fault = labelFault(target, prediction.shape[axis], metric.ignore, "ignore")
    if fault:
        raise DataError(f"{metric.name}: {fault}")
    rows = np.moveaxis(prediction, axis, -1)
    if metric.ignore is None:
        return rows.reshape(-1, rows.shape[-1]), target.reshape(-1).astype(np.int64)
    counts = target != metric.ignore
    return rows[counts], target[counts].astype(np.int64)


def decisions(prediction: np.ndarray, target: np.ndarray, metric: Any) -> tuple[np.ndarray, np.ndarray]:
    """(taken, there): where predictions are a yes, above the metric's threshold, and where targets of 0 and 1 are one.

    Raises    DataError for other targets
    """
    other = (target != 0) & (target != 1)
    if other.any():
        first = tuple(np.argwhere(other)[0].tolist())
        isSigned = set(np.unique(target).tolist()) == {-1, 1}
        hint = "give (target + 1) / 2 in place of -1 and 1" if isSigned else "for a regression there is MAE()"
        raise DataError(
            f"{metric.name}: wanted targets 0 or 1 where they have the predictions' shape {show(target.shape)}, "
            f"got {target[first]}{positionOf(first)}; {hint}"
        )
    return prediction > metric.threshold, target > 0.5


def isOneHot(target: np.ndarray, axis: int) -> bool:
    """True if the axis has several classes, and each position has a single 1 among zeros."""
    if not -target.ndim <= axis < target.ndim or target.shape[axis] < 2:
        return False
    return bool(((target == 0) | (target == 1)).all() and (target.sum(axis) == 1).all())


def unlike(prediction: np.ndarray, target: np.ndarray, metric: Any) -> str:
    """Return a hint for targets that are not labels, or classes on another axis."""
    if target.shape == prediction.shape[:-1] and metric.axis not in (-1, prediction.ndim - 1):
        return f"; {type(metric).__name__}(axis=-1) takes classes from the last axis"
    if isFloating(target.dtype) and np.array_equal(target, np.rint(target)) and target.ndim < prediction.ndim:
        return "; convert them with .astype('int64')"
    if isFloating(target.dtype):
        return f"; for a regression there is MAE(), {type(metric).__name__} is of classes"
    return ""
