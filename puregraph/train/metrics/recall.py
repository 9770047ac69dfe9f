"""Recall: of a class, the share that was taken for it."""

from __future__ import annotations

import numpy as np

from puregraph.train.metrics.classcounts import ClassCounts


class Recall(ClassCounts):
    """recall = both / there: of a class, the share that was taken for it

    `there` counts the positions that are of the class, `both` those of them that were taken for it.

    `Recall()` is of the yes, class 1, of one logit or of two scores; `Recall(of=2)` is of class 2,
    `Recall(classes=10)` the mean over ten classes ("macro"), `Recall(average="micro")` of all classes
    together. It is 0 where there is nothing to divide by; "macro" leaves out a class that neither is nor was taken.
    `axis`, `ignore` and `threshold` are those of `Accuracy`.

    Source    van Rijsbergen 1979, Information Retrieval, chapter 7
    Raises    DataError if predictions and targets do not fit, or a label is no class; ArgumentError for "macro" without
              `classes`, and for `of` with another average than "binary"
    """

    def ratio(self, both: np.ndarray, taken: np.ndarray, there: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return both, there
