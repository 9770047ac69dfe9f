"""Spearman: the correlation of ranks."""

from __future__ import annotations

import numpy as np

from puregraph.train.metrics.gatheredmetric import GatheredMetric
from puregraph.train.metrics.metric import needNotNan, numbers


class Spearman(GatheredMetric):
    """The correlation of the ranks of predictions and of targets; equal values share their mean rank.

    It is nan where all predictions or all targets are equal. It keeps 16 bytes for each element.

    Source    Spearman 1904, The Proof and Measurement of Association between Two Things
    Raises    DataError if predictions and targets differ in shape, or one is nan

    >>> metric = Spearman()
    >>> metric.update(np.array([1.0, 2.0, 30.0]), np.array([4.0, 5.0, 6.0]))
    >>> round(metric.value(), 12)
    1.0
    """

    def share(self, prediction: np.ndarray, target: np.ndarray) -> np.ndarray:
        x, t, _ = numbers(prediction, target, self)
        needNotNan(x, self.name)
        needNotNan(t, self.name, "targets")
        return np.stack([x, t], axis=1)

    def value(self) -> float:
        if not self.rows.size:
            return float("nan")
        x, t = (2 * meanRanks(values) for values in self.rows.T)  # whole numbers: their sums are exact
        x, t = x - x.mean(), t - t.mean()
        under = np.sqrt(x @ x) * np.sqrt(t @ t)
        return float(x @ t / under) if under else float("nan")

    def doubt(self) -> str:
        return (
            "predictions or targets that are all equal have no ranks"
            if self.rows.size and np.isnan(self.value())
            else ""
        )


def meanRanks(values: np.ndarray) -> np.ndarray:
    """Return the ranks from 0 on; equal values have the mean of their ranks."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts + 1) / 2)[inverse.reshape(-1)]
