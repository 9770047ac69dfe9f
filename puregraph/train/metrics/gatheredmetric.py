"""GatheredMetric: a figure that cannot be computed from sums, but from an array with a row for each sample."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from puregraph.core.errors import DataError
from puregraph.train.metrics.metric import Metric

if TYPE_CHECKING:
    from puregraph.core.protocols import AnyArray


class GatheredMetric(Metric):
    """A metric that keeps rows of float64 numbers: memory grows with the samples, and ranks gather each other's rows.

    `share(prediction, target)` returns the rows (samples, columns) of a batch, `value()` computes the figure of all.
    """

    gathered: tuple[str, ...] = ("rows",)

    def reset(self) -> None:
        super().reset()
        self.batches: list[np.ndarray] = []

    def update(self, prediction: AnyArray, target: AnyArray, weight: AnyArray | None = None) -> None:
        self.addRows(np.asarray(self.share(*self.onHost(prediction, target, weight)), np.float64))

    def addRows(self, rows: np.ndarray) -> None:
        """Add the rows of a batch.

        Raises    DataError for another number of columns than before
        """
        if not len(rows):
            return
        if self.batches and self.batches[0].shape[1:] != rows.shape[1:]:
            wanted, got = (x.shape[1:] for x in (self.batches[0], rows))
            raise DataError(
                f"{self.name}: wanted batches of equal sizes but for the samples: {wanted} numbers, got {got}"
            )
        self.batches.append(rows)

    @property
    def rows(self) -> np.ndarray:
        """The rows of all samples."""
        if len(self.batches) != 1:
            self.batches = [np.concatenate(self.batches)] if self.batches else []
        return self.batches[0] if self.batches else np.zeros((0, 0))

    def state(self) -> dict[str, object]:
        return {"rows": self.rows.copy()}

    def restore(self, state: dict[str, Any]) -> None:
        self.batches = []
        self.addRows(np.array(state["rows"], np.float64))

    def merge(self, state: dict[str, Any]) -> None:
        self.addRows(np.asarray(state["rows"], np.float64))
