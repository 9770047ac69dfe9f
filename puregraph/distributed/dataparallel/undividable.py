"""Networks and arguments that pipeline and tensor parallel training do not support."""

from __future__ import annotations

from typing import Any

from puregraph.compile.trace.updaterule import isPlain
from puregraph.core.errors import DataError
from puregraph.distributed.sharding.sharding import Sharding, isOnDevice


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
    """Refuse an optimizer that cannot update some parameters without the others.

    Raises    DataError
    """
    name = type(optimizer).__name__
    if not isPlain(optimizer):
        raise DataError(f"{label}: {name} updates in a way of its own, which cannot update only some parameters")


def refuseParts(optimizer: Any, sharding: Sharding, label: str) -> None:
    """Refuse a rule of arrays for a parameter that is divided along an axis.

    Raises    DataError
    """
    for slot in optimizer.slots:
        rule = optimizer.ruleOf(slot)
        if id(slot.param) in sharding.orders and not rule.isElementwise:
            raise DataError(
                f"{label}: {type(rule).__name__} updates '{slot.path}' as a whole, of which each process has a part; "
                'use an optimizer of formulas for it, or shard="state" or stages'
            )
