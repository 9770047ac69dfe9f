"""Confusion: which class is taken for which."""

import numpy as np

from puregraph.errors import DataError
from puregraph.train.metrics.metric import Metric, labelsOf


class Confusion(Metric):
    """A matrix (classes, classes): how many of each class (row) were taken for each class (column).

    `precision()`, `recall()` and `f1()` are read from it, one number per class; nan for a class without any.

    Raises    DataError if predictions and targets do not fit, or a label is no class
    """

    def __init__(self, classes, axis=1, ignore=-1, which=0, name=None):
        self.classes, self.axis, self.ignore = classes, axis, ignore
        super().__init__(which, name)

    def reset(self):
        self.sums = np.zeros((self.classes, self.classes), np.int64)

    def share(self, prediction, target):
        labels = labelsOf(target, prediction, self.axis, self)
        found = prediction.argmax(self.axis)
        counts = np.ones(labels.shape, bool) if self.ignore is None else labels != self.ignore
        labels, found = labels[counts].astype(np.int64), found[counts]
        wrong = (labels < 0) | (labels >= self.classes)
        if wrong.any() or prediction.shape[self.axis] != self.classes:
            given = f"label {labels[wrong][0]}" if wrong.any() else f"{prediction.shape[self.axis]} classes predicted"
            raise DataError(f"{self.name}: wanted {self.classes} classes, labelled from 0 on, got {given}")
        pairs = np.bincount(labels * self.classes + found, minlength=self.classes**2)
        return pairs.reshape(self.classes, self.classes)

    def value(self):
        """The matrix so far, in an array of its own."""
        return self.sums.copy()

    def precision(self):
        """Of what was taken for each class, the share that is of it."""
        return over(self.sums.diagonal(), self.sums.sum(axis=0))

    def recall(self):
        """Of each class, the share that was taken for it."""
        return over(self.sums.diagonal(), self.sums.sum(axis=1))

    def f1(self):
        """The harmonic mean of precision and recall."""
        return over(2 * self.sums.diagonal(), self.sums.sum(axis=0) + self.sums.sum(axis=1))


def over(part, whole):
    """A ratio for each class; nan where there is nothing to divide by."""
    return np.divide(part, whole, out=np.full(len(whole), np.nan), where=whole > 0)
