"""Formula program: one call of formulas that write to the caller's arrays, such as an optimizer's update."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from puregraph.compile import verify
from puregraph.compile.backend import NATIVE
from puregraph.compile.memory.outputs import FreshOutput
from puregraph.compile.rules.ruleprogram import RuleProgram
from puregraph.compile.trace.opaque import NotCompiledError
from puregraph.compile.trace.schedule import Schedule
from puregraph.core.base.align import addressOf
from puregraph.graph.steps import Steps
from puregraph.ops.ir.value import CallOrigin

if TYPE_CHECKING:
    from collections.abc import Sequence

    from puregraph.compile.runtime.buffers import Workspace
    from puregraph.ops.formula.interpreter import Interpreter


class TargetOutput(FreshOutput):
    """The memory of a result that the caller passes in; it may be that of an operand."""

    __slots__ = ()

    def renew(self) -> None:
        """Use the array that was set."""
        if self.made is not None:
            start = addressOf(self.made)
            for slots, i, v, bytes in self.patches:
                slots[i] = start + v.offset + bytes


class FormulaProgram(RuleProgram):
    """Formulas of arrays of one shape and layout each. `outs` are the arrays that they write to, as in numpy.

    Raises    NotCompiledError if a result would have to be copied to its array
    """

    backend = NATIVE._replace(outputType=TargetOutput)

    def __init__(self, function: Interpreter, arguments: Sequence[Any], outs: Sequence[Any], workspace: Workspace):
        if verify.isOn():  # it poisons results before they are computed, and these may be operands
            raise NotCompiledError("formulas in place are not verified")
        self.outs = outs
        super().__init__(function, arguments, workspace)
        self.outs = ()
        if len(self.targets) != len(outs):
            raise NotCompiledError("a result is too small for memory of its own")

    def traced(self, rule: Any, arguments: Sequence[Any]) -> Schedule:
        """The schedule of one elementwise call."""
        recorder = self.recorder()
        recorder.origin = CallOrigin("formula")
        schedule = Schedule(None, Steps())  # type: ignore[arg-type]
        schedule.inputs = [recorder.value(x.shape, x.dtype, x.strides, "input") for x in arguments]
        schedule.outputs = [recorder.value(y.shape, y.dtype, y.strides) for y in self.outs]
        recorder.add(rule, tuple(schedule.inputs), {}, schedule.outputs, "pointwise", True)
        schedule.calls, schedule.count = recorder.calls, recorder.count
        return schedule

    @property
    def targets(self) -> list[Any]:
        """The memory of each result, in order."""
        return [self.plan.ownOutputs[v.number] for v in self.plan.schedule.outputs if v.number in self.plan.ownOutputs]

    def write(self, arguments: Sequence[Any], outs: Sequence[Any]) -> bool:
        """Compute all formulas, then write them to `outs`; False if that has to be left to numpy."""
        with self.workspace.lock:
            if self.workspace.isHeld:
                return False
            for target, y in zip(self.targets, outs):
                target.made = y
            return self(arguments) is not None
