"""EarlyStop: an end to training that no longer helps."""

from __future__ import annotations

from typing import Any

from puregraph.arguments import Natural, takes
from puregraph.errors import CheckpointError
from puregraph.train.callbacks.monitor import Monitor


class EarlyStop(Monitor):
    """Ends the training when `monitor` has not become better for `patience` epochs.

    Source    Prechelt 1998, Early Stopping - But When?
    """

    @takes(patience=Natural)
    def __init__(self, monitor: str = "val loss", patience: int = 5, mode: str = "auto", least: float = 0.0):
        super().__init__(monitor, mode, least)
        self.patience, self.waited = patience, 0

    def onEpochEnd(self, trainer: Any) -> None:
        self.waited = 0 if self.isBetter(trainer) else self.waited + 1
        if self.waited >= self.patience:
            times = f"{self.waited} epoch{'s' * (self.waited > 1)}"
            trainer.stop(f"{self.monitor} has not been better than {self.best:.4g} for {times}")

    def state(self) -> dict[str, Any]:
        return {**super().state(), "waited": self.waited}

    def restore(self, state: dict[str, Any]) -> None:
        waited = state.get("waited")
        if type(waited) is not int or waited < 0:
            raise CheckpointError(f"EarlyStop: wanted a number of epochs waited, got {waited!r:.80}")
        super().restore(state)
        self.waited = waited
