"""Rate finder: find the learning rate at which the cost falls fastest, by a few trial steps that are undone."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from puregraph.core.arguments import Count, NotNegative, takes
from puregraph.core.errors import ArgumentError, NotFiniteError
from puregraph.core.late import Late
from puregraph.train.callbacks.callback import FunctionCallback
from puregraph.train.callbacks.progress import Progress
from puregraph.train.objective import checkKind

if TYPE_CHECKING:
    from puregraph.train.trainer import Trainer

SMOOTH = 0.8  # weight of earlier costs in the smoothed cost
DIVERGED = 4.0  # cost, relative to the best, above which the search ends


class _Tried(NamedTuple):
    """Learning rates, and the smoothed cost after a step with each."""

    rates: np.ndarray
    costs: np.ndarray


class RateCurve(_Tried):
    """The learning rates that were tried, and the smoothed cost after a step with each: `rates` and `costs`.

    `curve.plot()` is its chart, `best` the rate at which the cost falls fastest.
    """

    plot = Late("puregraph.draw.charts.plots", "plotRates")

    def __repr__(self) -> str:
        tried = f"{len(self.rates)} rates from {self.rates[0]:.3g} to {self.rates[-1]:.3g}"
        return f"<RateCurve: {tried}, the cost falls fastest at {self.best:.3g}>"

    @property
    def best(self) -> float:
        """The rate at which the cost falls fastest along the logarithm of the rate."""
        slopes = np.gradient(self.costs, np.log(self.rates))
        return float(self.rates[np.argmin(slopes)])


@takes(lowest=NotNegative, highest=NotNegative, steps=Count)
def findRate(
    trainer: Trainer, data: Any, target: Any = None, lowest: float = 1e-6, highest: float = 1.0, steps: int = 100
) -> RateCurve:
    """Find a learning rate: `trainer.optimizer.learnRate = findRate(trainer, x, t).best`.

    Steps are taken with rates that grow from `lowest` to `highest`, until the cost rises. Then network, optimizer and
    trainer are restored.

    Source    Smith 2017, arXiv:1506.01186, section 3.3; exponential growth as in fastai's lr_find
    Raises    ArgumentError unless 0 < lowest < highest and there are at least 5 steps, or if too few could be taken;
              the errors of `Trainer.train`
    """
    if not (0 < lowest < highest and steps >= 5):
        raise ArgumentError(f"findRate: wanted 0 < lowest < highest and 5 steps, got {lowest!r}, {highest!r}, {steps}")
    checkKind("trainer", trainer, ("train", "resume"), "a Trainer")
    optimizer, first = trainer.optimizer, trainer.optimizer.step
    saved, before = trainer.save(None), (trainer.callbacks, trainer.progress, optimizer.learnRate, optimizer.schedule)
    curve: list[tuple[float, float]] = []

    def grown(step: int) -> float:
        return float(lowest * (highest / lowest) ** min(max(step - first, 0) / (steps - 1), 1.0))

    def look(trainer: Trainer) -> None:
        trainer.meters.flush()
        cost = trainer.loss
        if curve:
            cost = SMOOTH * curve[-1][1] + (1 - SMOOTH) * cost
        curve.append((trainer.runState.lastRate, cost))
        if len(curve) == steps or cost > DIVERGED * abs(min(value for _, value in curve)):
            trainer.stop(now=True)

    try:
        trainer.callbacks, trainer.progress = [FunctionCallback(look)], Progress()
        optimizer.learnRate, optimizer.schedule = 1.0, grown
        with suppress(NotFiniteError):  # the rate was too high, which ends the search
            trainer.train(data, target, epochs=steps)
    finally:
        trainer.callbacks, trainer.progress, optimizer.learnRate, optimizer.schedule = before
        trainer.resume(saved)
        trainer.runState.stopped = trainer.runState.stopsNow = False
    if len(curve) < 5:
        raise ArgumentError(f"findRate: the cost was not finite after {len(curve)} steps; try a smaller lowest")
    rates, costs = zip(*curve)
    return RateCurve(np.array(rates), np.array(costs))
