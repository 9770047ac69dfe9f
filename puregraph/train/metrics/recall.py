"""Recall: the fraction of actual positives that are predicted."""

from __future__ import annotations

import numpy as np

from puregraph.train.metrics.classcounts import ClassCounts


class Recall(ClassCounts):
    """recall = true positives / actual positives

    `Recall()` is for class 1, of one logit or of two scores; `Recall(of=2)` for class 2, `Recall(classes=10)` the mean
    over ten classes ("macro"), `Recall(average="micro")` over all classes together. It is 0 without targets; "macro"
    leaves out a class that is neither predicted nor a target. `axis`, `ignore` and `threshold`: see `Accuracy`.

    Source    van Rijsbergen 1979, Information Retrieval, chapter 7
    Raises    DataError if predictions and targets do not fit, or a label is not a class; ArgumentError for "macro"
              without `classes`, and for `of` with another average than "binary"
    """

    def ratio(self, both: np.ndarray, taken: np.ndarray, there: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return both, there
