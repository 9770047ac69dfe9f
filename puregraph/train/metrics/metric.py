"""Metric: a figure of a whole data set, gathered batch by batch."""

from __future__ import annotations

from inspect import signature
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from puregraph.core import device
from puregraph.core.arguments import Size, Text, takes
from puregraph.core.base.dtype import isFloating
from puregraph.core.base.keywords import ChecksKeywords
from puregraph.core.errors import ArgumentError, DataError, show
from puregraph.ops.gather.labels import labelFault, positionOf

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from puregraph.core.protocols import AnyArray
    from puregraph.data import Batch


M = TypeVar("M", bound="Metric")


class Metric(ChecksKeywords):
    """A ratio of two sums over batches; a subclass computes in `share` what a batch adds to them.

    `weighted()` makes it a weighted mean, if `share` takes the weights of samples as a third argument.

    `which`   the index of its output and its target, if there are several
    `name`    its name in the history; by default that of its class in lower case
    `better`  "max" or "min": which way is better
    """

    better = "max"
    comparesValues = False  # True if predictions are compared with targets as numbers, so not logits
    target: int | None = None  # the index of its target, if other than `which`
    isWeighted = False  # True if it reads the sampleWeight of a Trainer or Validator
    isAdded = False  # True if it is a term of the loss that no cost has
    comparesArrays = True  # False if `share` takes predictions and targets as they are, such as texts
    gathered: tuple[str, ...] = ()  # names of arrays in state() that grow with the samples

    @takes(which=Size, name=Text | None)
    def __init__(self, which: int = 0, name: str | None = None):
        self.which = which
        self.name = type(self).__name__.lower() if name is None else name
        self.reset()

    def reset(self) -> None:
        """Set the sums to zero."""
        self.sums: np.ndarray = np.zeros(2)

    def weighted(self: M) -> M:
        """Weight samples by the `sampleWeight` of a Trainer or Validator; return the metric, named "weighted ...".

        A sample counts 1 where there are no weights, as in the cost.

        Raises    ArgumentError for a metric that is not defined with weights
        """
        self.needWeights()
        if not self.isWeighted:
            self.isWeighted, self.name = True, f"weighted {self.name}"
            self.reset()
        return self

    def needWeights(self) -> None:
        """Check that `share` takes weights."""
        if not all("weight" in signature(method).parameters for method in (self.update, self.share)):
            raise ArgumentError(
                f"{type(self).__name__}: takes no weights of samples; leave them out; a class of your own takes them "
                "by share(self, prediction, target, weight=None)"
            )

    def update(self, prediction: AnyArray, target: AnyArray, weight: AnyArray | None = None) -> None:
        """Add a batch of predictions and their targets; arrays on a GPU are copied to the host.

        `weight` has a number for each sample, or for each position of the targets.
        """
        added = self.share(*self.onHost(prediction, target, weight))
        if np.shape(added) != self.sums.shape:  # one number would be added to both sums
            got = f"{added!r:.60}" if np.ndim(added) == 0 else f"shape {np.shape(added)}"
            wanted = "two sums, such as how many are right and of how many"
            wanted = wanted if self.sums.shape == (2,) else f"sums of shape {self.sums.shape}"
            raise DataError(f"{self.name}: wanted share(prediction, target) to give {wanted}, got {got}")
        self.sums = self.sums + added

    def onHost(self, prediction: AnyArray, target: AnyArray, weight: AnyArray | None) -> list[np.ndarray]:
        """Return predictions, targets and, if there are any, weights as numpy arrays.

        Raises    ArgumentError for weights of a metric that is not defined with them
        """
        pair: list[Any] = (
            [device.toHost(prediction), device.toHost(target)] if self.comparesArrays else [prediction, target]
        )
        if weight is None:
            return pair
        self.needWeights()
        return [*pair, checkedWeight(device.toHost(weight), self.name)]

    def share(self, *arrays: Any, **options: Any) -> ArrayLike:
        """Return the sums that a batch adds: numerator and denominator; written as share(prediction, target).

        With a third argument, weight=None, the metric takes weights of samples.
        """
        raise NotImplementedError(f"{type(self).__name__} counts nothing: write share(self, prediction, target)")

    def read(self, outputs: list[Any], batch: Batch) -> list[Any]:
        """Return the arguments of `update` for a batch: output, target, and the weights for a weighted metric."""
        weight = batch.target[-1] if self.isWeighted and batch.isWeighed else None
        return [self.chosen(outputs, "outputs"), self.chosen(batch.target, "targets"), weight]

    def chosen(self, arrays: list[Any], what: str) -> AnyArray:
        """Return the output or target that this metric uses; `what` is "outputs" or "targets"."""
        which = self.which if self.target is None or what == "outputs" else self.target
        if which >= len(arrays):
            raise DataError(f"{self.name}: wanted number {which} of the {what}, got {len(arrays)}")
        return arrays[which]

    def value(self) -> Any:
        """Return the figure so far; nan before anything was counted."""
        over, under = self.sums
        return float(over / under) if under else float("nan")

    def state(self) -> dict[str, object]:
        """Return the running sums, to be saved."""
        return {"sums": self.sums.copy()}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from saved sums."""
        dtype = np.result_type(self.sums, np.asarray(state["sums"]))  # weighted counts are floats
        self.sums = np.array(state["sums"], dtype).reshape(self.sums.shape)

    def merge(self, state: dict[str, Any]) -> None:
        """Add the `state` of another metric of this class: numbers are added, bools are combined by `and`."""
        merged = self.state()
        for name, value in state.items():
            before: Any = merged[name]
            isFlag = np.asarray(before).dtype == np.bool_
            merged[name] = before and bool(value) if isFlag else before + value
        self.restore(merged)

    def doubt(self) -> str:
        """Return why the figure is nan although samples were counted; empty if it is a number."""
        return ""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name} = {self.value()})"


def labelled(
    prediction: np.ndarray, target: np.ndarray, metric: Any, weight: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Return (predictions, labels, weights) of the positions that count: (positions, classes), (positions,) twice.

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
    rows, weights = np.moveaxis(prediction, axis, -1), perPosition(weight, target.shape, metric.name)
    if metric.ignore is None:
        flat = None if weights is None else weights.reshape(-1)
        return rows.reshape(-1, rows.shape[-1]), target.reshape(-1).astype(np.int64), flat
    counts = target != metric.ignore
    return rows[counts], target[counts].astype(np.int64), None if weights is None else weights[counts]


def checkedWeight(weight: np.ndarray, name: str) -> np.ndarray:
    """Return weights of samples as float64.

    Raises    DataError for weights that are not finite numbers from 0 on
    """
    if weight.dtype.kind not in "biuf" or not (np.isfinite(weight) & (weight >= 0)).all():
        raise DataError(f"{name}: wanted weights of finite numbers from 0 on, got {weight!r:.80}")
    return weight.astype(np.float64)


def perPosition(weight: np.ndarray | None, shape: tuple[int, ...], name: str) -> np.ndarray | None:
    """Return the weight of each position, from one for each sample or for the leading axes of the positions.

    Raises    DataError for weights of another shape
    """
    if weight is None:
        return None
    if weight.ndim == 0 or weight.shape != shape[: weight.ndim]:
        raise DataError(f"{name}: wanted a weight for each sample of targets {show(shape)}, got shape {weight.shape}")
    return np.broadcast_to(weight.reshape(weight.shape + (1,) * (len(shape) - weight.ndim)), shape)


def total(values: np.ndarray, weight: np.ndarray | None) -> Any:
    """Return the sum of values, times their weights if there are any; those of weight 0 may be infinite or nan."""
    return (
        values.sum()
        if weight is None
        else np.multiply(values, weight, where=weight > 0, out=np.zeros(values.shape)).sum()
    )


def size(values: np.ndarray, weight: np.ndarray | None) -> Any:
    """Return the number of values, or the sum of their weights."""
    return values.size if weight is None else weight.sum()


def decisions(prediction: np.ndarray, target: np.ndarray, metric: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return (taken, there): where predictions are above the metric's threshold, and where targets of 0 and 1 are 1.

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


def numbers(
    prediction: np.ndarray, target: np.ndarray, metric: Metric, weight: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Return (predictions, targets, weights) of a regression, flattened, in float64.

    Raises    DataError if predictions and targets differ in shape: nothing is broadcast
    """
    if prediction.shape != target.shape:
        raise DataError(f"{metric.name}: wanted targets of shape {prediction.shape}, got {target.shape}")
    weights = perPosition(weight, target.shape, metric.name)
    x, t = (values.reshape(-1).astype(np.float64) for values in (prediction, target))
    return x, t, None if weights is None else weights.reshape(-1)


def needNotNan(values: np.ndarray, name: str, what: str = "predictions") -> None:
    """Check that there is no nan, which has no order.

    Raises    DataError naming its position
    """
    if values.dtype.kind == "f" and np.isnan(values).any():
        first = tuple(np.argwhere(np.isnan(values))[0].tolist())
        raise DataError(f"{name}: wanted {what} that are numbers, got nan{positionOf(first)}")


def isOneHot(target: np.ndarray, axis: int) -> bool:
    """Return True if the axis has several classes, and each position has a single 1 among zeros."""
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
