"""Optimizer: updates all parameters of a network by one rule, and keeps their state across steps."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from puregraph.core.arguments import AnyFunction, Argument, Flag, ModuleLike, choice, isNumber, meets, takes
from puregraph.core.base.dtype import isFloating
from puregraph.core.base.signals import Deferred
from puregraph.core.errors import PuregraphError, UnknownAttributeError
from puregraph.optimizers.averages import Average
from puregraph.optimizers.parameterrule import ParameterRule
from puregraph.optimizers.ruleoption import RuleOption
from puregraph.optimizers.slot import CountedSteps, Slot, normOf, notFinite, restoredSlots, warnOverwritten

Share = Argument(
    "a number from 0 to 1, or a schedule of it",
    lambda value: meets(AnyFunction, value) or (isNumber(value) and 0 <= value <= 1),
)
AverageLike = Argument("an average, such as EMA(0.999)", lambda value: isinstance(value, Average))


class Optimizer(ParameterRule):
    """Updates parameters in place along their gradients. A subclass writes its paper's formulas:

        class MomentumSGD(Optimizer):
            rule = {
                "velocity": "momRate * velocity + grad",
                "param": "param - rate * velocity",
            }

            def __init__(self, learnRate=1e-3, momRate=0.9, **options):
                super().__init__(learnRate, **options)
                self.momRate = momRate

    `rule` is evaluated in order; what it assigns to besides `param` is state, an array that starts at 0. It may name
    `param`, `grad`, `rate` (the learning rate now, times the parameter's own), `decay`, `step` (how many updates this
    parameter has had, this one included), the `scalars`, formulas of `step` computed in float64, and attributes.

    Every optimizer takes these options:

    `schedule`     a function of `step`, the number of updates so far, giving a factor of the learning rate
    `decay`        weight decay: decay * param is added to the gradient, except where the rule names `decay` itself
    `clipNorm`     an upper bound of the norm of all gradients together: they are scaled by
                   min(1, clipNorm / (norm + 1e-6)), and `norm` keeps their norm before that
    `clipValue`    an upper bound of the size of each element of a gradient, instead
    `maximise`     climb along gradients instead of descending
    `decoupled`    weight decay beside the update, param - rate * decay * param, instead of in the gradient
    `spare`        "biases and norms": no weight decay for parameters of one axis
    `average`      an average of the parameters to validate with: `EMA`, `SWA` or `Lookahead`
    `onNonFinite`  what to do when a gradient holds nan or inf: "raise", or "skip" that update. Looking for them takes
                   a pass over all gradients; without this option it is done, and raises, only with `clipNorm`

    An update does not change parameters that are not `trainable` or have no gradient, nor their state. If some
    gradients are new since the last update, only those are applied (as with two graphs and one optimizer); otherwise
    all are applied again. Gradients are not changed. A parameter's `rate` is a factor of the learning rate; with
    `decay` False it has no weight decay. Updates of float16 and bfloat16 parameters are computed in float32, and so
    is their state.

    Source    Robbins, Monro 1951, Annals of Mathematical Statistics 22, eq. 8; Pascanu, Mikolov, Bengio 2013,
              arXiv:1211.5063, algorithm 1 (clipNorm)
    Raises    ArgumentError for an option out of range; TypeError for a class whose rule does not say what param becomes
    """

    elsewhere = {
        **dict.fromkeys(("lr", "learning_rate", "alpha"), "set learnRate"),
        **dict.fromkeys(("weight_decay", "weightDecay"), "set decay"),
        **dict.fromkeys(("momentum",), "set momRate, or beta1"),
        **dict.fromkeys(("clipnorm", "max_norm", "grad_clip"), "set clipNorm"),
        "param_groups": "parameters have a rate and decay of their own: net['fc'].W.rate",
    }
    unversioned = frozenset(("step", "norm", "later", "measured"))
    step: Any = CountedSteps()
    later: Any = None  # the GPU steps whose results are not read yet
    whole: Any = None  # the MultiOptimizer of which this is a member
    average: Any = RuleOption()
    asksAgain = False  # True if an update takes a closure, which it calls for more costs and gradients
    measured: float | None = None  # the norm of all gradients, if several processes computed it together

    @takes(
        schedule=AnyFunction | None,
        onNonFinite=choice("raise", "skip") | None,
        maximise=Flag,
        decoupled=Flag,
        spare=choice("biases and norms") | None,
        average=AverageLike | None,
    )
    def __init__(
        self,
        learnRate: float,
        schedule: Callable[[int], float] | None = None,
        decay: float = 0.0,
        clipNorm: float | None = None,
        clipValue: float | None = None,
        onNonFinite: str | None = None,
        maximise: bool = False,
        decoupled: bool = False,
        spare: str | None = None,
        average: Average | None = None,
    ):
        super().__init__(learnRate, schedule, decay, clipNorm, clipValue, maximise, decoupled, spare, average)
        self.onNonFinite = onNonFinite
        self.slots: list[Slot] = []
        self.net: Any = None  # the module of `setupOn`
        self.step = 0
        self.norm: float | None = None

    # Use ------------------------------------------------------------------------------------------------------

    @takes(net=ModuleLike)
    def setupOn(self, net: Any) -> Any:
        """Update the parameters of this module from now on. Returns the optimizer.

        Pass a part of a network, `setupOn(net["head"])`, to update that part alone, also in a Trainer or a compiled
        step of the full network. Call setupOn again after a change of the network: remaining parameters keep their
        state. On another network the state starts anew.

        Raises    ArgumentError if the rule names something that is neither a state nor an attribute
        """
        self.constants()
        self.net = net
        before = {id(slot.param): slot for slot in self.slots}
        once: dict[int, Slot] = {}
        for path, param in net.params.items():
            if id(param) not in once and isFloating(param.dtype):
                once[id(param)] = (before.get(id(param)) or Slot(path, param)).begin(path)
        self.slots = list(once.values())
        self.noteSpared(self.slots)
        if before.keys().isdisjoint(once):
            self.step = 0
        return self

    def setupFor(self, net: Any) -> Any:
        """Set up for steps of this network: on the part of it on which `setupOn` was called, otherwise on all of it.

        Raises    PuregraphError if this optimizer was set up on something else
        """
        wanted = {id(param): path for path, param in net.params.items()}
        netIds = None if self.net is None or self.net is net else set(map(id, self.net.params.values()))
        if netIds is None or netIds == wanted.keys():
            return self.setupOn(net)
        if not netIds <= wanted.keys():
            other, count = getattr(self.net, "title", self.net.brief)(), self.step
            made = f", where it has made {count} update{'s' * (count != 1)}" if count else ""
            raise PuregraphError(
                f"{type(self).__name__}: it is set up on {other}{made}, which is no part of this network: make an "
                "optimizer for each network, or call setupOn(net) before, which begins anew where parameters are new"
            )
        self.setupOn(self.net)
        for slot in self.slots:
            slot.path = wanted[id(slot.param)]
        for member in self.members:
            member.noteSpared([slot for slot in self.slots if self.ruleOf(slot) is member])
        return self

    def update(self) -> bool:
        """Make one step. Returns False if it was skipped because of a gradient that is not finite, see `onNonFinite`.

        Raises    PuregraphError if no parameter has a gradient, or one is not finite
        """
        self.sync()
        ready = self.ready()
        if not ready:
            raise PuregraphError(
                f"{type(self).__name__}: none of {len(self.slots)} parameters has a gradient; "
                "setupOn(net) comes first, and backward in trainMode before each update"
            )
        warnOverwritten(type(self).__name__, ready)
        shrink = self.shrinkFor(ready, [slot.param.grad for slot in ready])
        if shrink is None:
            return False
        rate = self.rateAt(self.step)
        with Deferred():  # all or nothing: otherwise the state of some parameters would be a step ahead of others
            for slot in ready:
                rule = slot.rule or self
                rule.advance(slot, rate if rule is self else self.rateOf(slot, rate, self.step), shrink)
            self.step += 1
        return True

    def ready(self) -> list[Slot]:
        """Return the parameters to update: those with a new gradient, or with any gradient if none is new."""
        ready = [s for s in self.slots if s.param.trainable and s.param.grad is not None]
        return [s for s in ready if s.param.gradVersion != s.applied] or ready

    def sync(self) -> None:
        """Wait for pending updates on a GPU, so that `step`, `norm` and the state include all updates so far.

        Raises    PuregraphError if a gradient was not finite, see `onNonFinite`
        """
        if self.later is not None:
            self.later.sync()

    @property
    def lossScale(self) -> float | None:
        """The last reported loss scale of float16 gradients on a GPU; None without one.

        Steps are reported some steps later; `sync()` waits for them.
        """
        return None if self.later is None or not self.later.scales else self.later.scale

    def zeroGradParams(self) -> None:
        """Set the gradients of all parameters to None."""
        for slot in self.slots:
            slot.forgetGrad()

    @property
    def rate(self) -> float:
        """The learning rate of the next update: `learnRate`, times the schedule's factor."""
        return self.rateAt(self.updates)

    @rate.setter
    def rate(self, value: Any) -> None:
        raise UnknownAttributeError(
            f"{type(self).__name__}: rate is learnRate times the schedule's factor; set learnRate"
        )

    @property
    def members(self) -> tuple[Optimizer, ...]:
        """The optimizers that update the parameters: only itself, except in a MultiOptimizer."""
        return (self,)

    def ruleOf(self, slot: Slot) -> ParameterRule:
        """Return the rule that updates the parameter of a slot."""
        return slot.rule or self

    @property
    def updates(self) -> int:
        return self.step if self.whole is None else self.whole.step

    def rateOf(self, slot: Slot, rate: float, step: int) -> float:
        """Return the learning rate of a slot after `step` updates, if that of this optimizer is `rate`."""
        return rate if slot.rule is None else rate * slot.rule.rateAt(step)

    def settings(self, step: int) -> tuple[Any, ...]:
        """Return the learning rate after `step` updates, and the other settings that may change between updates."""
        return self.rateAt(step), self.decay, self.clipValue

    @property
    def params(self) -> dict[str, Any]:
        """The parameters by path, each once."""
        return {slot.path: slot.param for slot in self.slots}

    @property
    def needsNorm(self) -> bool:
        """True if every update computes the norm of all gradients."""
        return self.clipNorm is not None or self.onNonFinite is not None

    def shrinkFor(self, ready: list[Slot], grads: list[Any], total: float | None = None) -> float | None:
        """Return the factor that scales the norm of all gradients to `clipNorm`; None to skip this update.

        `total` is their norm, if it is known already.
        """
        if not self.needsNorm:
            return 1.0
        if total is None or not math.isfinite(total):
            total = normOf(grads) if self.measured is None else self.measured
        self.norm = total
        if math.isfinite(self.norm):
            return 1.0 if self.clipNorm is None else min(1.0, self.clipNorm / (self.norm + 1e-6))
        if self.onNonFinite == "skip":
            return None
        raise notFinite(type(self).__name__, self.step, ready, grads)

    # Averages -------------------------------------------------------------------------------------------------

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """Give the network the averages of its parameters within a `with` statement; no effect without an average.

        If the state is sharded over several processes, all of them call it.
        """
        slots = self.slotsOfAverages
        kept = [slot.param.materialize().copy() for slot in slots]
        try:
            self.keepAverage()
            yield
        finally:
            for slot, data in zip(slots, kept):
                slot.write(data)

    def keepAverage(self) -> None:
        """Give the network the averages of its parameters permanently.

        If the state is sharded over several processes, all of them call it.
        """
        for slot in self.slotsOfAverages:
            slot.write(slot.gathered("average", self))

    @property
    def slotsOfAverages(self) -> list[Slot]:
        """The slots that have an average, in this process or in others."""
        self.sync()
        return [slot for slot in self.slots if slot.step and "average" in self.ruleOf(slot).stateNames(slot)]

    # Checkpoints ----------------------------------------------------------------------------------------------

    @property
    def state(self) -> dict[str, Any]:
        """The state arrays by name, such as "velocity/stem.conv.W": the arrays themselves, not copies. Empty before the
        first update.

        If the rule needs it, "step/stem.conv.W" is the number of updates of this parameter. If the state is sharded
        over several processes, each has a contiguous shard of the elements.
        """
        self.sync()
        arrays = {}
        for slot in self.slots:
            for name in self.ruleOf(slot).storedNames(slot) if slot.step else ():
                if name == "step" or slot.hasState:
                    arrays[f"{name}/{slot.path}"] = np.array(slot.step) if name == "step" else slot.arrays[name]
        return arrays

    def restore(self, step: int, arrays: Mapping[str, Any]) -> None:
        """Continue from `step` with the arrays that `state` gave then; they are copied.

        Raises    CheckpointError listing every array that is missing, unknown, or of another shape or kind;
                  nothing is changed then
        """
        for name, value in self.restored(step, arrays).items():
            setattr(self, name, value)

    def restored(self, step: int, arrays: Mapping[str, Any]) -> dict[str, Any]:
        """Return the attributes that `restore` sets, by name."""
        self.sync()
        rules = [self.ruleOf(slot) for slot in self.slots]
        slots = restoredSlots(type(self).__name__, self.slots, rules, step, arrays)
        return {"slots": slots, "step": int(step)}
