"""Networks and arguments that pipeline and tensor parallel training do not support."""

from __future__ import annotations

from typing import Any

from puregraph.compile.trace.updaterule import isDivisible
from puregraph.core.errors import DataError
from puregraph.distributed.sharding.sharding import isOnDevice


def refuseUndividable(trainer: Any, label: str, parts: str) -> None:
    """Refuse a trainer that cannot train `parts` of a network separately; `label` is the setting that divides it.

    Raises    DataError
    """
    if any(map(isOnDevice, trainer.net.params.values())):
        raise DataError(f"{label}: {parts} are computed on the CPU alone; train on the GPU without them")
    refuseUpdate(trainer.optimizer, label)
    computed = [f"{step.path}.{name}" for step in trainer.net.steps().items for name, _ in step.handed]
    if computed:
        raise DataError(f"{label}: {computed[0]} is computed by another node; bake() it, or train without {label}")
    if trainer.world.survives:
        raise DataError(f"{label}: a lost process has {parts} that no other one has; start without ULFM")


def refuseUpdate(optimizer: Any, label: str) -> None:
    """Refuse an optimizer that cannot update some elements without the others.

    Raises    DataError
    """
    name = type(optimizer).__name__
    if not isDivisible(optimizer):
        raise DataError(f"{label}: {name} updates in a way of its own, of which no part can be done alone")
    if any("average" in dict(member.texts[0]) for member in optimizer.members):
        raise DataError(f"{label}: no rank would have all of the average that {name} validates with; leave it out")
