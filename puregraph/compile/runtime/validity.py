"""Validity: detect that a compiled program is stale because its graph, parameters or optimizer have changed."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from puregraph.core.base.cachedproperty import CachedProperty
from puregraph.core.param import Stored
from puregraph.core.rules import rulesFor
from puregraph.core.versioning import COUNTER, isVersioned

if TYPE_CHECKING:
    from puregraph.compile.ir.external import StoreTarget
    from puregraph.graph import Graph
    from puregraph.graph.module import Module
    from puregraph.graph.steps import Steps
    from puregraph.ops.ir.value import Value

IGNORED = ("alone", "data", "grad", "isTraining", "thawedMode", "precision")  # attributes that a run changes, and modes
FLAGS = attrgetter("trainable", "rate", "decay")
ARRAY, KEPT, STEP, MODE, PRECISION = map(attrgetter, ("array", "arrays", "step", "isTraining", "precision"))


class Validity:
    """A snapshot of a graph and of an optimizer: their modules, attributes, modes, and options.

    It is checked before every run. If the version counter says that no attribute was set, only an optimizer's arrays
    and step, which have no version, are checked. Otherwise lists of identities are compared, and if one differs, the
    objects themselves. `held` are the targets of a schedule; `unread` are the ids of modules with opaque rules; with
    `anyMode` modes may change. `reads` are the values that rules read besides their arguments.
    """

    def __init__(
        self,
        graph: Graph,
        steps: Steps,
        held: list[tuple[StoreTarget, Value]],
        optimizer: Any = None,
        anyMode: bool = False,
        unread: Container[int] = (),
        reads: Sequence[Any] = (),
    ):
        self.mark: Any = None
        self.graph, self.steps, self.optimizer, self.anyMode = graph, steps, optimizer, anyMode
        self.reads = list(reads)
        self.modules = list({id(s.module): s.module for s in steps.items}.values())
        self.read = [m for m in self.modules if id(m) not in unread]
        self.stored = [target for target, _ in held if isinstance(target, Stored)]
        self.params = [target for target in self.stored if hasattr(target, "trainable")]
        self.slots = list(getattr(optimizer, "slots", ()))
        self.updated = [slot for slot in self.slots if slot.param.trainable]  # other slots fall behind with every step
        self.names: list[Any] = list(map(vars, self.read))
        self.attributes, self.modes, self.precisions = self.attributesNow(), self.modesNow(), self.precisionsNow()
        self.ids, self.arrays, self.flags = self.idsNow(), self.arraysNow(), self.flagsNow()
        self.options, self.steps0 = self.optionsNow(), self.stepsNow()
        self.rules = self.rulesNow()
        self.kept = self.keptNow()
        self.alive = [t.array for t in self.stored], [dict(slot.arrays) for slot in self.slots]  # keeps ids unique
        self.areVersioned = all(map(isVersioned, (*self.modules, *graphsIn(graph), *filter(None, [optimizer]))))
        self.isEven = not any(self.steps0)

    def __bool__(self) -> bool:
        """True if nothing has changed since the snapshot."""
        if self.reads and not all(read.isSame for read in self.reads):
            return False
        mark = COUNTER.version  # read first, so that the next check sees any later change
        if mark is self.mark and (not self.updated or self.isWhereItWas()):
            return True
        self.mark = mark if self.areVersioned else None
        if self.isUnchanged():
            return True
        self.mark = None
        return False

    def isWhereItWas(self) -> bool:
        """True if an optimizer's slots, arrays and steps, which have no version, are the same."""
        steps = list(map(STEP, self.updated))
        isEven = steps.count(steps[0]) == len(steps) if self.isEven else self.stepsNow() == self.steps0
        return isEven and self.optimizer.slots == self.slots and self.keptNow() == self.kept

    def isUnchanged(self) -> bool:
        """Compare everything with the snapshot."""
        return (
            self.graph.steps(len(self.steps.inputs)) is self.steps
            and (self.idsNow() == self.ids or self.isSame())
            and self.modesNow() == self.modes
            and self.precisionsNow() == self.precisions
            and self.arraysNow() == self.arrays
            and self.flagsNow() == self.flags
            and self.rulesNow() == self.rules
            and (self.optimizer is None or self.optionsNow() == self.options and self.stepsNow() == self.steps0)
            and self.keptNow() == self.kept
        )

    def idsNow(self) -> list[int]:
        """The identities of all attributes of modules."""
        return list(map(id, chain.from_iterable(map(dict.values, self.names))))

    def arraysNow(self) -> list[int]:
        """The identities of all parameters and states."""
        return list(map(id, map(ARRAY, self.stored)))

    def keptNow(self) -> list[int]:
        """The identities of all arrays of the optimizer."""
        return list(map(id, chain.from_iterable(map(dict.values, map(KEPT, self.slots)))))

    def flagsNow(self) -> list[Any]:
        """The settings of every parameter that decide whether and how it is trained."""
        return list(map(FLAGS, self.params))

    def rulesNow(self) -> Any:
        """The gradient rules of all nodes."""
        return rulesFor([step.node for step in self.steps.items])

    def modesNow(self) -> list[bool]:
        """The mode of every module."""
        return [] if self.anyMode else list(map(MODE, self.modules))

    def precisionsNow(self) -> list[str]:
        """The precision of every module."""
        return list(map(PRECISION, self.modules))

    def attributesNow(self) -> list[dict[str, Any]]:
        """The attributes of modules, without the values of their last run."""
        return [{k: v for k, v in vars(m).items() if k not in IGNORED and not isCached(m, k)} for m in self.read]

    def isSame(self) -> bool:
        """True if all attributes are equal to the snapshot's, even if some were set again."""
        now = self.attributesNow()
        if not all(map(sameValues, now, self.attributes)):
            return False
        self.attributes, self.ids = now, self.idsNow()
        return True

    def optionsNow(self) -> Any:
        """The options of an optimizer that decide the calls of its update."""
        optimizer, slots = self.optimizer, list(map(id, getattr(self.optimizer, "slots", ())))
        if not hasattr(optimizer, "constants"):
            return slots
        limits = (optimizer.clipNorm is None, optimizer.onNonFinite is None)
        return (
            slots,
            limits,
            [updateOptions(member) for member in optimizer.members],
        )

    def stepsNow(self) -> list[int]:
        """The number of steps by which each updated parameter is ahead of the first."""
        steps = list(map(STEP, self.updated))
        return [n - steps[0] for n in steps]


def updateOptions(member: Any) -> tuple[Any, ...]:
    """The settings of one optimizer that decide the formulas of its update."""
    decay = bool(member.decay), callable(member.decay)
    kinds = getattr(member, "maximise", False), getattr(member, "decoupled", False), getattr(member, "spared", None)
    return member.clipValue is None, decay, kinds, member.constants()


def graphsIn(graph: Graph) -> Iterator[Graph]:
    """A graph and all its subgraphs."""
    yield graph
    for node in graph.nodes:
        if hasattr(node.module, "nodes"):
            yield from graphsIn(node.module)


def sameValues(a: dict[str, Any], b: dict[str, Any]) -> bool:
    """True if two modules' attributes are the same or equal."""
    return a.keys() == b.keys() and all(sameValue(a[k], b[k]) for k in a)


def sameValue(a: object, b: object) -> bool:
    """True if two attributes are the same object, or equal numbers, texts or tuples."""
    return a is b or (type(a) is type(b) and isinstance(a, (int, float, str, tuple)) and a == b)


def isCached(module: Module, name: str) -> bool:
    """True if an attribute is a cached property, computed when it is first read."""
    return type(getattr(type(module), name, None)) is CachedProperty
