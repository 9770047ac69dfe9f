"""MAE: the mean absolute error."""

from __future__ import annotations

import numpy as np

from puregraph.core.errors import DataError
from puregraph.train.metrics.metric import Metric


class MAE(Metric):
    """The mean of |x - t| over all elements.

    Raises    DataError if predictions and targets differ in shape: nothing is broadcast
    """

    better = "min"
    comparesValues = True

    def share(self, prediction: np.ndarray, target: np.ndarray) -> tuple[float, float]:
        if prediction.shape != target.shape:
            raise DataError(f"{self.name}: wanted targets of shape {prediction.shape}, got {target.shape}")
        return np.abs(prediction.astype(np.float64) - target).sum(), target.size
