"""EarlyStop: the callback that stops training when a figure no longer improves."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from puregraph.core import device
from puregraph.core.arguments import Flag, Size, Text, takes
from puregraph.core.errors import CheckpointError
from puregraph.train.callbacks.monitor import Monitor, waitedFrom

if TYPE_CHECKING:
    from puregraph.graph.graph import Graph
    from puregraph.train.trainer import Trainer


class EarlyStop(Monitor):
    """Stops the training when `monitor` has not improved for `patience` epochs; every run begins anew.

    `restore`  restores the parameters and statistics of the best epoch when the run ends; a copy is kept on the
               host until then. Checkpoints already written keep the later weights:
               `Checkpoint(path, best=monitor)` writes the best

    Source    Prechelt 1998, Early Stopping - But When?
    """

    @takes(monitor=Text, patience=Size, restore=Flag)
    def __init__(
        self,
        monitor: str = "val loss",
        patience: int = 5,
        mode: str = "auto",
        least: float = 0.0,
        restore: bool = False,
    ):
        super().__init__(monitor, mode, least)
        self.patience, self.waited, self.restores = patience, 0, restore
        self.epoch = 0  # the best epoch
        self.arrays: dict[str, Any] = {}

    def onTrainBegin(self, trainer: Trainer) -> None:
        super().onTrainBegin(trainer)
        if trainer.isFresh:
            self.best, self.waited, self.epoch, self.arrays = math.nan, 0, 0, {}

    def onEpochEnd(self, trainer: Trainer) -> None:
        isBetter = self.isBetter(trainer)
        self.waited = 0 if isBetter else self.waited + 1
        if isBetter and self.restores:
            self.epoch, self.arrays = trainer.epoch, copiesOf(trainer.net)
        if self.waited >= self.patience:
            times = f"{self.waited} epoch{'s' * (self.waited > 1)}"
            trainer.stop(f"{self.monitor} has not improved on {self.best:.4g} for {times}")

    def onTrainEnd(self, trainer: Trainer) -> None:
        isOver = trainer.epoch >= trainer.until or trainer.stopped
        if self.arrays and isOver and not trainer.running and self.epoch < trainer.epoch:
            for name, stored in storedOf(trainer.net).items():
                stored.data = device.toDevice(self.arrays[name])
            trainer.progress.say(f"restored the best weights (epoch {self.epoch})")

    def state(self) -> dict[str, object]:
        kept = {"epoch": self.epoch, "arrays": self.arrays} if self.arrays else {}
        return {**super().state(), "waited": self.waited, **kept}

    def restore(self, state: dict[str, Any]) -> None:
        waited, arrays = waitedFrom(self, state), state.get("arrays", {})
        if type(arrays) is not dict or not all(hasattr(array, "dtype") for array in arrays.values()):
            raise CheckpointError(f"EarlyStop: wanted the arrays of the best epoch by name, got {arrays!r:.80}")
        super().restore(state)
        self.waited, self.epoch, self.arrays = waited, int(state.get("epoch", 0)), arrays


def storedOf(net: Graph) -> dict[str, Any]:
    """Return every parameter and running statistic by its path."""
    return {**net.params, **{f"state {path}": state for path, state in net.states.items()}}


def copiesOf(net: Graph) -> dict[str, Any]:
    """Return copies of all parameters and running statistics, on the host."""
    return {name: device.toHost(stored.materialize()).copy() for name, stored in storedOf(net).items()}
