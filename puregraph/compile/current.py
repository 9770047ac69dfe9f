"""Current: whether what a program was made from is still as it was."""

from __future__ import annotations

from collections.abc import Container
from itertools import chain
from operator import attrgetter
from typing import Any

from puregraph.param import Stored

IGNORED = ("alone", "data", "grad", "train")  # attributes that a run changes, and the mode, which is looked at itself
FLAGS = attrgetter("trainable", "rate", "decay")
ARRAY, STEP, MODE = attrgetter("array"), attrgetter("step"), attrgetter("train")


class Current:
    """A likeness of a graph and of an optimizer: their modules, what those hold, modes, and options.

    It is looked at before every run, and so compares whole lists of identities; only where one differs, the things
    themselves. `held` are the targets of a schedule, `unread` the ids of modules whose rules run as they are; with
    `anyMode` modes may change.
    """

    def __init__(
        self,
        graph: Any,
        steps: Any,
        held: list[Any],
        optimizer: Any = None,
        anyMode: bool = False,
        unread: Container[int] = (),
    ):
        self.graph, self.steps, self.optimizer, self.anyMode = graph, steps, optimizer, anyMode
        self.modules = list({id(s.module): s.module for s in steps.items}.values())
        self.read = [m for m in self.modules if id(m) not in unread]
        self.stored = [target for target, _ in held if isinstance(target, Stored)]
        self.params = [target for target in self.stored if hasattr(target, "trainable")]
        self.slots = list(getattr(optimizer, "slots", ()))
        self.names = list(map(vars, self.read))
        self.attributes, self.modes = self.attributesNow(), self.modesNow()
        self.ids, self.arrays, self.flags = self.idsNow(), self.arraysNow(), self.flagsNow()
        self.options, self.steps0 = self.optionsNow(), self.stepsNow()

    def __bool__(self) -> bool:
        """Whether nothing has changed since."""
        return (
            self.graph.steps(len(self.steps.inputs)) is self.steps
            and (self.idsNow() == self.ids or self.isSame())
            and self.modesNow() == self.modes
            and self.arraysNow() == self.arrays
            and self.flagsNow() == self.flags
            and (self.optimizer is None or self.optionsNow() == self.options and self.stepsNow() == self.steps0)
        )

    def idsNow(self) -> list[int]:
        """The identities of all that modules hold."""
        return list(map(id, chain.from_iterable(map(dict.values, self.names))))

    def arraysNow(self) -> list[int]:
        """The identities of all arrays that are read or written."""
        kept = chain.from_iterable([slot.arrays.values() for slot in self.slots])
        return list(map(id, chain(map(ARRAY, self.stored), kept)))

    def flagsNow(self) -> list[Any]:
        """Which parameters are trained, and how."""
        return list(map(FLAGS, self.params))

    def modesNow(self) -> list[bool]:
        """The mode of every module."""
        return [] if self.anyMode else list(map(MODE, self.modules))

    def attributesNow(self) -> list[dict[str, Any]]:
        """What modules hold, without the values of their last run."""
        return [{k: v for k, v in each.items() if k not in IGNORED} for each in self.names]

    def isSame(self) -> bool:
        """Whether all that modules hold is equal to what it was, even if some of it was set again."""
        now = self.attributesNow()
        if not all(map(sameValues, now, self.attributes)):
            return False
        self.attributes, self.ids = now, self.idsNow()
        return True

    def optionsNow(self) -> Any:
        """What of an optimizer decides the calls of its update."""
        optimizer, slots = self.optimizer, list(map(id, getattr(self.optimizer, "slots", ())))
        if not hasattr(optimizer, "constants"):
            return slots
        limits = (optimizer.clipNorm is None, optimizer.clipValue is None, optimizer.onNonFinite is None)
        return slots, limits, bool(optimizer.decay), optimizer.constants()

    def stepsNow(self) -> list[int]:
        """How much further each parameter is than the first."""
        steps = list(map(STEP, self.slots))
        return [n - steps[0] for n in steps]


def sameValues(a: dict[str, Any], b: dict[str, Any]) -> bool:
    """Whether two modules' attributes are the same or equal."""
    return a.keys() == b.keys() and all(sameValue(a[k], b[k]) for k in a)


def sameValue(a: Any, b: Any) -> bool:
    """Whether two attributes are the same, or equal numbers, texts, or tuples of such."""
    return a is b or (type(a) is type(b) and isinstance(a, (int, float, str, tuple)) and a == b)
