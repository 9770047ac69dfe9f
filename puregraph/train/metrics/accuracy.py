"""Accuracy: the share of predictions that are right."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from puregraph.core.arguments import Number, Whole, takes
from puregraph.train.metrics.metric import Metric, decisions, isOneHot, labelled, perPosition, size, total

if TYPE_CHECKING:
    from typing import Any

    from puregraph.core.protocols import AnyArray


class Accuracy(Metric):
    """The share of positions whose most likely class is the label: accuracy = sum_i [argmax x_i = t_i] / sum_i 1

    Targets of the shape of the predictions are one-hot, a single 1 for each position, or else 1 for yes and 0 for no:
    predictions are then logits, right where x > threshold agrees with t > 1/2.

    `axis`       the axis of classes
    `ignore`     the label to ignore; None: every label counts
    `threshold`  the threshold for yes: 0 for logits, 0.5 for probabilities

    Raises    DataError if predictions and targets do not fit, or a label is no class; for targets of a regression
    """

    @takes(axis=Whole, ignore=Whole | None, threshold=Number)
    def __init__(
        self, axis: int = 1, ignore: int | None = None, threshold: float = 0.0, which: int = 0, name: str | None = None
    ):
        super().__init__(which, name)
        self.axis, self.ignore, self.threshold = axis, ignore, threshold

    def reset(self) -> None:
        super().reset()
        self.decisions, self.isOneHot = np.zeros(2), True  # counts for targets 0 and 1; all targets so far are one-hot

    def update(self, prediction: AnyArray, target: AnyArray, weight: AnyArray | None = None) -> None:
        x, t, *weights = self.onHost(prediction, target, weight)
        if x.shape == t.shape:
            self.isOneHot = self.isOneHot and isOneHot(t, self.axis)
            self.decisions += self.agreements(x, t, *weights)
            if not self.isOneHot:
                return
        self.sums += self.share(x, t, *weights)

    def value(self) -> float:
        right, count = self.sums if self.isOneHot else self.decisions
        return float(right / count) if count else float("nan")

    def share(
        self, prediction: np.ndarray, target: np.ndarray, weight: np.ndarray | None = None
    ) -> tuple[float, float]:
        rows, labels, weights = labelled(prediction, target, self, weight)
        labelScores = np.take_along_axis(rows, labels[:, None], -1)[:, 0]
        return total((rows.argmax(-1) == labels) & ~np.isnan(labelScores), weights), size(labels, weights)

    def agreements(
        self, prediction: np.ndarray, target: np.ndarray, weight: np.ndarray | None = None
    ) -> tuple[float, float]:
        """Return the counts of correct yes-or-no decisions, and of all."""
        taken, there = decisions(prediction, target, self)
        weights = perPosition(weight, target.shape, self.name)
        return total((taken == there) & ~np.isnan(prediction), weights), size(target, weights)

    def state(self) -> dict[str, object]:
        return {**super().state(), "decisions": self.decisions.copy(), "isOneHot": self.isOneHot}

    def restore(self, state: dict[str, Any]) -> None:
        super().restore(state)
        self.decisions = np.array(state.get("decisions", self.sums), np.float64)
        self.isOneHot = bool(state.get("isOneHot", True))
