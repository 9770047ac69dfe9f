"""Prechecks: what a Trainer checks before its first step."""

from __future__ import annotations

import warnings
from typing import Any

from puregraph.errors import DataError, GraphWarning
from puregraph.graph.lookup import few
from puregraph.modules.batchnorm import BatchNorm

NOTHING = 1e-6  # of the highest learning rate: with less than that nothing is learnt


def checkParams(trainer: Any) -> None:
    """There must be something to train, and BatchNorm must see all samples of a step."""
    net, optimizer = trainer.net, trainer.optimizer
    count = len(net.params)
    if not any(param.trainable for param in net.params.values()):
        why = f"all {count} parameters are frozen (trainable = False)" if count else "it has no parameters"
        raise DataError(f"nothing of {net.title()} can be trained: {why}")
    slots = getattr(optimizer, "slots", None)
    if slots is not None and not any(slot.param.trainable for slot in slots):
        raise DataError(f"nothing can be trained of what {type(optimizer).__name__} is set up on: all of it is frozen")
    norms = [path for path, module in net.modules().items() if isinstance(module, BatchNorm)]
    if norms and trainer.accumulate > 1:
        warnings.warn(
            f"accumulate={trainer.accumulate}: {few(norms)} (BatchNorm) takes the statistics of each batch by itself, "
            "so a step is not that of one large batch; LayerNorm and GroupNorm take none of a batch",
            GraphWarning,
            stacklevel=5,
        )


def fitSchedule(trainer: Any) -> None:
    """Tell a schedule how many updates there will have been when this run ends, and warn of one that is over before."""
    optimizer, schedule = trainer.optimizer, getattr(trainer.optimizer, "schedule", None)
    if schedule is None:
        return
    if trainer.total is None and trainer.count is not None:
        left = (trainer.until - trainer.epoch) * trainer.count - trainer.position
        trainer.total = optimizer.step + left
    total = trainer.total
    if total is None:
        return
    if hasattr(schedule, "fit"):
        schedule.fit(total)
    end = endOf(schedule, optimizer.step, total)
    if end is not None and end < total:
        factor = f"the factor of the learning rate is then {schedule(total - 1):.3g} until the end"
        hint = f"lengths are counted in updates, of which an epoch has {trainer.count}"
        warnings.warn(
            f"schedule: {schedule!r:.60} is over after {end} updates, this run after {total}: {factor}; {hint}",
            GraphWarning,
            stacklevel=5,
        )


def endOf(schedule: Any, first: int, total: int) -> int | None:
    """The update from which on a schedule is over: it says so, or its factor comes to nothing, and stays so."""
    if getattr(schedule, "end", None) is not None:
        return int(schedule.end)
    steps = [first + (total - 1 - first) * k // 64 for k in range(65)]
    factors = [abs(schedule(step)) for step in steps]
    little = NOTHING * max(factors)
    found = next((k for k in range(58) if max(factors[k:]) < little), None)  # the last tenth may come to nothing
    return None if found is None else steps[found]
