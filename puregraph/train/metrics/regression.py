"""Metrics of numbers that are predicted: errors, and the share of the variance that predictions explain."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from puregraph.train.metrics.metric import Metric, numbers, size, total

if TYPE_CHECKING:
    from puregraph.core.protocols import AnyArray


class _CentralSums(Metric):
    """A figure from the weight n, the means of e = x - t, t and x, and the sums of squares and products about them.

    Sums of two parts are joined without subtracting large sums, so that a mean far from 0 costs no digits.

    Source    Chan, Golub, LeVeque 1983, Algorithms for Computing the Sample Variance, The American Statistician 37
    """

    comparesValues = True

    def reset(self) -> None:
        self.sums = np.zeros(8)  # n, the means of e, t and x, the central sums of e e, t t, x x and x t

    def update(self, prediction: AnyArray, target: AnyArray, weight: AnyArray | None = None) -> None:
        self.merge({"sums": self.share(*self.onHost(prediction, target, weight))})

    def share(self, prediction: np.ndarray, target: np.ndarray, weight: np.ndarray | None = None) -> np.ndarray:
        x, t, weights = numbers(prediction, target, self, weight)
        n = size(t, weights)
        if not n:
            return np.zeros(8)
        values = np.stack([x - t, t, x])
        w = np.ones(t.size) if weights is None else weights
        means = values @ w / n
        e, t, x = values - means[:, None]
        return np.array([n, *means, *(np.sum(w * y) for y in (e * e, t * t, x * x, x * t))])

    def merge(self, state: dict[str, Any]) -> None:
        other = np.asarray(state["sums"], np.float64)
        n = self.sums[0] + other[0]
        if not n:
            return
        e, t, x = shift = other[1:4] - self.sums[1:4]
        between = np.array([e * e, t * t, x * x, x * t]) * (self.sums[0] * other[0] / n)
        means = self.sums[1:4] + shift * (other[0] / n)
        self.sums = np.concatenate([[n], means, self.sums[4:] + other[4:] + between])

    def value(self) -> float:
        n = self.sums[0]
        if not n:
            return float("nan")
        with np.errstate(divide="ignore", invalid="ignore"):
            means, products = self.sums[1:4], self.sums[4:] / n
            rounding = 8 * np.finfo(np.float64).eps * np.abs(means)
            products[:3] *= products[:3] > rounding**2  # of equal values, only rounding errors are left
            return float(self.figure(*means, *products))

    def doubt(self) -> str:
        if not self.sums[0] or not np.isnan(self.value()):
            return ""
        if not np.isfinite(self.sums).all():
            return "predictions or targets are not finite"
        return "values that are all equal have no variance"

    def figure(self, e: float, t: float, x: float, ee: float, tt: float, xx: float, xt: float) -> Any:
        """Return the figure from the means of e, t and x, and their variances and covariance."""
        raise NotImplementedError(f"{type(self).__name__} has no figure: write figure(self, e, t, x, ee, tt, xx, xt)")


class _ElementMean(Metric):
    """The mean of the errors of all elements."""

    better = "min"
    comparesValues = True

    def share(
        self, prediction: np.ndarray, target: np.ndarray, weight: np.ndarray | None = None
    ) -> tuple[float, float]:
        x, t, weights = numbers(prediction, target, self, weight)
        return total(self.errors(x, t), weights), size(t, weights)

    def errors(self, x: np.ndarray, t: np.ndarray) -> np.ndarray:
        """Return the error of each element; by default (x - t)^2."""
        return (x - t) ** 2


class MAE(_ElementMean):
    """The mean of |x - t| over all elements.

    Raises    DataError if predictions and targets differ in shape: nothing is broadcast
    """

    def errors(self, x: np.ndarray, t: np.ndarray) -> np.ndarray:
        return np.abs(x - t)


class SquaredError(_ElementMean):
    """The mean of (x - t)^2 over all elements.

    Raises    DataError if predictions and targets differ in shape: nothing is broadcast

    >>> metric = SquaredError()
    >>> metric.update(np.array([1.0, 4.0]), np.array([1.0, 2.0]))
    >>> metric.value()
    2.0
    """


class RMSE(_ElementMean):
    """The root of the mean of (x - t)^2 over all elements, in the unit of the targets.

    Raises    DataError if predictions and targets differ in shape: nothing is broadcast

    >>> metric = RMSE()
    >>> metric.update(np.array([1.0, 4.0]), np.array([1.0, 1.0]))
    >>> round(metric.value(), 4)
    2.1213
    """

    def value(self) -> float:
        return float(np.sqrt(super().value()))


class R2(_CentralSums):
    """r2 = 1 - sum (x - t)^2 / sum (t - mean t)^2 over all elements: 1 is perfect, 0 as good as the mean of targets.

    It is nan where all targets are equal.

    Source    Wright 1921, Correlation and Causation, Journal of Agricultural Research 20
    Raises    DataError if predictions and targets differ in shape: nothing is broadcast

    >>> metric = R2()
    >>> metric.update(np.array([1.0, 2.0, 4.0]), np.array([1.0, 2.0, 3.0]))
    >>> round(metric.value(), 3)
    0.5
    """

    def figure(self, e: float, t: float, x: float, ee: float, tt: float, xx: float, xt: float) -> Any:
        return 1 - (ee + e * e) / (tt or np.nan)


class ExplainedVariance(_CentralSums):
    """1 - var(x - t) / var(t) over all elements: as `R2`, but a constant error costs nothing; nan for equal targets.

    Raises    DataError if predictions and targets differ in shape: nothing is broadcast

    >>> metric = ExplainedVariance()
    >>> metric.update(np.array([2.0, 3.0, 4.0]), np.array([1.0, 2.0, 3.0]))
    >>> metric.value()
    1.0
    """

    def figure(self, e: float, t: float, x: float, ee: float, tt: float, xx: float, xt: float) -> Any:
        return 1 - ee / (tt or np.nan)


class Pearson(_CentralSums):
    """The correlation of predictions and targets, over all elements: cov(x, t) / sqrt(var(x) var(t)).

    It is nan where all predictions or all targets are equal.

    Source    Pearson 1895, Note on Regression and Inheritance, Proceedings of the Royal Society 58
    Raises    DataError if predictions and targets differ in shape: nothing is broadcast

    >>> metric = Pearson()
    >>> metric.update(np.array([1.0, 2.0, 3.0]), np.array([2.0, 4.0, 6.0]))
    >>> round(metric.value(), 12)
    1.0
    """

    def figure(self, e: float, t: float, x: float, ee: float, tt: float, xx: float, xt: float) -> Any:
        return xt / np.sqrt(xx or np.nan) / np.sqrt(tt or np.nan)


class MAPE(_ElementMean):
    """The mean of |x - t| / |t| over all elements: the mean relative error; a target of 0 counts as the least float.

    Raises    DataError if predictions and targets differ in shape: nothing is broadcast

    >>> metric = MAPE()
    >>> metric.update(np.array([1.0, 3.0]), np.array([2.0, 2.0]))
    >>> metric.value()
    0.5
    """

    def errors(self, x: np.ndarray, t: np.ndarray) -> np.ndarray:
        return np.abs(x - t) / np.maximum(np.abs(t), np.finfo(np.float64).eps)
