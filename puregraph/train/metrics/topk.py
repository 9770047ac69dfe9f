"""TopK: the share of labels among the k most likely classes."""

from __future__ import annotations

import numpy as np

from puregraph.core.arguments import Count, Whole, takes
from puregraph.core.errors import DataError
from puregraph.core.tracer import arrayLike
from puregraph.train.metrics.metric import Metric, labelled, size, total


class TopK(Metric):
    """The share of labels that are among the `k` most likely classes; of equals the first is the more likely.

    `axis`    the axis of classes
    `ignore`  the label to ignore; None: every label counts

    Raises    ArgumentError for k below 1; DataError for predictions and targets that do not fit, for a label that
              is no class, and for k above the number of classes

    >>> scores = np.array([[0.1, 0.5, 0.4], [0.8, 0.1, 0.2]])
    >>> metric = TopK(2)
    >>> metric.update(scores, np.array([2, 1]))
    >>> float(metric.value())                              # the second label is the least likely of three
    0.5
    """

    @takes(k=Count, axis=Whole, ignore=Whole | None)
    def __init__(self, k: int = 5, axis: int = 1, ignore: int | None = None, which: int = 0, name: str | None = None):
        super().__init__(which, f"top{k}" if name is None else name)
        self.k, self.axis, self.ignore = k, axis, ignore

    def share(
        self, prediction: np.ndarray, target: np.ndarray, weight: np.ndarray | None = None
    ) -> tuple[float, float]:
        x, labels, weights = labelled(prediction, target, self, weight)
        if self.k > x.shape[-1] > 0:
            raise DataError(f"{self.name}: wanted k of at most {x.shape[-1]}, the number of classes, got {self.k}")
        labelScores = np.take_along_axis(x, labels[:, None], -1)
        earlier = arrayLike(labels, np.arange(x.shape[-1])) < labels[:, None]
        above = np.sum((x > labelScores) | (x == labelScores) & earlier, axis=-1)
        return total((above < self.k) & ~np.isnan(labelScores[:, 0]), weights), size(labels, weights)
