"""MAE: the mean absolute error."""

from __future__ import annotations

import numpy as np

from puregraph.train.metrics.metric import Metric, numbers, size, total


class MAE(Metric):
    """The mean of |x - t| over all elements.

    Raises    DataError if predictions and targets differ in shape: nothing is broadcast
    """

    better = "min"
    comparesValues = True

    def share(
        self, prediction: np.ndarray, target: np.ndarray, weight: np.ndarray | None = None
    ) -> tuple[float, float]:
        x, t, weights = numbers(prediction, target, self, weight)
        return total(np.abs(x - t), weights), size(t, weights)
