"""Figures: what a trainer says of the run that it is in."""

from __future__ import annotations

import time
from typing import Any

from puregraph.train.metrics import Metric


class Figures:
    """Cost, metrics, learning rate and speed of a Trainer's run, as they are now."""

    callbacks: list[Any]
    meters: Any
    optimizer: Any
    begun: bool
    epoch: int
    first: int
    position: int
    clock: float
    elapsed: float
    validates: bool

    @property
    def isFresh(self) -> bool:
        """True if the run has not made a step yet."""
        return self.epoch == self.first and not self.position

    @property
    def metrics(self) -> list[Metric]:
        """The metrics, with their values on the training data of the last epoch."""
        return self.meters.metrics

    @property
    def loss(self) -> float:
        """The cost of the last batch (on a GPU, of the last one that was read)."""
        return self.meters.last

    @property
    def rate(self) -> float:
        """The learning rate of the next step."""
        return self.optimizer.rate

    def figureNames(self) -> list[str]:
        """The names of the figures that each row of this run's history will have."""
        row = list(self.meters.row())
        checked = [f"val {name}" for name in row if self.validates]
        added = [name for callback in self.callbacks for name in callback.adds]
        return ["epoch", "step", *row, *checked, "rate", "seconds", *added]

    def figures(self) -> dict[str, float]:
        """The mean cost and the metrics of the epoch so far; on a GPU, of the batches that were read."""
        return self.meters.known()

    def speed(self) -> float:
        """Samples a second in the epoch so far."""
        return self.meters.samples / max(self.passed(), 1e-9)

    def passed(self) -> float:
        """Seconds of the epoch so far, without the time between stop and resume."""
        return self.elapsed + time.perf_counter() - self.clock if self.begun else 0.0
