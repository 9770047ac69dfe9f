"""Current: whether what a program was made from is still as it was."""

from __future__ import annotations

from typing import Any

from puregraph.compile.update import patternOf

IGNORED = ("alone", "data", "grad", "train")  # attributes that a run changes, and the mode, which is looked at itself


class Current:
    """A likeness of a graph and of an optimizer: their modules, what those hold, modes, and options.

    `held` are the targets of a schedule with their Values; with `anyMode` modes may change.
    """

    def __init__(
        self, graph: Any, steps: Any, held: list[Any], optimizer: Any = None, prelude: Any = None, anyMode: bool = False
    ):
        self.graph, self.steps, self.optimizer, self.prelude = graph, steps, optimizer, prelude
        self.anyMode = anyMode
        self.modules = list({id(s.module): s.module for s in steps.items}.values())
        self.attributes = [attributesOf(m) for m in self.modules]
        self.ids, self.modes = self.idsNow(), [m.train for m in self.modules]
        self.targets = [(target, target.data) for target, _ in held]
        self.params = [target for target, _ in self.targets if hasattr(target, "trainable")]
        self.trainable = [p.trainable for p in self.params]
        self.options = self.optionsNow()

    def __bool__(self) -> bool:
        """Whether nothing has changed since."""
        graph, steps = self.graph, self.steps
        return (
            graph.steps(len(steps.inputs)) is steps
            and (self.anyMode or [m.train for m in self.modules] == self.modes)
            and (self.idsNow() == self.ids or self.sameAttributes())
            and [p.trainable for p in self.params] == self.trainable
            and self.sameArrays()
            and self.optionsNow() == self.options
        )

    def idsNow(self) -> list[Any]:
        """The identities of all that modules hold."""
        return [[id(v) for k, v in vars(m).items() if k not in IGNORED] for m in self.modules]

    def sameAttributes(self) -> bool:
        """Whether all that modules hold is equal to what it was, even if some of it was set again."""
        now = [attributesOf(m) for m in self.modules]
        if not all(map(sameValues, now, self.attributes)):
            return False
        self.attributes, self.ids = now, self.idsNow()
        return True

    def sameArrays(self) -> bool:
        """Whether every target has the array that it had."""
        try:
            return all(target.data is array for target, array in self.targets)
        except KeyError:  # an optimizer has forgotten its state
            return False

    def optionsNow(self) -> Any:
        """What of an optimizer decides the calls of its update."""
        optimizer = self.optimizer
        if optimizer is None:
            return None
        slots = [(id(s), s.param.trainable) for s in getattr(optimizer, "slots", ())]
        if self.prelude is None:
            return slots
        looks = (optimizer.looks, optimizer.clipNorm is None, optimizer.clipValue is None, bool(optimizer.decay))
        return slots, looks, optimizer.constants(), patternOf(self.prelude.slots)


def attributesOf(module: Any) -> dict[str, Any]:
    """What a module holds, without the values of its last run."""
    return {k: v for k, v in vars(module).items() if k not in IGNORED}


def sameValues(a: dict[str, Any], b: dict[str, Any]) -> bool:
    """Whether two modules' attributes are the same or equal."""
    return a.keys() == b.keys() and all(sameValue(a[k], b[k]) for k in a)


def sameValue(a: Any, b: Any) -> bool:
    """Whether two attributes are the same, or equal numbers, texts, or tuples of such."""
    if a is b:
        return True
    plain = (int, float, str, tuple, frozenset)
    return type(a) is type(b) and isinstance(a, plain) and not hasattr(a, "shape") and a == b
