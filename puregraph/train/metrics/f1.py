"""F1: the harmonic mean of precision and recall."""

from __future__ import annotations

import numpy as np

from puregraph.train.metrics.classcounts import ClassCounts


class F1(ClassCounts):
    """f1 = 2 true positives / (predicted + actual positives): the harmonic mean of precision and recall

    `F1()` is for class 1, of one logit or of two scores; `F1(of=2)` for class 2, `F1(classes=10)` the mean over ten
    classes ("macro"), `F1(average="micro")` over all classes together. It is 0 if the denominator is 0; "macro" leaves
    out a class that is neither predicted nor a target. `axis`, `ignore` and `threshold`: see `Accuracy`.

    Source    van Rijsbergen 1979, Information Retrieval, chapter 7
    Raises    DataError if predictions and targets do not fit, or a label is not a class; ArgumentError for "macro"
              without `classes`, and for `of` with another average than "binary"
    """

    def ratio(self, both: np.ndarray, taken: np.ndarray, there: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return 2 * both, taken + there
