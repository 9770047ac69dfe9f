"""Update rule: an optimizer's update as calls on parameters, states and gradients."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from puregraph.compile.ir.external import GRADS, GradientOf, StateOf
from puregraph.compile.ir.value import CallOrigin, Value, store
from puregraph.compile.trace.graphtracer import GraphTracer
from puregraph.errors import PuregraphError
from puregraph.formula.formula import numpyFrom
from puregraph.kernels.norm import norm

OWN = ("update", "advance", "shrinkFor", "numbers", "formulas")  # methods that are compiled


def isPlain(optimizer: Any) -> bool:
    """Whether an optimizer updates by its formulas, without overriding the update."""
    kinds = {type(each) for each in (optimizer, *getattr(optimizer, "members", ()))}
    found = [getattr(kind, name, None) for kind in kinds for name in OWN]
    return all(getattr(f, "__module__", "").startswith("puregraph.optimizers.") for f in found)


class UpdateScalars:
    """The Python call before an update: it sets the clipping factor, and the scalars that the formulas read.

    `slots` are those that are updated; slots of one `group` have the same scalars. Called with the norm of all
    gradients, or nothing, and the gradients; False if the update is to be skipped.
    """

    def __init__(self, optimizer: Any, slots: list[Any]):
        self.optimizer, self.slots = optimizer, slots
        self.pattern = patternOf(slots)
        self.numbers: dict[tuple[int, str, Any], Value] = {}
        self.arrays: list[tuple[Any, list[tuple[str, Any]]]] = []
        self.before: Any = None

    def groups(self) -> list[Any]:
        """A slot of every group."""
        return [self.slots[self.pattern.index(g)] for g in range(max(self.pattern) + 1)]

    def bind(self, arrayOf: Any) -> None:
        """Bind the arrays that the scalars are written to."""
        found: dict[int, list[tuple[str, Any]]] = {}
        for (group, name, _), value in self.numbers.items():
            found.setdefault(group, []).append((name, arrayOf(value)))
        slots = self.groups()
        self.arrays = [(slots[group], arrays) for group, arrays in found.items()]
        self.before = None
        self.counts = any(name in self.counting for arrays in found.values() for name, _ in arrays)

    @property
    def counting(self) -> set[str]:
        """The names of the scalars that differ from update to update, besides the rate."""
        return {"step", *(name for each in self.optimizer.members for name in type(each).scalars)}

    def numbersAfter(self, fewer: int) -> dict[int, dict[str, float]]:
        """For each group the scalars of the next update, had there been n updates fewer."""
        optimizer, fewer = self.optimizer, min(fewer, self.optimizer.step)
        step = optimizer.step - fewer
        rate = optimizer.rateAt(step)
        return {
            group: optimizer.ruleOf(slot).numbers(slot, optimizer.rateOf(slot, rate, step), fewer=min(fewer, slot.step))
            for group, slot in enumerate(self.groups())
        }

    def __call__(self, found: Any, *grads: Any) -> bool:
        optimizer = self.optimizer
        shrink = 1.0
        if optimizer.looks:
            shrink = optimizer.shrinkFor(self.slots, grads, None if found is None else float(found))
            if shrink is None:
                return False
        self.refresh(shrink)
        return True

    def refresh(self, shrink: float = 1.0) -> None:
        """Write the scalars, if any differs from the last time."""
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
    """The Python call after an update: it counts."""

    def __init__(self, optimizer: Any, slots: list[Any]):
        self.optimizer, self.slots = optimizer, slots
        self.rest: Iterator[Any] | None = None
        self.isDone = False

    def __call__(self) -> bool:
        self.begin()
        self.go()
        return True

    def begin(self) -> None:
        """Start a new count for the update that follows."""
        self.rest, self.isDone = None, False

    def go(self) -> None:
        """Count, or go on counting: whatever a signal's handler raises in between, the next call does the rest.

        Handlers run behind calls and at the end of a turn of a loop, and so never between two of these assignments.
        """
        if self.rest is None:
            self.rest = iter(self.slots)
        own = vars(self.optimizer)
        if not self.isDone:
            for slot in self.rest:
                slot.step += 1
            own["step"] += 1
            self.isDone = True


def patternOf(slots: list[Any]) -> list[int]:
    """For every slot the number of its group: slots of a group have the same scalars in every formula."""
    known: dict[Any, int] = {}
    return [known.setdefault((s.step, s.param.rate, s.param.decay, id(s.rule)), len(known)) for s in slots]


class OpaqueOptimizer:
    """An optimizer that overrides the update: it runs as it is, on the gradients in `Param.grad`."""

    def __init__(self, optimizer: Any, params: list[Any]):
        self.optimizer, self.params = optimizer, params

    def __call__(self) -> bool:
        for param in self.params:
            param.grad = GRADS[param]
        self.optimizer.update()
        return True


def addOpaqueUpdate(found: Any, tracer: GraphTracer, optimizer: Any) -> None:
    """Store the gradients in `Param.grad`, and call the optimizer."""
    tracer.recorder.origin = CallOrigin("update", type(optimizer).__name__, (), "update")
    for param, grad in found.paramGrads:
        tracer.recorder.add(store, (grad,), {"target": GradientOf(param, grad.dtype)}, [], "store")
    tracer.recorder.add(OpaqueOptimizer(optimizer, [p for p, _ in found.paramGrads]), (), {}, [], "host")


def addUpdate(found: Any, tracer: GraphTracer, optimizer: Any) -> None:
    """Add the calls of an update with the schedule's gradients."""
    if not isPlain(optimizer):
        addOpaqueUpdate(found, tracer, optimizer)
        return
    gradOf = {id(p): v for p, v in found.paramGrads}
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
    isOpen = optimizer.looks and optimizer.measured is None
    size = recorder.made(norm, tuple(grads), {}, "kernel", (), np.dtype(np.float64)) if isOpen else None
    recorder.add(updateScalars, (size, *grads), {}, [], "host")
    for slot, group, grad in zip(slots, updateScalars.pattern, grads):
        recorder.origin = CallOrigin(slot.path, type(optimizer).__name__, (), "update")
        advance(found, tracer, updateScalars, slot, group, grad)
    recorder.origin = CallOrigin("update", type(optimizer).__name__, (), "update")
    recorder.add(CountStep(optimizer, slots), (), {}, [], "host")


