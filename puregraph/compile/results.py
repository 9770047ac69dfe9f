"""Results: the outputs of a run, and the gradients that it leaves in parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from puregraph.compile.ir.external import GRADS, GradientOf
from puregraph.compile.trace.schedule import Schedule
from puregraph.compile.trace.steprequest import StepRequest
from puregraph.core.versioning import ARRAYVERSIONS

if TYPE_CHECKING:
    from puregraph.compile.program import Program
    from puregraph.compile.runtime.executable import Executable


class StepResults:
    """Sets the gradients and returns the outputs of a step, when called after a run.

    `grads`       (attributes, array) of every parameter whose gradient is left in `Param.grad`
    `notReached`  parameters that want a gradient but get none in this step
    `applied`     the optimizer's slots that the step updates
    """

    def __init__(self, schedule: Schedule, request: StepRequest):
        reached, keeps = schedule.paramGrads, request.keepGrads
        self.grads = [(vars(p), GradientOf(p, v.dtype).array) for p, v in reached] if keeps else []
        ids = {id(p) for p, _ in reached} if self.grads else ()
        clears = self.grads and schedule.gradients and not request.added
        wanting = [getattr(m, name) for _, m, name in schedule.steps.params if clears and m.wants(getattr(m, name))]
        self.notReached = [p for p in wanting if id(p) not in ids]
        self.applied = [slot for slot in getattr(request.optimizer, "slots", ()) if id(slot.param) in ids]

    def __call__(self, program: Program, executable: Executable, copy: bool) -> Any:
        version = next(ARRAYVERSIONS)
        for attributes, grad in self.grads:  # like an assignment, but faster
            attributes["grad"] = grad
            attributes["gradVersion"] = version
        for param in self.notReached:
            param.grad = None
        for slot in self.applied:
            slot.noteApplied(version)
        schedule = executable.schedule
        if schedule.inputGrads:
            grads = [None if v is None else executable.taken(v, copy) for v in schedule.inputGrads]
            program.grad = grads[0] if len(grads) == 1 else grads
        if len(schedule.outputs) == 1 and schedule.outputs[0] is not None:
            return executable.taken(schedule.outputs[0], copy)
        outputs = [None if v is None else executable.taken(v, copy) for v in schedule.outputs]
        return outputs[0] if len(outputs) == 1 else outputs


def gatherGrads(schedule: Schedule) -> None:
    """Copy existing gradients to the arrays that a step reads."""
    for param, _ in schedule.paramGrads:
        if param.grad is not GRADS.get(param):
            GRADS[param][...] = 0 if param.grad is None else param.grad
