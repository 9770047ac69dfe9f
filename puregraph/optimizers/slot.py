"""Slot: an optimizer's state for one parameter, and how it is restored; the norm of all gradients."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from puregraph.core import device
from puregraph.core.base.align import aligned
from puregraph.core.errors import CheckpointError, GraphWarning, NotFiniteError, PuregraphError, show
from puregraph.core.errors.userwarning import warnUser
from puregraph.core.versioning import ARRAYVERSIONS, LastUpdate
from puregraph.ops.reduction.norm import norm


class StepCount(int):
    """A number of updates, as of `optimizer.step`. Calling it is an error that names `optimizer.update()`."""

    def __call__(self, *args: Any) -> None:
        raise PuregraphError("optimizer.step is the number of updates so far; optimizer.update() makes one")


class CountedSteps:
    """An attribute that reads as a StepCount and stores an int."""

    def __get__(self, owner: Any, kind: Any = None) -> Any:
        return self if owner is None else StepCount(vars(owner)["step"])

    def __set__(self, owner: Any, value: int) -> None:
        vars(owner)["step"] = int(value)


class Slot:
    """The state of an optimizer for one parameter: its path, its state arrays, and the number of its updates.

    `rule`  the rule that updates it, if the optimizer has several; otherwise None
    `part`  the range of elements (begin, end) whose state is in this process; None: all elements
    `sharding` the division of all state among processes, and the order of its elements; None: all are here

    >>> optimizer = Adam().setupOn(Sequential(Linear(3, 1, name="fc")))
    >>> [(slot.path, slot.param.shape, slot.step) for slot in optimizer.slots]
    [('fc.W', (3, 1), 0), ('fc.b', (1,), 0)]
    """

    __slots__ = ("applied", "arrays", "param", "part", "path", "rule", "sharding", "step")

    def __init__(self, path: str, param: Any, arrays: dict[str, Any] | None = None, step: int = 0):
        self.path, self.param, self.arrays, self.step = path, param, arrays or {}, step
        self.applied = -1  # the version of the gradient that was applied last
        self.part: tuple[int, int] | None = None
        self.rule: Any = None
        self.sharding: Any = None

    def begin(self, path: str) -> Slot:
        """Return this slot, set to the parameter's path. Gradients from before the set-up no longer count as lost."""
        self.path = path
        vars(self.param)["lost"] = 0
        return self

    def forgetGrad(self) -> None:
        """Set the parameter's gradient to None. Gradients overwritten before no longer count as lost."""
        self.param.grad = None
        vars(self.param)["lost"] = 0

    def write(self, values: Any) -> None:
        """Write values into the parameter's memory in place, as compiled steps read that memory."""
        self.param.materialize()[...] = values
        self.param.bumpVersion()

    def noteApplied(self, version: int) -> None:
        """Record that this version of the gradient is applied. Gradients overwritten before no longer count as lost."""
        self.applied = version
        LastUpdate.version = next(ARRAYVERSIONS)
        vars(self.param).update(applied=version, lost=0)  # faster than setattr, which checks the names

    @property
    def hasState(self) -> bool:
        """True if this process has the state of at least one element."""
        return self.part is None or self.part[0] < self.part[1]

    def blank(self) -> Any:
        """Return zeros like the parameter; in float32 if it has 16 bits."""
        data = self.param.materialize()
        return np.zeros_like(data, dtype=np.promote_types(data.dtype, np.float32))

    def shapeOf(self, name: str, rule: Any) -> tuple[int, ...] | None:
        """Return the shape of a state array of a rule of arrays; None for formulas, with the shape of the parameter."""
        if rule.isElementwise:
            return None
        shape: tuple[int, ...] = rule.startAll(self.blank())[name].shape
        return shape

    def gathered(self, name: str, optimizer: Any) -> Any:
        """Return a state array with the elements of other processes; None before an update. All processes call it."""
        array = self.arrays.get(name)
        if self.sharding is None:
            return array
        dtype = np.promote_types(self.param.dtype, np.float32)
        return self.sharding.gathered(self.param, array, dtype, self.shapeOf(name, optimizer.ruleOf(self)))

    def begun(self, rule: Any) -> dict[str, Any]:
        """Return new state arrays of the parameter, as before its first update by a rule."""
        data = self.param.materialize()
        dtype = np.promote_types(data.dtype, np.float32)
        arrays = rule.startAll(data if data.dtype == dtype else data.astype(dtype))
        isOnDevice = device.isDeviceArray(data)
        made = {}
        for name, array in arrays.items():
            array = array.astype(dtype) if array is data or array.dtype != dtype else array
            isElsewhere = isOnDevice and not device.isDeviceArray(array)
            made[name] = device.toDevice(array) if isElsewhere else aligned(array)
        return made


