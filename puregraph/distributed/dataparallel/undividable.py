"""Networks and arguments that pipeline and tensor parallel training do not support."""

from __future__ import annotations

from typing import Any

from puregraph.compile.trace.updaterule import isDivisible
from puregraph.core.errors import DataError
from puregraph.distributed.sharding.sharding import isOnDevice


def refuseUndividable(trainer: Any, label: str, parts: str) -> None:
    """Refuse what no process can do for its `parts` of a network alone; `label` is the setting that divides it.

    Raises    DataError
    """
    if any(map(isOnDevice, trainer.net.params.values())):
        raise DataError(f"{label}: {parts} are computed on the CPU alone; train on the GPU without them")
    refuseUpdate(trainer.optimizer, label)
    if trainer.world.survives:
        raise DataError(f"{label}: a lost process has {parts} that no other one has; start without ULFM")


def refuseUpdate(optimizer: Any, label: str) -> None:
    """Refuse an optimizer that cannot update some elements alone.

    Raises    DataError
    """
    if not isDivisible(optimizer):
        name = type(optimizer).__name__
        raise DataError(f"{label}: {name} updates in a way of its own, of which no part can be done alone")
