"""Class counts: the counts from which precision, recall and F1 are computed, batch by batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from puregraph.core.arguments import Count, Number, Size, Whole, choice, takes
from puregraph.core.errors import ArgumentError, DataError
from puregraph.train.metrics.metric import Metric, decisions, isOneHot, labelled, perPosition

if TYPE_CHECKING:
    from typing import Any

    from puregraph.core.protocols import AnyArray


class ClassCounts(Metric):
    """Counts of predicted, actual and true positives, by class or summed over classes.

    Targets of the predictions' shape are one-hot, or else 0 and 1 for no and yes, as in `Accuracy`: for a single logit
    of `BCE`, class 0 is no and class 1 is yes; several logits are independent classes (multilabel).

    `average`    "binary": one class; "macro": the mean over classes; "micro": all classes together
    `of`         the class for "binary"; None: class 1 of two, which is yes
    `classes`    the number of classes, required by "macro"; if set, `average` defaults to "macro"
    `axis`       the axis of classes
    `ignore`     the label to ignore; None: every label counts
    `threshold`  the threshold for yes: 0 for logits, 0.5 for probabilities
    """

    @takes(
        average=choice("binary", "macro", "micro") | None,
        of=Size | None,
        classes=Count | None,
        axis=Whole,
        ignore=Whole | None,
        threshold=Number,
    )
    def __init__(
        self,
        average: str | None = None,
        of: int | None = None,
        classes: int | None = None,
        axis: int = 1,
        ignore: int | None = None,
        threshold: float = 0.0,
        which: int = 0,
        name: str | None = None,
    ):
        kind = type(self).__name__
        self.average = average or ("binary" if classes is None else "macro")
        if self.average == "macro" and classes is None:
            raise ArgumentError(f"{kind}: the mean over the classes needs their number: {kind}(classes=3)")
        if of is not None and self.average != "binary":
            raise ArgumentError(f"{kind}: of={of} is one class, average={self.average!r} is of all: leave one out")
        self.of, self.classes, self.axis, self.ignore, self.threshold = of, classes, axis, ignore, threshold
        super().__init__(which, f"{kind.lower()} of {of}" if name is None and of is not None else name)

    def reset(self) -> None:
        rows = self.classes if self.average == "macro" else 1
        self.sums = np.zeros((2, rows or 1, 4))  # (by labels, by decisions), class, counts as in `counts`
        self.isOneHot = True  # of all targets so far that have the predictions' shape

    def update(self, prediction: AnyArray, target: AnyArray, weight: AnyArray | None = None) -> None:
        x, t, *weights = self.onHost(prediction, target, weight)
        if x.shape == t.shape:
            self.isOneHot = self.isOneHot and isOneHot(t, self.axis)
            spread = [self.rows(np.asarray(perPosition(w, t.shape, self.name))) for w in weights]
            self.sums[1] += self.counts(*(self.rows(y) for y in decisions(x, t, self)), *spread)
            if not self.isOneHot:
                return
        self.sums[0] += self.share(x, t, *weights)

    def share(self, prediction: np.ndarray, target: np.ndarray, weight: np.ndarray | None = None) -> np.ndarray:
        x, labels, weights = labelled(prediction, target, self, weight)
        columns = np.arange(x.shape[-1])
        taken = (x.argmax(-1)[:, None] == columns) & ~np.isnan(x).any(-1, keepdims=True)
        return self.counts(taken, labels[:, None] == columns, None if weights is None else weights[:, None])

    def rows(self, x: np.ndarray) -> np.ndarray:
        """Return an array as (positions, classes); one class if it has no such axis."""
        if not -x.ndim <= self.axis < x.ndim:
            return x.reshape(-1, 1)
        return np.moveaxis(x, self.axis, -1).reshape(-1, x.shape[self.axis])

    def counts(self, taken: np.ndarray, there: np.ndarray, weight: np.ndarray | None = None) -> np.ndarray:
        """Return counts, or sums of weights, by class: of true positives, predicted and actual ones, and positions."""
        if taken.shape[-1] == 1:  # a single logit: no and yes
            taken, there = (np.concatenate([~x, x], axis=-1) for x in (taken, there))
        count = taken.shape[-1]
        columns = np.stack([taken & there, taken, there, np.ones_like(taken)], axis=-1)
        byClass = (columns if weight is None else columns * weight[..., None]).sum(0).astype(np.float64)
        if self.classes is not None and count != self.classes:
            raise DataError(f"{self.name}: wanted predictions of {self.classes} classes, got {count}")
        if self.average == "macro":
            return byClass
        return byClass.sum(axis=0, keepdims=True) if self.average == "micro" else byClass[[self.picked(count)]]

    def picked(self, count: int) -> int:
        """Return the class that "binary" counts, of `count` classes."""
        kind = type(self).__name__
        if self.of is None and count > 2:
            raise DataError(
                f"{self.name}: wanted one logit, or the scores of no and yes, got {count} classes; "
                f"{kind}(classes={count}) is the mean over them, {kind}(of=0) is of class 0"
            )
        if self.of is not None and self.of >= count:
            raise DataError(f"{self.name}: wanted predictions of more than {self.of} classes, got {count}")
        return 1 if self.of is None else self.of

    def value(self) -> float:
        """Return the figure so far; nan before the first count. It is 0 for a class without any position; "macro" skips
        a class that is neither predicted nor a target."""
        both, taken, there, positions = self.sums[0 if self.isOneHot else 1].T
        over, under = self.ratio(both, taken, there)
        known = taken + there > 0
        if not positions.any():
            return float("nan")
        ratios = np.divide(over, under, out=np.zeros(len(over)), where=under > 0)[known]
        return float(ratios.mean()) if len(ratios) else 0.0

    def ratio(self, both: np.ndarray, taken: np.ndarray, there: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the numerator and denominator of each class from true positives, predicted and actual ones."""
        raise NotImplementedError(f"{type(self).__name__} has no figure: write ratio(self, both, taken, there)")

    def state(self) -> dict[str, object]:
        return {**super().state(), "isOneHot": self.isOneHot}

    def restore(self, state: dict[str, Any]) -> None:
        super().restore(state)
        self.isOneHot = bool(state["isOneHot"])
