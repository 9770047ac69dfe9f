"""Figures: the properties of a trainer that describe its current run."""

from __future__ import annotations

from typing import Any

from puregraph.train.metrics import Metric
from puregraph.train.runstate import RunState, shown


class Figures:
    """Cost, metrics, learning rate and speed of a Trainer's run, as they are now."""

    callbacks: list[Any]
    meters: Any
    optimizer: Any
    runState: RunState

    epoch = shown("epoch", "Finished epochs.")
    step = shown("step", "All steps.")
    position = shown("position", "Steps of the current epoch.")
    first = shown("first", "Epochs that were finished before this run.")
    until = shown("until", "Epochs that are finished after this run.")
    count = shown("count", "Steps of an epoch; None if that is not known.")
    begun = shown("begun", "Whether an epoch is under way.")
    running = shown("running", "Whether the run has not come to its end.")
    stopped = shown("stopped", "Whether the run was asked to stop.")
    order = shown("order", "The order of the epoch's samples; None if they are not shuffled.")
    lastRate = shown("lastRate", "The learning rate of the last step.")
    isFresh = shown("isFresh", "Whether the run has not made a step yet.")

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
        checked = [f"val {name}" for name in row if self.runState.validates]
        added = [name for callback in self.callbacks for name in callback.adds]
        return ["epoch", "step", *row, *checked, "rate", "seconds", *added]

    def figures(self) -> dict[str, float]:
        """The mean cost and the metrics of the epoch so far, without those that sort all samples, such as `RocAuc`.

        On a GPU, they are those of the batches that were read.
        """
        return self.meters.known(isFinal=False)

    def speed(self) -> float:
        """Samples a second in the epoch so far."""
        return self.meters.samples / max(self.runState.passed(), 1e-9)
