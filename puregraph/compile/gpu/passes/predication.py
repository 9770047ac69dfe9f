"""Predication: a check that would end a step on the CPU becomes, on a GPU, a selection between new and old values.

    go = cost and gradients are finite;  param = where(go, update, param);  state = where(go, new, state)

So the host makes no decision during a step. It writes the scalars of an update before the step and counts it after.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from puregraph.compile.gpu.passes.fusedoptimizer import ParameterUpdate, memberOf, together
from puregraph.compile.gpu.runtime.updatestatus import (
    COST,
    GRADIENT,
    MAX_SCALE,
    MAX_STEPS_AHEAD,
    MIN_SCALE,
    UPDATES_PER_DOUBLING,
    UpdateStatus,
    statusOf,
)
from puregraph.compile.trace.schedule import isFinite
from puregraph.compile.trace.updaterule import CountStep, OpaqueOptimizer, UpdateScalars
from puregraph.ops.formula import Formula
from puregraph.ops.formula.formula import formulasOf, numpyFrom
from puregraph.ops.formula.interpreter import Interpreter
from puregraph.ops.ir.value import Call, CallOrigin, Value
from puregraph.ops.reduction.norm import norm as normOf

if TYPE_CHECKING:
    from collections.abc import Sequence

    from puregraph.compile.trace.schedule import Schedule

FLOAT, DOUBLE, BOOL = np.dtype(np.float32), np.dtype(np.float64), np.dtype(bool)
NORM_OFFSET = 1e-6  # added to a norm before a division by it
GOES = Formula("halt == 0 or clear != 0")
HALTS = Formula("where(clear != 0, 0, halt)")
RUNS = Formula(f"where(goes, where(good + 1 < {UPDATES_PER_DOUBLING}, good + 1, 0), where(fails, 0, good))")
LARGER = f"where(goes and good + 1 >= {UPDATES_PER_DOUBLING}, minimum(2 * scale, {MAX_SCALE}), scale)"
SCALES = Formula(f"where(fails, maximum(scale / 2, {MIN_SCALE}), {LARGER})")


class HostUpdate:
    """The host's work before and after a step: write the scalars of the update, and count it.

    `numbers`  the Values that it writes besides those of `updateScalars`, by name
    `fewer`    the scalars in case the last 1, 2, ... updates were skipped, by (group, name, number of these updates)
    """

    def __init__(
        self,
        updateScalars: UpdateScalars | None = None,
        countStep: CountStep | None = None,
        status: UpdateStatus | None = None,
    ):
        self.updateScalars, self.countStep, self.status = updateScalars, countStep, status
        self.numbers: dict[str, Value] = {}
        self.fewer: dict[tuple[int, str, int], Value] = {}
        self.arrays: dict[str, Any] = {}
        self.rows: list[list[tuple[int, str, Any]]] = []

    def bind(self, arrayOf: Any) -> None:
        """Bind the arrays that the scalars are written to."""
        self.arrays = {name: arrayOf(value) for name, value in self.numbers.items()}
        self.rows = [
            [(g, name, arrayOf(v)) for (g, name, n), v in self.fewer.items() if n == fewer]
            for fewer in range(1, MAX_STEPS_AHEAD)
        ]
        if self.updateScalars is not None:
            self.updateScalars.bind(arrayOf)

    def written(self) -> set[Value]:
        """All Values that the host writes."""
        updateScalars = self.updateScalars.numbers.values() if self.updateScalars is not None else ()
        return {*self.numbers.values(), *self.fewer.values(), *updateScalars}

    def before(self) -> None:
        """Write all scalars; if updates may be skipped, also those for the case that recent ones were skipped."""
        if self.status is not None:
            self.status.begin()
            self.arrays["clear"][...] = self.status.clear
        if self.fewer:
            self.arrays["noticed"][...] = self.status.missed  # type: ignore[union-attr]
            for fewer in range(1, len(self.status.open) + 1):  # type: ignore[union-attr]
                numbers = self.updateScalars.numbersAfter(fewer)  # type: ignore[union-attr]
                for group, name, array in self.rows[fewer - 1]:
                    array[...] = numbers[group][name]
        if self.updateScalars is not None:
            if "clipNorm" in self.arrays:
                self.arrays["clipNorm"][...] = self.updateScalars.optimizer.clipNorm
            self.updateScalars.refresh()

    def after(self) -> None:
        """Count the step."""
        if self.countStep is not None:
            self.countStep()
        if self.status is not None:
            self.status.end(self.countStep.slots if self.countStep is not None else [])


def predicate(schedule: Schedule) -> Schedule:
    """Replace decisions of the host by selections between new and old values."""
    return Predication(schedule).run()


class Predication:
    """Rewrites the calls of one schedule into another one."""

    def __init__(self, schedule: Schedule):
        self.schedule = schedule
        self.calls: list[Call] = []
        self.held = {id(target): value for target, value in schedule.held}
        self.stores, self.more = list(schedule.stores), list[Any]()
        self.scalars = list(schedule.scalars)
        self.instead: dict[int, Value] = {}
        self.members: list[tuple[Call, ParameterUpdate]] = []
        self.outside = {v.root.number for v in (*schedule.outputs, *schedule.inputGrads) if v is not None}
        self.go: Value | None = None
        self.stop: Value | None = None
        self.halt: Value | None = None
        self.hostUpdate = HostUpdate()

    def run(self) -> Schedule:
        schedule = self.schedule
        hosts = [call.function for call in schedule.calls if call.kind.isHost]
        if any(type(f) is OpaqueOptimizer for f in hosts):
            schedule.hostUpdate = self.hostUpdate
            return schedule
        updateScalars = next((f for f in hosts if type(f) is UpdateScalars), None)
        countStep = next((f for f in hosts if type(f) is CountStep), None)
        isGuarded = isFinite in hosts or schedule.owner is not None
        optimizer = schedule.owner if updateScalars is None else updateScalars.optimizer
        hasStatus = optimizer is not None and (isGuarded or optimizer.needsNorm or schedule.scale is not None)
        status = statusOf(optimizer) if hasStatus else None
        self.hostUpdate = HostUpdate(updateScalars, countStep, status)
        for call in schedule.calls:
            self.take(call)
        self.updateAll()
        schedule.calls, schedule.stores, schedule.scalars = self.calls, self.stores, self.scalars
        schedule.held, schedule.hostUpdate = [*schedule.held, *self.more], self.hostUpdate
        return schedule

    def take(self, call: Call) -> None:
        """Rewrite the next call."""
        if call.kind.isStore:
            self.store(call.options["target"], call.arguments[0], call.origin)
        elif not call.kind.isHost and call.origin.phase == "update":
            self.update(call)
        elif not call.kind.isHost:
            self.calls.append(call)
        elif call.function is isFinite:
            self.guard(call.arguments[0], call.origin)
        elif type(call.function) is UpdateScalars:
            self.judge(call.function, call.arguments[0] or self.normFor(call), call.origin)

    # Values -----------------------------------------------------------------------------------------------------------

    def new(self, dtype: np.dtype, shape: tuple[int, ...] = (), strides: Any = (), **named: Any) -> Value:
        """A new Value."""
        self.schedule.count += 1
        return Value(self.schedule.count, shape, dtype, strides, **named)

    def number(self, name: str) -> Value:
        """A scalar that the host writes before each step."""
        if name not in self.hostUpdate.numbers:
            value = self.hostUpdate.numbers[name] = self.new(FLOAT, role="scalar", name=name, source=name)
            self.scalars.append(value)
        return self.hostUpdate.numbers[name]

    def field(self, name: str) -> Value:
        """A field of the update status, with its content before the step."""
        target = self.hostUpdate.status.fields[name]  # type: ignore[union-attr]
        if id(target) not in self.held:
            value = self.held[id(target)] = self.new(FLOAT, role="state", name=name, source=target)
            self.more.append((target, value))
        return self.held[id(target)]

    def keep(self, name: str, value: Value) -> None:
        """Store a field's new content at the end of the step."""
        target = self.hostUpdate.status.fields[name]  # type: ignore[union-attr]
        self.stores = [(t, v) for t, v in self.stores if t is not target] + [(target, value)]

    def compute(self, origin: CallOrigin, results: list[tuple[Formula, Value]], **operands: Value) -> None:
        """Add a call of formulas over named Values."""
        names = tuple([n for n in operands if any(n in f.names for f, _ in results)])
        function = numpyFrom([f for f, _ in results], names)
        outs = [y for _, y in results]
        self.calls.append(Call(function, tuple([operands[n] for n in names]), {}, outs, "pointwise", origin, True))

    # Choices ----------------------------------------------------------------------------------------------------------

    def guard(self, cost: Value, origin: CallOrigin) -> None:
        """Add the check of a cost: the step goes on if it is finite and updates have not stopped."""
        self.go, self.stop = self.new(BOOL, name="go"), self.new(FLOAT, name="stop")
        if self.hostUpdate.status is None:
            self.compute(origin, [*self.going(Formula("isfinite(cost)"))], cost=cost)
            return
        operands = {"halt": self.field("halt"), "clear": self.number("clear"), "cost": cost}
        self.halt = self.new(FLOAT, name="halt")
        go = Formula("isfinite(cost) and goes").put(goes=GOES)
        halts = Formula(f"where(isfinite(cost) or not goes, halts, {COST})").put(goes=GOES, halts=HALTS)
        self.compute(origin, [*self.going(go), (halts, self.halt)], **operands)
        self.keep("halt", self.halt)

    def going(self, goes: Formula) -> list[tuple[Formula, Value]]:
        """The formulas of `go`, and of `stop`, its negation as a number."""
        return [(goes, self.go), (Formula("where(goes, 0, 1)").put(goes=goes), self.stop)]  # type: ignore[list-item]

    def normFor(self, call: Call) -> Value | None:
        """The norm of the gradients, if the loss scale depends on it; otherwise None."""
        if self.schedule.scale is None:
            return None
        size = self.new(DOUBLE, name="norm")
        self.calls.append(Call(normOf, call.arguments[1:], {}, [size], "kernel", call.origin))
        return size

    def judge(self, updateScalars: UpdateScalars, norm: Value | None, origin: CallOrigin) -> None:
        """Add the decision to update, and the clipping factor of the gradients."""
        status, optimizer = self.hostUpdate.status, updateScalars.optimizer
        if status is None:
            return
        status.skips = optimizer.onNonFinite == "skip"
        operands = {"missed": self.field("missed"), "halt": self.halt or self.field("halt"), "norm": norm}
        before = Formula("go")
        if self.go is None:
            before, operands["clear"] = GOES, self.number("clear")
        else:
            operands["go"] = self.go
        missed = self.new(FLOAT, name="missed")
        goes = before if norm is None else Formula("before and isfinite(norm)").put(before=before)
        results = [(Formula("missed + where(goes, 0, 1)").put(goes=goes), missed)]
        held = Formula("halt") if self.go is not None else HALTS
        if norm is not None or self.go is None:
            halt = self.new(FLOAT, name="halt")
            self.go, self.stop = self.new(BOOL, name="go"), self.new(FLOAT, name="stop")
            halts = Formula(f"where(before and not isfinite(norm){self.unlessScaled(operands)}, {GRADIENT}, held)")
            after = held if norm is None or status.skips else halts.put(before=before, held=held)
            results += [*self.going(goes), (after, halt)]
            self.keep("halt", halt)
        if norm is not None:
            kept = self.new(FLOAT, name="norm")
            results.append((Formula("norm"), kept))
            self.keep("norm", kept)
            self.shrink(updateScalars, results, operands)
            if status.skips or self.schedule.scale is not None:
                self.choose(updateScalars, origin)
            if self.schedule.scale is not None:
                self.rescale(results, goes, before)
        self.keep("missed", missed)
        self.compute(origin, results, **{name: v for name, v in operands.items() if v is not None})

    def unlessScaled(self, operands: dict[str, Any]) -> str:
        """The condition for an overflow to be a fault: a scale that cannot be made smaller; empty without a scale."""
        if self.schedule.scale is None:
            return ""
        operands |= {"scale": self.schedule.scale, "good": self.field("good")}
        return f" and scale <= {MIN_SCALE}"

    def rescale(self, results: list[tuple[Formula, Value]], goes: Formula, before: Formula) -> None:
        """Add the new loss scale."""
        fails = Formula("before and not isfinite(norm)").put(before=before)
        for name, formula in (("scale", SCALES), ("good", RUNS)):
            value = self.new(FLOAT, name=name)
            results.append((formula.put(goes=goes, fails=fails), value))
            self.keep(name, value)

    def shrink(
        self, updateScalars: UpdateScalars, results: list[tuple[Formula, Value]], operands: dict[str, Any]
    ) -> None:
        """Add the clipping factors, which replace the scalars named "shrink"."""
        for (_, name, dtype), scalar in updateScalars.numbers.items():
            if name == "shrink":
                operands["clipNorm"] = self.number("clipNorm")
                self.instead[scalar.number] = made = self.new(dtype, name=name)
                results.append((Formula(f"minimum(1, clipNorm / (norm + {NORM_OFFSET}))"), made))

    def choose(self, updateScalars: UpdateScalars, origin: CallOrigin) -> None:
        """Select the scalars by the number of skipped updates that the host has not read yet."""
        operands = {"missed": self.field("missed"), "noticed": self.number("noticed")}
        for (group, name, dtype), scalar in updateScalars.numbers.items():
            if name == "rate" or name in updateScalars.counting:
                rows = {"n0": scalar}
                for fewer in range(1, MAX_STEPS_AHEAD):
                    value = self.new(dtype, role="scalar", name=f"{name}-{fewer}", source=f"{name}-{fewer}")
                    self.hostUpdate.fewer[group, name, fewer] = rows[f"n{fewer}"] = value
                    self.scalars.append(value)
                which = Formula(f"n{MAX_STEPS_AHEAD - 1}")
                for fewer in range(MAX_STEPS_AHEAD - 2, -1, -1):
                    which = Formula(f"where(missed - noticed < {fewer + 0.5}, n{fewer}, older)").put(older=which)
                self.instead[scalar.number] = made = self.new(dtype, name=name)
                self.compute(origin, [(which, made)], **operands, **rows)

    def update(self, call: Call) -> None:
        """Collect a call of the update, to combine it with the others; a call that does not fit is added at once."""
        arguments = tuple([self.instead.get(a.number, a) if type(a) is Value else a for a in call.arguments])
        call = Call(call.function, arguments, call.options, call.outs, call.kind, call.origin, call.several)
        targets = {v.number: self.held.get(id(target)) for target, v in self.schedule.stores}
        old = {n: v for n, v in targets.items() if v is not None}
        isAlone = not call.kind.isElementwise or any(v.number in self.outside for v in call.values())
        member = None if isAlone else memberOf(call, old)
        if member is None and self.go is not None and not isinstance(call.function, Interpreter):
            self.chooseAfter(call, old, self.go)
        elif member is None:
            self.calls.append(self.choosing(call, [old.get(y.number) for y in call.outs]))
        else:
            self.members.append((call, member))

    def chooseAfter(self, call: Call, old: dict[int, Value], go: Value) -> None:
        """Add a call that is not a formula, then a formula that keeps the old values unless the step goes on."""
        outs, chosen = [], []
        for y in call.outs:
            isKept = y is not None and y.base is None and y.number in old
            made = self.new(y.dtype, y.shape, y.strides, name=y.name) if isKept else y
            outs.append(made)
            chosen += [(y, made)] if isKept else []
        self.calls.append(Call(call.function, call.arguments, call.options, outs, call.kind, call.origin, call.several))
        for y, made in chosen:
            formula = Formula("where(go, new, old)")
            self.compute(call.origin, [(formula, y)], go=go, new=made, old=old[y.number])

    def updateAll(self) -> None:
        """Add the updates of all parameters as one call, if possible."""
        if not self.members:
            return
        calls, members = zip(*self.members)
        combined = together(calls, members, self.stop, calls[0].origin)
        if len(calls) > 1 and combined.function.launches() is not NotImplemented:
            self.calls.append(combined)
        else:
            old = [[m.arrays[y.name] for y in call.outs] for call, m in self.members]
            self.calls += [self.choosing(call, oldValues) for call, oldValues in zip(calls, old)]

    def choosing(self, call: Call, old: Sequence[object]) -> Call:
        """A call that keeps the old values unless the step goes on."""
        if self.go is None or not isinstance(call.function, Interpreter) or None in old:
            return call
        arguments: tuple[Any, ...] = call.arguments
        names = [*call.function.names, "go"]
        arguments = (*arguments, self.go)
        formulas = []
        for y, formula in zip(old, formulasOf(call.function)):
            index = next((i for i, a in enumerate(arguments) if a is y), len(names))
            if index == len(names):
                names, arguments = [*names, f"old{index}"], (*arguments, y)
            formulas.append(Formula("where(go, new, old)").put(new=formula, old=names[index]))
        function = numpyFrom(formulas, tuple(names))
        return Call(function, arguments, {}, call.outs, "pointwise", call.origin, True)

    def store(self, target: Any, value: Value, origin: CallOrigin) -> None:
        """Store a state in place; it keeps its old value unless the step goes on."""
        old = self.held.get(id(target))
        if self.go is not None and old is not None:
            new = self.new(value.dtype, value.shape, old.strides, name=value.name)
            self.compute(origin, [(Formula("where(go, new, old)"), new)], go=self.go, new=value, old=old)
            value = new
        self.stores.append((target, value))
