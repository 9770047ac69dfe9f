"""CalibrationError: the difference between the confidence of predictions and their accuracy."""

from __future__ import annotations

import numpy as np

from puregraph.core.arguments import Count, Flag, Whole, choice, takes
from puregraph.core.errors import DataError
from puregraph.train.metrics.logloss import isLogit, logSumExp
from puregraph.train.metrics.metric import Metric, decisions, labelled, needNotNan, perPosition


class CalibrationError(Metric):
    """error = sum_b w_b / w |accuracy_b - confidence_b|, over intervals b of the probability of the predicted class

    Interval b of n has the samples with b / n < p <= (b + 1) / n, the first also p = 0; w_b is their number or weight.
    For one logit and targets of its shape p is the probability of yes, and accuracy_b the fraction of targets yes.

    `intervals`      the number of intervals of equal length
    `norm`           "l1": the sum above; "l2": sqrt(sum_b w_b / w (accuracy_b - confidence_b)^2); "max": the largest
                     difference of an interval
    `axis`           the axis of classes
    `ignore`         the label to ignore; None: every label counts
    `probabilities`  predictions are probabilities, not scores

    Source    Guo, Pleiss, Sun, Weinberger 2017, On Calibration of Modern Neural Networks, arXiv:1706.04599
    Raises    DataError if predictions and targets do not fit, a label is not a class, or a probability not in 0 .. 1

    >>> metric = CalibrationError(intervals=2, probabilities=True)
    >>> metric.update(np.array([[0.9, 0.1], [0.2, 0.8], [0.3, 0.7]]), np.array([0, 1, 0]))
    >>> round(metric.value(), 4)
    0.1333
    """

    better = "min"
    threshold: float

    @takes(intervals=Count, norm=choice("l1", "l2", "max"), axis=Whole, ignore=Whole | None, probabilities=Flag)
    def __init__(
        self,
        intervals: int = 15,
        norm: str = "l1",
        axis: int = 1,
        ignore: int | None = None,
        probabilities: bool = False,
        which: int = 0,
        name: str | None = None,
    ):
        self.intervals, self.norm, self.axis, self.ignore = intervals, norm, axis, ignore
        self.probabilities, self.threshold = probabilities, 0.5 if probabilities else 0.0
        super().__init__(which, name)

    def reset(self) -> None:
        self.sums = np.zeros((self.intervals, 3))  # weight, confidence and correct predictions

    def share(self, prediction: np.ndarray, target: np.ndarray, weight: np.ndarray | None = None) -> np.ndarray:
        needNotNan(prediction, self.name)
        if isLogit(prediction, target, self.axis):
            _, right = (x.reshape(-1) for x in decisions(prediction, target, self))
            weights = perPosition(weight, target.shape, self.name)
            p = prediction.reshape(-1).astype(np.float64)
            confidence = p if self.probabilities else np.exp(-np.logaddexp(0, -p))
        else:
            rows, labels, weights = labelled(prediction, target, self, weight)
            x = rows.astype(np.float64)
            best = x.argmax(-1)
            right, peak = best == labels, x[np.arange(len(x)), best]
            confidence = peak if self.probabilities else np.exp(peak - logSumExp(x))
        outside = (confidence < 0) | (confidence > 1 + 1e-6)
        if outside.any():
            raise DataError(f"{self.name}: wanted probabilities from 0 to 1, got {confidence[outside][0]}")
        w = np.ones(len(confidence)) if weights is None else weights.reshape(-1)
        edges = np.arange(1, self.intervals) / self.intervals
        at = np.searchsorted(edges, confidence, side="left")
        columns = (w, w * confidence, w * right)
        return np.stack([np.bincount(at, column, self.intervals) for column in columns], axis=1)

    def value(self) -> float:
        weights, confidence, right = self.sums[self.sums[:, 0] > 0].T
        if not len(weights):
            return float("nan")
        differences = np.abs(right - confidence) / weights
        if self.norm == "max":
            return float(differences.max())
        power = 1 if self.norm == "l1" else 2
        return float((weights @ differences**power / weights.sum()) ** (1 / power))