def warnOverwritten(label: str, slots: Sequence[Slot]) -> None:
    """Warn if gradients were overwritten before an update applied them; perhaps they were meant to be added."""
    lost = max(slots, key=lambda slot: slot.param.lost)
    if lost.param.lost:
        warnUser(
            f"{label}: of {lost.param.lost + 1} gradients of '{lost.path}' since the last update only the last one is "
            "applied, as each backward overwrites the one before: backward(momentum=1.0) adds to it; if they are not "
            "meant to be added, zeroGradParams() forgets them, and backward(updParamGrads=False) makes none",
            GraphWarning,
        )


def restoredSlots(
    label: str, slots: list[Slot], rules: Sequence[Any], step: int, arrays: Mapping[str, Any]
) -> list[Slot]:
    """Return slots for the same parameters, with copies of the named arrays that were saved after `step` updates.

    Raises    CheckpointError listing every array that is missing, unknown, or of another shape or kind
    """
    blanks = [slot.begun(rule) for slot, rule in zip(slots, rules)]
    names = [rule.storedNames(slot) for slot, rule in zip(slots, rules)]
    known = {f"{name}/{slot.path}" for slot, stateNames in zip(slots, names) for name in stateNames}
    problems = [f"'{key}' belongs to none of its parameters" for key in arrays if key not in known]
    if isinstance(step, bool) or not (isinstance(step, (int, np.integer)) and 0 <= step < 1 << 62):
        problems.append(f"wanted a step of at least 0, got {step!r}")
    elif step and known and not arrays:
        problems.append(f"there is no state of any parameter, but {step} updates were made")
    fresh = []
    for slot, stateNames, blank in zip(slots, names, blanks):
        saved = {name: arrays[key] for name in stateNames if (key := f"{name}/{slot.path}") in arrays}
        problems += [f"'{name}/{slot.path}' is missing" for name in stateNames if saved and name not in saved]
        problems += [fault for name in saved if (fault := unfit(name, slot, blank, saved[name]))]
        fresh.append(saved)
    if problems:
        more = f"; and {len(problems) - 10} more" if len(problems) > 10 else ""
        raise CheckpointError(f"{label}: cannot restore its state: {'; '.join(problems[:10])}{more}")
    return [slotFrom(slot, saved, blank, int(step)) for slot, saved, blank in zip(slots, fresh, blanks)]


def slotFrom(slot: Slot, arrays: dict[str, Any], blank: dict[str, Any], step: int) -> Slot:
    """Return a slot for the same parameter, with copies of these arrays, written into those of `blank`."""
    count = int(arrays.pop("step", step if arrays else 0))
    copies = {name: blank[name] for name in arrays}
    for name, array in arrays.items():
        isOnDevice = device.isDeviceArray(copies[name])
        copies[name][...] = device.toDevice(array) if isOnDevice else device.toHost(array)
    restored = Slot(slot.path, slot.param, copies, count)
    restored.rule = slot.rule
    return restored


def unfit(name: str, slot: Slot, blank: dict[str, Any], array: Any) -> str:
    """Return the reason why an array cannot be this state of a parameter, or an empty text."""
    wanted, kinds = ((), "iu") if name == "step" else (tuple(blank[name].shape), "f")
    if tuple(array.shape) != wanted:
        return f"'{name}/{slot.path}' wanted {show(wanted)}, got {show(tuple(array.shape))}"
    if array.dtype.kind not in kinds:
        return f"'{name}/{slot.path}' wanted {'whole numbers' if name == 'step' else 'floats'}, got {array.dtype}"
    return f"'{name}/{slot.path}' wanted at least 1, got {int(array)}" if name == "step" and array < 1 else ""


def normOf(grads: list[Any]) -> float:
    """Return the norm of all gradients together, in float64 if the squares overflow the gradients' dtype."""
    total = float(device.toHost(norm(*grads)))
    return total if math.isfinite(total) else float(device.toHost(norm(*[g.astype(np.float64) for g in grads])))


def notFinite(label: str, step: int, ready: list[Slot], grads: list[Any]) -> NotFiniteError:
    """Return the error for gradients that are not finite, which names their parameters."""
    wrong = [f"'{slot.path}'" for slot, g in zip(ready, grads) if not device.toHost(np.isfinite(g)).all()]
    return NotFiniteError.atUpdate(label, step, f"the gradient of {', '.join(wrong)}")
