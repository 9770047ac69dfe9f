"""ReduceOnPlateau: the callback that reduces the learning rate when a figure no longer improves."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from puregraph.core.arguments import Fraction, NotNegative, Size, Text, takes
from puregraph.core.errors import plural
from puregraph.train.callbacks.lines import rate
from puregraph.train.callbacks.monitor import Monitor, waitedFrom

if TYPE_CHECKING:
    from typing import Any

    from puregraph.train.trainer import Trainer


class ReduceOnPlateau(Monitor):
    """Multiplies the learning rate by `factor` when `monitor` has not improved for more than `patience` epochs.

    `lowest`  the lower bound of the learning rate
    `mode`, `least`: see `Monitor`. The callback changes `optimizer.learnRate`, which a schedule multiplies.

    Source    PyTorch's ReduceLROnPlateau, with threshold_mode "abs" and without its cooldown and eps
    Raises    ArgumentError for a factor that is not between 0 and 1
    """

    @takes(monitor=Text, factor=Fraction, patience=Size, lowest=NotNegative)
    def __init__(
        self,
        monitor: str = "val loss",
        factor: float = 0.1,
        patience: int = 3,
        mode: str = "auto",
        least: float = 0.0,
        lowest: float = 0.0,
    ):
        super().__init__(monitor, mode, least)
        self.factor, self.patience, self.lowest = factor, patience, lowest
        self.waited = 0

    def onTrainBegin(self, trainer: Trainer) -> None:
        super().onTrainBegin(trainer)
        if trainer.isFresh:
            self.best, self.waited = math.nan, 0

    def onEpochEnd(self, trainer: Trainer) -> None:
        self.waited = 0 if self.isBetter(trainer) else self.waited + 1
        before = trainer.optimizer.learnRate
        after = max(before * self.factor, self.lowest)
        if self.waited <= self.patience:
            return
        self.waited = 0
        if after >= before:
            return
        trainer.optimizer.learnRate = after
        times = plural(self.patience + 1, "epoch")
        trainer.progress.say(
            f"{self.monitor} has not improved on {self.best:.4g} for {times}: "
            f"learning rate {rate(before)} -> {rate(after)}"
        )

    def state(self) -> dict[str, object]:
        return {**super().state(), "waited": self.waited}

    def restore(self, state: dict[str, Any]) -> None:
        waited = waitedFrom(self, state)
        super().restore(state)
        self.waited = waited
