"""Update rule: trace an optimizer's update into calls on parameters, states and gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from puregraph.compile.ir.external import GRADS, GradientOf, StateOf
from puregraph.compile.trace.graphtracer import GraphTracer
from puregraph.core.errors import PuregraphError
from puregraph.core.tracer import astype
from puregraph.ops.formula.formula import numpyFrom
from puregraph.ops.ir.value import CallOrigin, Value, store
from puregraph.ops.reduction.norm import norm

if TYPE_CHECKING:
    from puregraph.compile.trace.schedule import Schedule
    from puregraph.core.device import Array
    from puregraph.core.param import Param
    from puregraph.optimizers.optimizer import Optimizer
    from puregraph.optimizers.parameterrule import ParameterRule
    from puregraph.optimizers.slot import Slot

NumberOf = Callable[[str, np.dtype], Value]
COMPILED_METHODS = ("update", "advance", "shrinkFor", "numbers", "formulas")


def isPlain(optimizer: Optimizer) -> bool:
    """True if an optimizer updates by formulas only, without overriding the update."""
    kinds = {type(member) for member in (optimizer, *getattr(optimizer, "members", ()))}
    if getattr(optimizer, "asksAgain", False):
        return False
    methods = [getattr(kind, name, None) for kind in kinds for name in COMPILED_METHODS]
    return all(getattr(f, "__module__", "").startswith("puregraph.optimizers.") for f in methods)


def isElementwise(optimizer: Optimizer) -> bool:
    """True if an optimizer updates each element by formulas, so that processes can update some elements each."""
    return all(member.isElementwise for member in getattr(optimizer, "members", ()))


class UpdateScalars:
    """The Python call before an update: set the clipping factor and the scalars that the formulas read.

    `slots` are the slots that are updated; slots of one group share their scalars. Called with the norm of all
    gradients (or None) and the gradients; returns False if the update must be skipped.
    """

    def __init__(self, optimizer: Any, slots: list[Slot]):
        self.optimizer, self.slots = optimizer, slots
        self.pattern = patternOf(optimizer, slots)
        self.numbers: dict[tuple[int, str, Any], Value] = {}
        self.arrays: list[tuple[Any, list[tuple[str, Any]]]] = []
        self.before: Any = None

    def groups(self) -> list[Slot]:
        """A slot of every group."""
        return [self.slots[self.pattern.index(g)] for g in range(max(self.pattern) + 1)]

    def bind(self, arrayOf: Callable[[Value], Any]) -> None:
        """Bind the arrays that the scalars are written to."""
        byGroup: dict[int, list[tuple[str, Any]]] = {}
        for (group, name, _), value in self.numbers.items():
            byGroup.setdefault(group, []).append((name, arrayOf(value)))
        slots = self.groups()
        self.arrays = [(slots[group], arrays) for group, arrays in byGroup.items()]
        self.before = None
        self.counts = any(name in self.counting for arrays in byGroup.values() for name, _ in arrays)

    @property
    def counting(self) -> set[str]:
        """The names of scalars that change with every update, besides the rate."""
        members = self.optimizer.members
        return {"step", *(name for member in members for name in (*dict(member.texts[1]), *member.scheduled()))} | (
            {"decay"} if any(callable(member.decay) for member in members) else set()
        )

    def numbersAfter(self, fewer: int) -> dict[int, dict[str, float]]:
        """For each group, the scalars of the next update as if there had been `fewer` updates fewer."""
        optimizer, fewer = self.optimizer, min(fewer, self.optimizer.step)
        step = optimizer.step - fewer
        rate = optimizer.rateAt(step)
        return {
            group: optimizer.ruleOf(slot).numbers(slot, optimizer.rateOf(slot, rate, step), fewer=min(fewer, slot.step))
            for group, slot in enumerate(self.groups())
        }

    def __call__(self, gradNorm: Array | None, *grads: Array) -> bool:
        optimizer = self.optimizer
        shrink = 1.0
        if optimizer.needsNorm:
            shrink = optimizer.shrinkFor(self.slots, grads, None if gradNorm is None else float(gradNorm))
            if shrink is None:
                return False
        self.refresh(shrink)
        return True

    def refresh(self, shrink: float = 1.0) -> None:
        """Write the scalars if any of them has changed."""
        optimizer = self.optimizer
        now = (*optimizer.settings(optimizer.step), shrink)
        if now != self.before or self.counts:
            with np.errstate(all="ignore"):
                self.write(now[0], shrink)
            self.before = now

    def write(self, rate: float, shrink: float) -> None:
        """Write the scalars to the arrays that formulas read."""
        optimizer = self.optimizer
        for slot, arrays in self.arrays:
            rule = slot.rule or optimizer
            numbers = rule.numbers(slot, optimizer.rateOf(slot, rate, optimizer.step), shrink)
            for name, array in arrays:
                array[...] = numbers[name]


class CountStep:
    """The Python call after an update: count the step."""

    def __init__(self, optimizer: Any, slots: list[Slot]):
        self.optimizer, self.slots = optimizer, slots
        self.pending: Iterator[Any] | None = None
        self.isDone = False

    def __call__(self) -> bool:
        self.begin()
        self.go()
        return True

    def begin(self) -> None:
        """Start a new count for the update that follows."""
        self.pending, self.isDone = None, False

    def go(self) -> None:
        """Count the step for every slot. If a signal handler raises meanwhile, the next call counts the others.

        Python runs handlers after calls and at the end of a loop iteration, never between two of these assignments.
        """
        if self.pending is None:
            self.pending = iter(self.slots)
        attributes = vars(self.optimizer)
        if not self.isDone:
            for slot in self.pending:
                slot.step += 1
            attributes["step"] += 1
            self.isDone = True


def patternOf(optimizer: Optimizer, slots: list[Slot]) -> list[int]:
    """The group number of every slot: slots of a group have the same scalars in every formula."""
    known: dict[Any, int] = {}
    return [
        known.setdefault((s.step, s.param.rate, optimizer.ruleOf(s).decays(s), id(s.rule)), len(known)) for s in slots
    ]


class OpaqueOptimizer:
    """An optimizer that overrides the update: it runs as Python, on the gradients in `Param.grad`."""

    def __init__(self, optimizer: Optimizer, params: list[Param]):
        self.optimizer, self.params = optimizer, params

    def __call__(self) -> bool:
        for param in self.params:
            param.grad = GRADS[param]
        self.optimizer.update()
        return True


def addOpaqueUpdate(schedule: Schedule, tracer: GraphTracer, optimizer: Optimizer) -> None:
    """Store the gradients in `Param.grad`, and call the optimizer."""
    tracer.recorder.origin = CallOrigin("update", type(optimizer).__name__, (), "update")
    for param, grad in schedule.paramGrads:
        tracer.recorder.add(store, (grad,), {"target": GradientOf(param, grad.dtype)}, [], "store")
    tracer.recorder.add(OpaqueOptimizer(optimizer, [p for p, _ in schedule.paramGrads]), (), {}, [], "host")


def addUpdate(schedule: Schedule, tracer: GraphTracer, optimizer: Optimizer) -> None:
    """Add the calls of an update with the schedule's gradients."""
    if not isPlain(optimizer):
        addOpaqueUpdate(schedule, tracer, optimizer)
        return
    gradOf = {id(p): v for p, v in schedule.paramGrads}
    slots = [s for s in optimizer.slots if s.param.trainable and id(s.param) in gradOf]
    if not slots:
        raise PuregraphError(
            f"{type(optimizer).__name__}: none of {len(optimizer.slots)} parameters has a gradient; "
            "setupOn(net) comes first, and something must be trainable"
        )
    recorder = tracer.recorder
    recorder.origin = CallOrigin("update", type(optimizer).__name__, (), "update")
    grads = [gradOf[id(s.param)] for s in slots]
    updateScalars = UpdateScalars(optimizer, slots)
    isOpen = optimizer.needsNorm and optimizer.measured is None
    size = recorder.made(norm, tuple(grads), {}, "kernel", (), np.dtype(np.float64)) if isOpen else None
    recorder.add(updateScalars, (size, *grads), {}, [], "host")
    for slot, group, grad in zip(slots, updateScalars.pattern, grads):
        recorder.origin = CallOrigin(slot.path, type(optimizer).__name__, (), "update")
        advance(schedule, tracer, updateScalars, slot, group, grad)
    recorder.origin = CallOrigin("update", type(optimizer).__name__, (), "update")
    recorder.add(CountStep(optimizer, slots), (), {}, [], "host")


