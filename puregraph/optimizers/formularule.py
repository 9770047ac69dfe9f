"""FormulaRule: how one parameter and its state are updated, in formulas."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from puregraph.core.arguments import isNumber
from puregraph.core.base.keywords import GIVESPARAMS, holdsParams
from puregraph.core.errors import ArgumentError, PuregraphError
from puregraph.ops.formula import Formula
from puregraph.optimizers.initrecorder import InitRecorder
from puregraph.optimizers.schedules import factorAt
from puregraph.optimizers.slot import Slot
from puregraph.optimizers.updateformulas import attributes, formulasOf, scalarsAt, states, together


class FormulaRule(InitRecorder):
    """The update of one parameter by the formulas of a class; its settings are the attributes of `Optimizer`.

    Raises    TypeError for a class whose rule has no formula for param
    """

    rule: Mapping[str, str] = {}
    scalars: Mapping[str, str] = {}

    def __init__(
        self,
        learnRate: float,
        schedule: Callable[[int], float] | None,
        decay: float,
        clipNorm: float | None,
        clipValue: float | None,
    ):
        if "param" not in self.rule:
            raise TypeError(
                f"{type(self).__name__} has no update: write rule = {{..., 'param': 'a formula'}} in its class"
            )
        self.learnRate = self.within("learnRate", learnRate)
        self.schedule = schedule
        self.decay = self.within("decay", decay)
        self.clipNorm = None if clipNorm is None else self.within("clipNorm", clipNorm)
        self.clipValue = None if clipValue is None else self.within("clipValue", clipValue)
        if clipNorm is not None and clipValue is not None:
            raise ArgumentError(f"{type(self).__name__}: wanted clipNorm or clipValue, got both")

    def within(self, name: str, value: float, limit: float = math.inf) -> float:
        """A setting from 0 to below `limit`, or an ArgumentError."""
        if not (isNumber(value) and 0 <= value < limit):
            bounds = "of at least 0" if limit == math.inf else f"from 0 to below {limit}"
            hint = f"; {GIVESPARAMS}" * holdsParams(value)
            raise ArgumentError(f"{type(self).__name__}: wanted {name} {bounds}, got {value!r:.200}{hint}")
        return value

    def rateAt(self, step: int) -> float:
        """The learning rate after `step` updates."""
        return self.learnRate * (1.0 if self.schedule is None else factorAt(self.schedule, step))

    def formulas(self, decays: bool) -> dict[str, Formula]:
        """Return the formulas of each state and of `param` after a step, in terms of the values before it.

        They name these arrays, `grad`, and the scalars of `numbers`. With `decays`, weight decay is included.
        """
        if self.clipNorm is not None:
            grad = "shrink * grad"
        elif self.clipValue is not None:
            grad = "clip(grad, -clipValue, clipValue)"
        else:
            grad = "grad"
        return formulasOf(type(self), self.constants(), grad, decays)

    def constants(self) -> tuple[tuple[str, float], ...]:
        """The attributes that the rule names, with their values now.

        Raises    ArgumentError for a name that is neither state nor an attribute
        """
        try:
            return tuple([(name, getattr(self, name)) for name in attributes(type(self))])
        except AttributeError:
            cls = type(self).__name__
            name = next(name for name in attributes(type(self)) if not hasattr(self, name))
            raise ArgumentError(
                f"{cls}: its rule names '{name}', which is neither state nor an attribute; assign it in the rule, as "
                f"in '{name}': 'a formula', or set self.{name} in __init__"
            ) from None

    def numbers(self, slot: Slot, rate: float, shrink: float = 1.0, fewer: int = 0) -> dict[str, float]:
        """The scalars of the update that follows, for one parameter; as if it had had `fewer` updates."""
        step = float(slot.step + 1 - fewer)
        return {
            "rate": rate * slot.param.rate,
            "decay": self.decay if slot.param.decay else 0.0,
            "shrink": shrink,
            "clipValue": self.clipValue or 0.0,
            "step": step,
            **(scalarsAt(type(self), self.constants(), step) if self.scalars else {}),
        }

    def prepare(self, slot: Slot) -> None:
        """Make the arrays of the state that a parameter does not have yet.

        Raises    PuregraphError if the state is sharded over several processes
        """
        if slot.part is not None:
            raise PuregraphError(
                f"{type(self).__name__}: '{slot.path}' has its state in parts, each in another process, after training "
                "with shard; load what trainer.save wrote, which has all of it"
            )
        for name in states(type(self)):
            if name not in slot.arrays:
                slot.arrays[name] = slot.blank()

    def advance(self, slot: Slot, rate: float, shrink: float = 1.0) -> None:
        """Update one parameter and its state, in place."""
        param = slot.param
        self.prepare(slot)
        arrays = {"param": param.materialize(), "grad": param.grad, **slot.arrays}
        values = {**arrays, **self.numbers(slot, rate, shrink)}
        slot.noteApplied(param.gradVersion)
        formulas = self.formulas(bool(self.decay and param.decay))
        names, function = together(tuple(formulas.values()))
        try:
            function(*[values[name] for name in names], out=[arrays[name] for name in formulas])
        finally:
            param.bumpVersion()
        slot.step += 1
