"""F1: the harmonic mean of precision and recall."""

from __future__ import annotations

import numpy as np

from puregraph.train.metrics.classcounts import ClassCounts


class F1(ClassCounts):
    """f1 = 2 both / (taken + there): the harmonic mean of precision and recall

    `taken` counts the positions that were taken for the class, `there` those that are of it, `both` all
    that are both.

    `F1()` is of the yes, class 1, of one logit or of two scores; `F1(of=2)` is of class 2,
    `F1(classes=10)` the mean over ten classes ("macro"), `F1(average="micro")` of all classes
    together. It is 0 where there is nothing to divide by; "macro" leaves out a class that neither is nor was taken.
    `axis`, `ignore` and `threshold` are those of `Accuracy`.

    Source    van Rijsbergen 1979, Information Retrieval, chapter 7
    Raises    DataError if predictions and targets do not fit, or a label is no class; ArgumentError for "macro" without
              `classes`, and for `of` with another average than "binary"
    """

    def ratio(self, both: np.ndarray, taken: np.ndarray, there: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return 2 * both, taken + there