def advance(
    schedule: Schedule, tracer: GraphTracer, updateScalars: UpdateScalars, slot: Slot, group: int, grad: Value
) -> None:
    """Add the calls that update one parameter and its state."""
    rule, param = updateScalars.optimizer.ruleOf(slot), slot.param
    rule.prepare(slot)
    targets = {"param": param, **{name: StateOf(slot, name) for name in slot.arrays}}
    arrays = {"grad": grad}
    for name, target in targets.items():
        arrays[name] = tracer.held(target, f"{slot.path}" if name == "param" else f"{name}/{slot.path}")
    add = addFunction if callable(rule.rule) else addFormulas
    numberOf = partial(number, schedule, tracer, updateScalars, group)
    for name, y in add(tracer, rule, slot, arrays, numberOf).items():
        schedule.stores.append((targets[name], y))
    schedule.written.append(param)


def addFormulas(
    tracer: GraphTracer, rule: ParameterRule, slot: Slot, arrays: dict[str, Value], numberOf: NumberOf
) -> dict[str, Value]:
    """Add the call of a rule of formulas. Returns the new arrays by name."""
    formulas = rule.formulas(rule.decays(slot))
    names = tuple(dict.fromkeys(name for f in formulas.values() for name in f.names))
    work = rule.workDtype({name: arrays[name] for name in names if name in arrays})
    arguments = tuple([arrays.get(name) or numberOf(name, work) for name in names])
    outs = [tracer.recorder.value(arrays[n].shape, arrays[n].dtype, arrays[n].strides, name=n) for n in formulas]
    tracer.recorder.add(numpyFrom(tuple(formulas.values()), names), arguments, {}, outs, "pointwise", True)
    return dict(zip(formulas, outs))


def addFunction(
    tracer: GraphTracer, rule: ParameterRule, slot: Slot, arrays: dict[str, Value], numberOf: NumberOf
) -> dict[str, Value]:
    """Add the calls of a rule that is a function of arrays. Returns the new arrays by name."""
    work, recorder = rule.workDtype(arrays), tracer.recorder
    decays = rule.decays(slot)
    values = {name: recorder.handle(numberOf(name, work)) for name in rule.numbersRead(decays)}
    values |= {name: astype(recorder.handle(array), work, copy=False) for name, array in arrays.items()}
    results = rule.computed(values, decays)
    return {name: tracer.taken(astype(result, arrays[name].dtype)) for name, result in results.items()}


def number(
    schedule: Schedule, tracer: GraphTracer, updateScalars: UpdateScalars, group: int, name: str, dtype: np.dtype
) -> Value:
    """The Value of a scalar that the update sets."""
    key = group, name, dtype
    if key not in updateScalars.numbers:
        value = tracer.recorder.value((), dtype, role="scalar", name=name, source=name)
        updateScalars.numbers[key] = value
        schedule.scalars.append(value)
    return updateScalars.numbers[key]