def advance(found: Any, tracer: GraphTracer, updateScalars: UpdateScalars, slot: Any, group: int, grad: Value) -> None:
    """Add the call that updates one parameter and its state."""
    recorder, rule, param = tracer.recorder, updateScalars.optimizer.ruleOf(slot), slot.param
    rule.prepare(slot)
    formulas = rule.formulas(bool(rule.decay and param.decay))
    targets = {"param": param, **{name: StateOf(slot, name) for name in slot.arrays}}
    arrays = {"grad": grad}
    for name, target in targets.items():
        arrays[name] = tracer.held(target, f"{slot.path}" if name == "param" else f"{name}/{slot.path}")
    names = tuple(dict.fromkeys(name for f in formulas.values() for name in f.names))
    work = np.result_type(np.float32, *[arrays[name].dtype for name in names if name in arrays])
    given = tuple([arrays.get(name) or number(found, tracer, updateScalars, group, name, work) for name in names])
    outs = [recorder.value(arrays[n].shape, arrays[n].dtype, arrays[n].strides, name=n) for n in formulas]
    recorder.add(numpyFrom(tuple(formulas.values()), names), given, {}, outs, "pointwise", True)
    found.stores += [(targets[name], y) for name, y in zip(formulas, outs)]
    found.written.append(param)


def number(found: Any, tracer: GraphTracer, updateScalars: UpdateScalars, group: int, name: str, dtype: Any) -> Value:
    """The Value of a scalar that the update sets."""
    key = group, name, dtype
    if key not in updateScalars.numbers:
        value = tracer.recorder.value((), dtype, role="scalar", name=name, source=name)
        updateScalars.numbers[key] = value
        found.scalars.append(value)
    return updateScalars.numbers[key]
