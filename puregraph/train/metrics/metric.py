"""Metric: a figure of a whole data set, gathered batch by batch."""

from __future__ import annotations

from typing import Any

import numpy as np

from puregraph import device
from puregraph.errors import DataError


class Metric:
    """A ratio of two sums, to which every batch adds; a subclass says what it adds.

    `which`   the output and the target it looks at, where there are several
    `name`    what it is called in the history; by default its class in lower case
    `better`  "max" or "min": which way is better
    """

    better = "max"

    def __init__(self, which: int = 0, name: str | None = None):
        self.which = which
        self.name = name or type(self).__name__.lower()
        self.reset()

    def reset(self) -> None:
        """Begin anew."""
        self.sums = np.zeros(2)

    def update(self, prediction: np.ndarray, target: np.ndarray) -> None:
        """Add a batch of predictions and their targets; what lies on a GPU comes to the host."""
        self.sums += self.share(device.toHost(prediction), device.toHost(target))

    def share(self, prediction: np.ndarray, target: np.ndarray) -> tuple[float, float]:
        """What a batch adds to numerator and denominator."""
        raise NotImplementedError(f"{type(self).__name__} counts nothing: write share(self, prediction, target)")

    def value(self) -> Any:
        """The figure so far; nan before anything was counted."""
        over, under = self.sums
        return float(over / under) if under else float("nan")

    def state(self) -> dict[str, np.ndarray]:
        """The running sums, to be saved."""
        return {"sums": self.sums.copy()}

    def restore(self, state: dict[str, np.ndarray]) -> None:
        """Go on from saved sums."""
        self.sums = np.array(state["sums"], self.sums.dtype).reshape(self.sums.shape)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name} = {self.value()})"


def labelsOf(target: np.ndarray, prediction: np.ndarray, axis: int, metric: Metric) -> np.ndarray:
    """Labels, checked against predictions that have one more axis, that of the classes."""
    wanted = tuple(np.delete(prediction.shape, axis)) if -prediction.ndim <= axis < prediction.ndim else None
    if target.shape != wanted or target.dtype.kind not in "iub":
        raise DataError(
            f"{metric.name}: wanted predictions with classes on axis {axis} and a label for each position, "
            f"got predictions {prediction.shape} and {target.dtype} targets {target.shape}"
        )
    return target
