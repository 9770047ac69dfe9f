"""TopK: the share of labels among the k most likely classes."""

import numpy as np

from puregraph.errors import DataError
from puregraph.train.metrics.metric import Metric, labelsOf


class TopK(Metric):
    """The share of labels that are among the `k` most likely classes; of equals the first is the more likely.

    Raises    DataError for k below 1, predictions and targets that do not fit, or a label that is no class
    """

    def __init__(self, k=5, axis=1, ignore=-1, which=0, name=None):
        if not k >= 1:
            raise DataError(f"TopK: wanted k of at least 1, got {k}")
        super().__init__(which, name or f"top{k}")
        self.k, self.axis, self.ignore = k, axis, ignore

    def share(self, prediction, target):
        labels = labelsOf(target, prediction, self.axis, self)
        x = np.moveaxis(prediction, self.axis, -1)
        counts = np.ones(labels.shape, bool) if self.ignore is None else labels != self.ignore
        x, labels = x[counts], labels[counts].astype(np.int64)
        wrong = (labels < 0) | (labels >= x.shape[-1])
        if wrong.any():
            raise DataError(f"{self.name}: wanted labels from 0 to {x.shape[-1] - 1}, got {labels[wrong][0]}")
        own = np.take_along_axis(x, labels[:, None], -1)
        earlier = np.arange(x.shape[-1]) < labels[:, None]
        above = np.sum((x > own) | (x == own) & earlier, axis=-1)
        return np.sum((above < self.k) & ~np.isnan(own[:, 0])), len(labels)
