"""LogLoss and Perplexity: the mean of -ln p of the labels, and its exponential."""

from __future__ import annotations

from typing import Any

import numpy as np

from puregraph.core.arguments import Flag, Whole, takes
from puregraph.core.errors import DataError
from puregraph.train.metrics.metric import Metric, decisions, labelled, perPosition, size, total


class LogLoss(Metric):
    """The mean of -ln p(label), with p the softmax of the scores; for one logit and targets of its shape, the sigmoid.

    `axis`           the axis of classes
    `ignore`         the label to ignore; None: every label counts
    `probabilities`  predictions are p itself; p is limited to eps <= p <= 1 - eps, with eps of its dtype

    Source    Good 1952, Rational Decisions, Journal of the Royal Statistical Society B 14
    Raises    DataError if predictions and targets do not fit, a label is not a class, or a probability is not in 0 .. 1

    >>> metric = LogLoss(probabilities=True)
    >>> metric.update(np.array([[0.5, 0.5], [0.2, 0.8]]), np.array([0, 1]))
    >>> round(metric.value(), 4)
    0.4581
    """

    better = "min"
    threshold: float

    @takes(axis=Whole, ignore=Whole | None, probabilities=Flag)
    def __init__(
        self,
        axis: int = 1,
        ignore: int | None = None,
        probabilities: bool = False,
        which: int = 0,
        name: str | None = None,
    ):
        super().__init__(which, name)
        self.axis, self.ignore, self.probabilities = axis, ignore, probabilities
        self.threshold = 0.5 if probabilities else 0.0

    def share(
        self, prediction: np.ndarray, target: np.ndarray, weight: np.ndarray | None = None
    ) -> tuple[float, float]:
        if isLogit(prediction, target, self.axis):
            _, there = decisions(prediction, target, self)
            weights = perPosition(weight, target.shape, self.name)
            losses = self.logitLosses(prediction, there)
        else:
            rows, labels, weights = labelled(prediction, target, self, weight)
            losses = self.labelLosses(rows, labels)
        return total(losses, weights), size(losses, weights)

    def logitLosses(self, x: np.ndarray, there: np.ndarray) -> np.ndarray:
        """Return -ln p of each decision, from its logit or its probability of yes."""
        if self.probabilities:
            p = limited(x, self.name)
            return -np.log(np.where(there, p, 1 - p))
        return np.logaddexp(0, np.where(there, -1, 1) * x.astype(np.float64))

    def labelLosses(self, rows: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """Return -ln p of each label, from the scores or probabilities of all classes."""
        at = np.arange(len(labels)), labels
        if self.probabilities:
            return -np.log(limited(rows, self.name)[at])
        x = rows.astype(np.float64)
        return logSumExp(x) - x[at]


class Perplexity(LogLoss):
    """exp(mean of -ln p(label)): the number of equally likely classes that would be as uncertain.

    For a language model with scores (n, t, words) it is `Perplexity(axis=-1)`. Arguments are those of `LogLoss`.

    Source    Jelinek, Mercer, Bahl, Baker 1977, Perplexity, a Measure of the Difficulty of Speech Recognition Tasks

    >>> metric = Perplexity()
    >>> metric.update(np.zeros((2, 4)), np.array([0, 3]))
    >>> round(metric.value(), 12)
    4.0
    """

    def value(self) -> Any:
        return float(np.exp(super().value()))


def isLogit(prediction: np.ndarray, target: np.ndarray, axis: int) -> bool:
    """Return True for yes-or-no decisions: targets of the predictions' shape, without several classes on the axis."""
    hasClasses = -target.ndim <= axis < target.ndim and target.shape[axis] > 1
    return prediction.shape == target.shape and not hasClasses


def limited(p: np.ndarray, name: str) -> np.ndarray:
    """Return probabilities in float64, from eps to 1 - eps.

    Raises    DataError for a number that is not a probability
    """
    outside = (p < 0) | (p > 1)
    if outside.any():
        raise DataError(
            f"{name}: wanted probabilities from 0 to 1, got {p[outside].reshape(-1)[0]}; scores are the default"
        )
    eps = np.finfo(p.dtype if p.dtype.kind == "f" else np.float64).eps
    return np.clip(p, eps, 1 - eps).astype(np.float64)


def logSumExp(x: np.ndarray) -> np.ndarray:
    """ln sum exp x over the last axis."""
    if not x.shape[-1]:
        return np.full(x.shape[:-1], -np.inf)
    peak = x.max(-1, keepdims=True)
    peak = np.where(np.isfinite(peak), peak, 0)
    with np.errstate(divide="ignore"):
        return np.log(np.exp(x - peak).sum(-1)) + peak[..., 0]
