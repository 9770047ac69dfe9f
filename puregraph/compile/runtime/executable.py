"""Executable: a schedule with its memory, as flat lists of numpy calls that are ready to run."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from puregraph.compile import verify
from puregraph.compile.lower.registry import loweringFor
from puregraph.compile.memory.planner import Buffer, MemoryPlan
from puregraph.compile.runtime.bind import Bound, Running, bound
from puregraph.compile.runtime.buffers import Buffers, Workspace
from puregraph.compile.runtime.concurrent import concurrentSteps
from puregraph.compile.runtime.guards import IndexGuard, InputGuard
from puregraph.compile.runtime.inputs import stepInputs
from puregraph.compile.runtime.observer import StepObserver
from puregraph.compile.runtime.segment import Segment
from puregraph.compile.trace.updaterule import CountStep, UpdateScalars
from puregraph.core.base.signals import Deferred
from puregraph.core.param import State
from puregraph.core.versioning import ARRAYVERSIONS
from puregraph.ops.ir.value import ARRAYS, Call, CallOrigin, Value, store
from puregraph.ops.native.llvm import jit

if TYPE_CHECKING:
    from puregraph.core.device import Array
    from puregraph.core.protocols import AnyArray

POISON_BYTE = 255  # fills memory after its last use: NaN as float, -1 as integer


class ExecutablePart:
    """Consecutive calls and the Python call after them; the step ends if that returns False."""

    __slots__ = ("host", "steps")

    def __init__(self) -> None:
        self.steps: list[Bound] = []
        self.host: partial[bool] | None = None


class Executable:
    """The calls of a schedule on the arrays of a plan.

    `parts`          the calls, in parts with Python calls between them
    `inputs`         a StepInput for each input
    `ownOutputs`     the memory of large results
    `numbers`        (name, array) of scalars that the caller sets
    `packedWeights`  weights in the layout of native code, or None; `packing` packs them
    `neverWarns`     True if no call is numpy's: native code never warns
    `begin`          the first part that signals cannot interrupt, so that weights and the count of updates agree
    `undo`           (array, copy) of states that are restored if a call fails: the graph then repeats the step
    `observer`       a StepObserver, or None; with one, each step runs on its own
    """

    def __init__(
        self, plan: MemoryPlan, workspace: Workspace, poison: bool = False, observer: StepObserver | None = None
    ):
        poison = poison or verify.isOn()
        self.schedule, self.plan, self.poison = plan.schedule, plan, poison
        self.memory = Buffers(self.plan, workspace)
        self.observer = verify.Verifier(plan, self.memory) if observer is None and verify.isOn() else observer
        self.objects: dict[int, Any] = {}
        self.parts = [ExecutablePart()]
        ends = self.ending() if poison else {}
        self.segments: list[Segment] = []
        calls, copies = fuseFinalCopies(self.plan.copies, list(self.schedule.calls))
        waiting: list[Any] = []
        for i, call in enumerate(calls):
            if call.kind.isNative:
                waiting.append(call)
            isOne = self.observer is not None or i in ends or call is calls[-1]
            if waiting and (not (call.kind.isNative or call.kind.isView) or isOne):
                self.segments.append(self.segmentOf(concurrentSteps(waiting, self.memory)))
                run = Bound(waiting[0], self.segments[-1], [], {})
                guards = [Bound(c, IndexGuard(c.function.faults), [], {}) for c in waiting if c.function.faults]
                self.parts[-1].steps += self.observed(i, waiting[0], [run, *guards])
                waiting = []
            if call.kind.isHost:
                self.addHost(i, call)
            elif not (call.kind.isNative or call.kind.isView):
                self.parts[-1].steps += self.observed(i, call, self.boundTo(i, call))
            for buffer in ends.get(i, ()):
                self.parts[-1].steps.append(Bound(call, self.memory.region(buffer).fill, [POISON_BYTE], {}))
        for target, value in copies:
            end = Call(store, (value,), {"target": target}, [], "store", CallOrigin("store", "", (), "update"))
            self.parts[-1].steps += bound(end, self.memory, None)
        if self.observer is not None:
            self.parts[0].steps.insert(0, Bound(None, self.observer.start, [], {}))
            self.parts[-1].steps.append(Bound(None, self.observer.finish, [], {}))
        self.failed: Any = None
        self.neverWarns = all(map(isNative, self.parts))
        self.inputs = stepInputs(self.schedule, self.memory, [s for part in self.parts for s in part.steps])
        self.wanted = [(v.shape, v.dtype) for v in self.schedule.inputs]
        self.watch()
        self.ownOutputs = list(plan.ownOutputs.values())
        for patch in chain(self.guard.patches, *[segment.patches for segment in self.segments]):
            self.movedBy(patch[2].root).patches.append(patch)
        kept = {v.root.number for v in (*self.schedule.kept(), *(check.value for check in self.fractions))}
        for entry in self.inputs:
            entry.chooseCopy(kept)
        self.begin = self.beginUpdate()
        self.undo = self.statesBefore(self.parts[: self.begin])
        scalars = [call.function.numbers for call in calls if type(call.function) is UpdateScalars]
        setByUpdate = {v for numbers in scalars for v in numbers.values()}
        self.written: list[Any] = list(map(vars, self.schedule.written))  # bypasses __setattr__, which checks names
        self.numbers = [(v.source, self.memory(v)) for v in self.schedule.scalars if v not in setByUpdate]
        if poison:
            self.memory.arena.fill(POISON_BYTE)

    def watch(self) -> None:
        """Prepare the checks that run before each step: input bounds, and weights to pack again."""
        checks = [c for call in self.schedule.calls if call.kind.isNative for c in call.function.checks]
        fractions = self.schedule.checks
        self.fractions = [] if jit.available() else fractions  # checked by Python
        checks += [] if self.fractions else fractions
        packedWeights = self.schedule.packedWeights
        self.guard = InputGuard(checks, self.memory)
        self.packedWeights = packedWeights if packedWeights is not None and packedWeights.works else None
        self.packing: Any = None
        if self.packedWeights is not None:
            self.packing = self.segmentOf([[w] for w in self.packedWeights.works])
            if self.observer is not None:
                self.packing = self.observer.aroundPacking(self.packing)

    def segmentOf(self, steps: list[list[Any]]) -> Segment:
        """The segment of some lists of kernel calls."""
        return Segment(steps, self.memory, 0 if self.observer is None else self.observer.gap)

    def observed(self, i: int, call: Call, steps: list[Bound]) -> list[Bound]:
        """The bound calls of a step, with the observer's calls around them."""
        return steps if self.observer is None else self.observer.around(i, call, steps)

    def movedBy(self, root: Value) -> Any:
        """The StepInput or StepOutput whose address, used by this Value, may change with each run."""
        return next((e for e in self.inputs if e.value is root), None) or self.plan.locations[root.number]

    def boundTo(self, i: int, call: Call) -> list[Bound]:
        """Bind a call as calls of numpy."""
        if call.kind.isOpaque:
            outs = [None if y is None or y.role == "object" else self.memory(y) for y in call.outs]
            operands = [None if v is None or v.role == "object" else self.memory(v) for v in call.arguments]
            return [Bound(call, Running(call, outs, self.objects), operands, {})]
        return bound(call, self.memory, self.plan.overwritten.get(i))

    def addHost(self, i: int, call: Call) -> None:
        """End a part with a Python call."""
        operands = [None if v is None else self.memory(v) for v in call.arguments]
        if isinstance(call.function, UpdateScalars):
            call.function.bind(self.memory)
        before, after = ([], []) if self.observer is None else self.observer.aroundHost(i, call)
        self.parts[-1].steps += before
        self.parts[-1].host = partial(call.function, *operands)
        self.parts.append(ExecutablePart())
        self.parts[-1].steps += after

    def ending(self) -> dict[int, list[Buffer]]:
        """The buffers whose lifetime ends with each call, by call number."""
        byDeath: dict[int, list[Buffer]] = {}
        for buffer in self.plan.buffers:
            byDeath.setdefault(buffer.death, []).append(buffer)
        return byDeath

    def takes(self, inputs: Sequence[AnyArray]) -> bool:
        """True if inputs have the expected types, shapes and dtypes."""
        if len(inputs) != len(self.wanted):
            return False
        for x, (shape, dtype) in zip(inputs, self.wanted):
            if type(x) is not np.ndarray or x.shape != shape or x.dtype != dtype:
                return False
        return True

    def run(self, inputs: Sequence[Array]) -> bool:
        """Run all parts; the results are then in memory. Returns False, before running anything, if an input is unfit.

        Raises    any error of a call, with the call in `failed`; errors of the Python calls between parts unchanged
        """
        for entry, x in zip(self.inputs, inputs):
            entry.put(x)
        for output in self.ownOutputs:
            output.renew()
            if self.poison:
                output.owner.fill(POISON_BYTE)
        if self.guard() or (self.fractions and not self.holdsFractions()):
            return False
        if self.packedWeights is not None:
            self.packedWeights.refresh(self.packing)
        self.failed = None
        for array, kept in self.undo:
            kept[...] = array
        try:
            if self.go(self.parts, 0, self.begin) and self.begin < len(self.parts):
                with Deferred():
                    self.go(self.parts, self.begin, len(self.parts))
        finally:
            if self.written:
                version = next(ARRAYVERSIONS)
                for attributes in self.written:
                    attributes["version"] = version
        if self.objects:
            self.objects.clear()
        return True

    def go(self, parts: list[ExecutablePart], begin: int, end: int) -> bool:
        """Run some of the parts; False if the step must end."""
        step: Any = None
        for i in range(begin, end):
            part = parts[i]
            try:
                for step in part.steps:
                    step.function(*step.arguments, **step.options)
            except Exception:
                if type(step.function) is not Segment:  # native code does not raise, so the error came from elsewhere
                    self.failed = step.call
                raise
            if part.host is not None and not part.host():
                return False
        return True

    def restore(self) -> None:
        """Restore the states from before the failed run."""
        for array, kept in self.undo:
            array[...] = kept

    def beginUpdate(self) -> int:
        """Return the index of the first part that signals must not interrupt; past the end if one call does it all.

        A handler that raises during the update would leave parameters updated without counting the step.
        """
        hosts = [None if part.host is None else part.host.func for part in self.parts]
        begin = next((i + 1 for i, host in enumerate(hosts) if type(host) is UpdateScalars), len(self.parts))
        steps = [step.function for part in self.parts[begin:] for step in part.steps]
        if (
            len(steps) == 1
            and type(steps[0]) is Segment
            and type(hosts[begin]) is CountStep
            and self.parts[begin].steps
        ):
            steps[0].table.after = hosts[begin]
            self.parts[begin].host = None
            return len(self.parts)
        return begin

    def statesBefore(self, parts: list[ExecutablePart]) -> list[tuple[np.ndarray, np.ndarray]]:
        """The states that change before the update, with memory for copies; empty if no call can fail."""
        if all(type(step.function) is Segment for part in parts for step in part.steps):
            return []
        arrays = [target.data for target, _ in self.schedule.stores if isinstance(target, State)]
        return [(array, np.empty_like(array)) for array in arrays]

    def holdsFractions(self) -> bool:
        """True if the inputs that Python checks are from 0 to 1."""
        return all(bounds.holds(self.memory(bounds.value)) for bounds in self.fractions)

    def captured(self) -> None:
        """The captured CUDA graphs: None on the CPU."""
        return None

    def taken(self, value: Value, copy: bool) -> np.ndarray:
        """A result as the user gets it; a scalar as a numpy scalar."""
        array = self.memory(value)
        if array.ndim == 0:
            return array[()]
        if value.number in self.plan.ownOutputs:
            return array
        # users must not get the memory of a parameter, a state or a module's array
        return array.copy("K") if copy or value.root.role in ("param", "state", *ARRAYS) else array


def isNative(part: ExecutablePart) -> bool:
    """True if no call in a part is numpy's."""
    host = None if part.host is None else part.host.func
    isPlain = host is None or type(host) is CountStep or (type(host) is UpdateScalars and not host.optimizer.needsNorm)
    return isPlain and all(type(step.function) is Segment for step in part.steps)


def fuseFinalCopies(copies: list[Any], calls: list[Any]) -> tuple[list[Any], list[Any]]:
    """Let the last native call do the final copies, if no other call follows it; returns calls and remaining copies."""
    last = next((i for i in reversed(range(len(calls))) if calls[i].kind.isNative), None)
    if last is None or not all(c.kind.isView or type(c.function) is CountStep for c in calls[last + 1 :]):
        return calls, copies
    end, works, remaining = calls[last], list[Any](), list[Any]()
    for target, value in copies:
        kernels = loweringFor(store)(value, target.array)
        works += kernels or []
        remaining += [] if kernels else [(target, value)]
    function = end.function._replace(works=[*end.function.works, *works])
    calls[last] = Call(function, end.arguments, end.options, end.outs, end.kind, end.origin, end.several)
    return calls, remaining
