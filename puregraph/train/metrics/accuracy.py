"""Accuracy: the share of predictions that are right."""

import numpy as np

from puregraph.train.metrics.metric import Metric, labelsOf


class Accuracy(Metric):
    """The share of positions whose most likely class is the label: accuracy = sum_i [argmax x_i = t_i] / sum_i 1

    Predictions of the target's own shape are taken for logits of yes or no: right where x > threshold agrees with
    t > 1/2.

    `axis`       where the classes are
    `ignore`     the label that does not count; None: every one does
    `threshold`  of a yes, for logits 0 and for probabilities 0.5

    Raises    DataError if predictions and targets do not fit
    """

    def __init__(self, axis=1, ignore=-1, threshold=0.0, which=0, name=None):
        super().__init__(which, name)
        self.axis, self.ignore, self.threshold = axis, ignore, threshold

    def share(self, prediction, target):
        if prediction.shape == target.shape:
            return np.sum((prediction > self.threshold) == (target > 0.5)), target.size
        labels = labelsOf(target, prediction, self.axis, self)
        counts = np.ones(labels.shape, bool) if self.ignore is None else labels != self.ignore
        return np.sum((prediction.argmax(self.axis) == labels) & counts), counts.sum()
