"""Confusion: a matrix of how often each actual class is predicted as each class."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from puregraph.core.arguments import Count, Number, Whole, choice, takes
from puregraph.core.errors import ArgumentError, DataError
from puregraph.core.late import Late
from puregraph.train.metrics.metric import Metric, decisions, labelled, needNotNan, perPosition

if TYPE_CHECKING:
    from collections.abc import Sequence


class Confusion(Metric):
    """A matrix (classes, classes) of counts: rows are actual classes, columns are predicted ones.

    `axis` is the axis of classes, `ignore` a label to ignore (None: every label counts). `names` are the names of
    classes in tables and pictures. A single logit with targets 0 and 1 of its shape, as `BCE` takes them, has two
    classes: no, and yes above the `threshold`, 0 for logits and 0.5 for probabilities.

    `normalised()` gives fractions. `precision()`, `recall()` and `f1()` are computed from it, one number per class;
    nan for a class without any.

    Raises    DataError if predictions and targets do not fit, a prediction is nan, or a label is not a class;
              ArgumentError for another number of names than of classes
    """

    _repr_html_ = Late("puregraph.draw.notebook", "confusionHtml")
    plot = Late("puregraph.draw.charts.plots", "plotConfusion")

    @takes(classes=Count, axis=Whole, ignore=Whole | None, threshold=Number)
    def __init__(
        self,
        classes: int,
        axis: int = 1,
        ignore: int | None = None,
        which: int = 0,
        name: str | None = None,
        names: Sequence[str] | None = None,
        threshold: float = 0.0,
    ):
        self.classes, self.axis, self.ignore, self.threshold = classes, axis, ignore, threshold
        self.names = None if names is None else [str(text) for text in names]
        if self.names is not None and len(self.names) != classes:
            raise ArgumentError(f"Confusion: wanted names of {classes} classes, got {len(self.names)}")
        super().__init__(which, name)

    def reset(self) -> None:
        self.sums = np.zeros((self.classes, self.classes), np.float64 if self.isWeighted else np.int64)

    def share(self, prediction: np.ndarray, target: np.ndarray, weight: np.ndarray | None = None) -> np.ndarray:
        isYes = prediction.shape == target.shape and (target.ndim == 1 or target.shape[self.axis] == 1)
        if isYes and self.classes == 2:
            needNotNan(prediction, self.name)
            taken, labels = (x.reshape(-1).astype(np.int64) for x in decisions(prediction, target, self))
            spread = perPosition(weight, target.shape, self.name)
            weights = None if spread is None else spread.reshape(-1)
        else:
            rows, labels, weights = labelled(prediction, target, self, weight)
            if np.isnan(rows).any():  # of positions that count; argmax would take nan for the largest score
                needNotNan(prediction, self.name)
            taken = rows.argmax(-1)
            if rows.shape[-1] != self.classes:
                raise DataError(f"{self.name}: wanted predictions of {self.classes} classes, got {rows.shape[-1]}")
        pairs = np.bincount(labels * self.classes + taken, weights, minlength=self.classes**2)
        return pairs.reshape(self.classes, self.classes)

    def value(self) -> np.ndarray:
        """Return a copy of the matrix so far."""
        return self.sums.copy()

    @takes(over=choice("actual", "predicted", "all"))
    def normalised(self, over: str = "actual") -> np.ndarray:
        """Return the matrix as fractions of each actual class (a row), each predicted class (a column) or all samples.

        It is 0 for a class without any.

        >>> confusion = Confusion(2)
        >>> confusion.update(np.array([[2.0, 1.0], [0.0, 1.0], [0.0, 1.0]]), np.array([0, 1, 0]))
        >>> confusion.normalised()
        array([[0.5, 0.5],
               [0. , 1. ]])
        """
        sums = self.sums.sum({"actual": 1, "predicted": 0, "all": None}[over], keepdims=True)
        return np.divide(self.sums, sums, out=np.zeros(self.sums.shape), where=sums > 0)

    def precision(self) -> np.ndarray:
        """Return the precision of each class: the fraction of its predictions that are correct."""
        return over(self.sums.diagonal(), self.sums.sum(axis=0))

    def recall(self) -> np.ndarray:
        """Return the recall of each class: the fraction of its targets that are predicted correctly."""
        return over(self.sums.diagonal(), self.sums.sum(axis=1))

    def f1(self) -> np.ndarray:
        """Return the harmonic mean of precision and recall of each class."""
        return over(2 * self.sums.diagonal(), self.sums.sum(axis=0) + self.sums.sum(axis=1))


def over(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """Return a ratio for each class; nan where the divisor is 0."""
    return np.divide(part, whole, out=np.full(len(whole), np.nan), where=whole > 0)
