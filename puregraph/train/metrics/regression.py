"""Metrics of numbers that are predicted: errors, and the share of the variance that predictions explain."""

from __future__ import annotations

from typing import Any

import numpy as np

from puregraph.core.errors import DataError
from puregraph.train.metrics.metric import Metric


class _ErrorSums(Metric):
    """The sums from which all of these are made: of 1, e, e^2, t, t^2, x, x^2 and x t, with e = x - t."""

    better = "min"
    comparesValues = True

    def reset(self) -> None:
        self.sums = np.zeros(8)

    def share(self, prediction: np.ndarray, target: np.ndarray) -> np.ndarray:
        if prediction.shape != target.shape:
            raise DataError(f"{self.name}: wanted targets of shape {prediction.shape}, got {target.shape}")
        x, t = prediction.astype(np.float64), target.astype(np.float64)
        e = x - t
        return np.array([e.size, *(y.sum() for y in (e, e * e, t, t * t, x, x * x, x * t))])

    def value(self) -> float:
        if not self.sums[0]:
            return float("nan")
        with np.errstate(divide="ignore", invalid="ignore"):
            return float(self.figure(self.sums[0], *self.sums[1:] / self.sums[0]))

    def figure(self, n: float, *means: float) -> Any:
        """The figure from the number of elements and the means of e, e^2, t, t^2, x, x^2 and x t."""
        raise NotImplementedError(f"{type(self).__name__} is no figure: write figure(self, n, *means)")


class SquaredError(_ErrorSums):
    """The mean of (x - t)^2 over all elements.

    Raises    DataError if predictions and targets differ in shape: nothing is broadcast

    >>> metric = SquaredError()
    >>> metric.update(np.array([1.0, 4.0]), np.array([1.0, 2.0]))
    >>> metric.value()
    2.0
    """

    def figure(self, n: float, *means: float) -> Any:
        return means[1]


class RMSE(_ErrorSums):
    """The root of the mean of (x - t)^2 over all elements, in the unit of the targets.

    Raises    DataError if predictions and targets differ in shape: nothing is broadcast

    >>> metric = RMSE()
    >>> metric.update(np.array([1.0, 4.0]), np.array([1.0, 1.0]))
    >>> round(metric.value(), 4)
    2.1213
    """

    def figure(self, n: float, *means: float) -> Any:
        return np.sqrt(means[1])


class R2(_ErrorSums):
    """r2 = 1 - sum (x - t)^2 / sum (t - mean t)^2 over all elements: 1 is perfect, 0 as good as the mean of targets.

    It is nan where all targets are equal.

    Source    Wright 1921, Correlation and Causation, Journal of Agricultural Research 20
    Raises    DataError if predictions and targets differ in shape: nothing is broadcast

    >>> metric = R2()
    >>> metric.update(np.array([1.0, 2.0, 4.0]), np.array([1.0, 2.0, 3.0]))
    >>> round(metric.value(), 3)
    0.5
    """

    better = "max"

    def figure(self, n: float, *means: float) -> Any:
        return 1 - means[1] / np.float64(max(means[3] - means[2] ** 2, 0.0))


class ExplainedVariance(_ErrorSums):
    """1 - var(x - t) / var(t) over all elements: as `R2`, but a constant error costs nothing.

    Raises    DataError if predictions and targets differ in shape: nothing is broadcast

    >>> metric = ExplainedVariance()
    >>> metric.update(np.array([2.0, 3.0, 4.0]), np.array([1.0, 2.0, 3.0]))
    >>> metric.value()
    1.0
    """

    better = "max"

    def figure(self, n: float, *means: float) -> Any:
        return 1 - (means[1] - means[0] ** 2) / np.float64(means[3] - means[2] ** 2)


class Pearson(_ErrorSums):
    """The correlation of predictions and targets, over all elements: cov(x, t) / sqrt(var(x) var(t)).

    Source    Pearson 1895, Note on Regression and Inheritance, Proceedings of the Royal Society 58
    Raises    DataError if predictions and targets differ in shape: nothing is broadcast

    >>> metric = Pearson()
    >>> metric.update(np.array([1.0, 2.0, 3.0]), np.array([2.0, 4.0, 6.0]))
    >>> round(metric.value(), 12)
    1.0
    """

    better = "max"

    def figure(self, n: float, *means: float) -> Any:
        _, _, t, tt, x, xx, xt = means
        return (xt - x * t) / np.sqrt(np.float64((xx - x * x) * (tt - t * t)))


class MAPE(Metric):
    """The mean of |x - t| / |t| over all elements: the mean relative error; a target of 0 counts as the least float.

    Raises    DataError if predictions and targets differ in shape: nothing is broadcast

    >>> metric = MAPE()
    >>> metric.update(np.array([1.0, 3.0]), np.array([2.0, 2.0]))
    >>> metric.value()
    0.5
    """

    better = "min"
    comparesValues = True

    def share(self, prediction: np.ndarray, target: np.ndarray) -> tuple[float, float]:
        if prediction.shape != target.shape:
            raise DataError(f"{self.name}: wanted targets of shape {prediction.shape}, got {target.shape}")
        x, t = prediction.astype(np.float64), target.astype(np.float64)
        return (np.abs(x - t) / np.maximum(np.abs(t), np.finfo(np.float64).eps)).sum(), target.size
