"""Monitor: the base of callbacks that watch a figure of the history."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from puregraph.core.arguments import NotNegative, Text, choice, takes
from puregraph.core.errors import CheckpointError, DataError
from puregraph.train.callbacks.callback import Callback

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from puregraph.train.trainer import Trainer

DIRECTIONS = ("auto", "min", "max")


class Monitor(Callback):
    """Watches one figure of the history: `best` is its best value; `isBetter` is True if the last row improved on it.

    `monitor`  the name of the figure: `val loss`, `accuracy`
    `mode`     "min", "max", or "auto": the direction of the metric of that name, "min" for others
    `least`    the least improvement that counts

    Raises    ArgumentError for an unknown mode; DataError for a figure that the history does not have
    """

    @takes(monitor=Text, mode=choice(*DIRECTIONS), least=NotNegative)
    def __init__(self, monitor: str, mode: str = "auto", least: float = 0.0):
        self.monitor, self.mode, self.least = monitor, mode, least
        self.best = math.nan

    def onTrainBegin(self, trainer: Trainer) -> None:
        self.check(trainer.figureNames())

    def check(self, names: list[str]) -> None:
        """Check that the history has a figure of this name."""
        if self.monitor not in names:
            isUnvalidated = self.monitor.startswith("val") and not any(name.startswith("val ") for name in names)
            hint = "; a validation has those that begin with val: train(..., validation=0.2)" * isUnvalidated
            raise DataError(
                f"{type(self).__name__}: wanted one of {', '.join(names)}, got monitor {self.monitor!r}{hint}"
            )

    def isBetter(self, trainer: Trainer) -> bool:
        """Return True if the last row improved on `best`, and update `best`. A first finite figure always does."""
        row = trainer.history[-1]
        self.check(list(row))
        value, sign = row[self.monitor], 1 if self.direction(trainer) == "max" else -1
        best = -sign * math.inf if math.isnan(self.best) else self.best
        better = sign * (value - best) > self.least
        if better:
            self.best = value
        return better

    def direction(self, trainer: Any) -> str:
        if self.mode != "auto":
            return self.mode
        ways = {metric.name: metric.better for metric in trainer.metrics}
        return ways.get(self.monitor.removeprefix("val "), "min")

    def state(self) -> dict[str, object]:
        return {"best": None if math.isnan(self.best) else self.best}

    def restore(self, state: dict[str, Any]) -> None:
        best = state.get("best")
        if best is not None and type(best) not in (int, float):
            raise CheckpointError(f"{type(self).__name__}: wanted a number as the best figure, got {best!r:.80}")
        self.best = math.nan if best is None else best


def waitedFrom(owner: Monitor, state: Mapping[str, object]) -> int:
    """Return the saved number of epochs without an improvement.

    Raises    CheckpointError for anything else
    """
    waited = state.get("waited")
    if type(waited) is not int or waited < 0:
        raise CheckpointError(f"{type(owner).__name__}: wanted a number of epochs waited, got {waited!r:.80}")
    return waited
