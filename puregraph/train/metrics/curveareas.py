"""RocAuc and AveragePrecision: the areas under the ROC curve and under the curve of precision and recall."""

from __future__ import annotations

import numpy as np

from puregraph.train.metrics.rankingmetric import RankingMetric


class RocAuc(RankingMetric):
    """The area under the ROC curve: the chance that a positive has a higher score than a negative, with half of ties.

    With `thresholds` positives and negatives in one interval are ties. It is nan where all targets are of one class.
    Arguments are those of `RankingMetric`.

    Source    Hanley, McNeil 1982, The Meaning and Use of the Area under a ROC Curve, Radiology 143
    Raises    DataError if predictions and targets do not fit, a label is not a class, or a score is nan

    >>> metric = RocAuc()
    >>> metric.update(np.array([[0.1], [0.4], [0.35], [0.8]]), np.array([[0], [0], [1], [1]]))
    >>> metric.value()
    0.75
    """

    def figure(self, scores: np.ndarray, hits: np.ndarray, weights: np.ndarray) -> float:
        positives, negatives = cumulated(scores, hits, weights)
        if not positives[-1] or not negatives[-1]:
            return float("nan")
        height = positives + np.concatenate([[0], positives[:-1]])
        return float(np.diff(negatives, prepend=0) @ height / (2 * positives[-1] * negatives[-1]))


class AveragePrecision(RankingMetric):
    """The sum over thresholds of precision times the increase of recall: the area under their curve, in steps.

    There is no interpolation, which would be too optimistic. With `thresholds`, scores in one interval are equal. It is
    nan without a positive. Arguments are those of `RankingMetric`.

    Source    Davis, Goadrich 2006, The Relationship Between Precision-Recall and ROC Curves, ICML
    Raises    DataError if predictions and targets do not fit, a label is not a class, or a score is nan

    >>> metric = AveragePrecision()
    >>> metric.update(np.array([[0.1], [0.4], [0.35], [0.8]]), np.array([[0], [0], [1], [1]]))
    >>> round(metric.value(), 4)
    0.8333
    """

    def figure(self, scores: np.ndarray, hits: np.ndarray, weights: np.ndarray) -> float:
        positives, negatives = cumulated(scores, hits, weights)
        if not positives[-1]:
            return float("nan")
        precision = positives / (positives + negatives)
        return float(np.diff(positives, prepend=0) @ precision / positives[-1])


def cumulated(scores: np.ndarray, hits: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the total weights of positives and of negatives at or above each distinct score, highest first."""
    if not len(scores):
        return np.zeros(1), np.zeros(1)
    order = np.argsort(-scores, kind="stable")
    scores = scores[order]
    last = np.concatenate([np.flatnonzero(scores[1:] != scores[:-1]), [len(scores) - 1]])
    positives, negatives = (np.cumsum(np.where(x, weights, 0.0)[order])[last] for x in (hits, ~hits))
    return positives, negatives
