"""Rule program: one call of a module's rule, or of its gradient rule, compiled to native code."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np

from puregraph.compile.backend import NATIVE
from puregraph.compile.memory.outputs import FreshOutput
from puregraph.compile.pipeline import TRACED, runPasses
from puregraph.compile.runtime.executable import Executable
from puregraph.compile.trace.decompositions import decompositionOf
from puregraph.compile.trace.graphtracer import GraphTracer
from puregraph.compile.trace.numpyrules import readerOf
from puregraph.compile.trace.opaque import NotCompiledError
from puregraph.compile.trace.recorder import Recorder
from puregraph.compile.trace.schedule import Schedule
from puregraph.core.param import State
from puregraph.graph.node import Node
from puregraph.graph.rulecalls import NativeRules
from puregraph.graph.steps import GraphStep, Steps
from puregraph.ops.ir.value import CallOrigin

if TYPE_CHECKING:
    from puregraph.compile.memory.planner import MemoryPlan
    from puregraph.compile.runtime.buffers import Workspace
    from puregraph.graph.module import Module


class RuleProgram:
    """A rule for arguments of one shape, dtype and layout each; calls return its results, or None before any effect.

    Arguments and results are arrays of the caller: a program holds neither parameters nor results, so modules of equal
    configuration share it. `changes` are the arguments, running statistics, to which the rule writes.

    Raises    UnreadableError, NotCompiledError if the rule cannot be traced, or native code would not be faster
    """

    backend = NATIVE._replace(outputType=FreshOutput)

    def __init__(self, module: Any, arguments: Sequence[Any], workspace: Workspace):
        self.workspace = workspace
        self.changes: list[int] = []
        schedule = runPasses(self.traced(module, arguments), TRACED)
        if multipliesVector(schedule):
            raise NotCompiledError("numpy multiplies a vector as fast, and starts sooner")
        self.plan = self.backend.plan(schedule, None)
        if not any(call.kind.isNative for call in self.plan.schedule.calls):
            raise NotCompiledError("numpy does all of the work")
        workspace.reserve(roundedUp(self.plan.bytes))
        self.build()

    def traced(self, module: Module, arguments: Sequence[Any]) -> Schedule:
        """The schedule of the rule; every argument is an input."""
        of = getattr(module, "of", None)
        inputs = len(arguments) - (0 if of is not None else len(module.ruleNames))
        outs = range(len(module.outputNames) + len(module.hidden))
        step = GraphStep(module.label, Node(module), (*range(len(arguments)),), (*outs,), inputs)
        tracer = GraphTracer()
        recorder = tracer.recorder = self.recorder()
        values = [
            None if x is None else recorder.value(x.shape, x.dtype, x.strides, "input", f"x{i}")
            for i, x in enumerate(arguments)
        ]
        for i, stored in enumerate([] if of is not None else module.ruleParams(), inputs):
            if isinstance(stored, State):
                tracer.states[values[i].number] = i  # type: ignore[union-attr]
        shapes = tuple([None if x is None else x.shape for x in arguments])
        recorder.origin = CallOrigin(module.label, module.label, shapes)  # precisions are for compiled steps alone
        results, changes = tracer.read(step, values)
        schedule = Schedule(None, Steps())  # type: ignore[arg-type]
        schedule.inputs = [v for v in values if v is not None]
        schedule.outputs = [*results, *[value for _, value in changes]]
        self.changes = [i for i, _ in changes]
        schedule.calls, schedule.count = recorder.calls, recorder.count
        return schedule

    def recorder(self) -> Recorder:
        """A recorder for native code."""
        recorder = Recorder(readerOf)
        recorder.layout, recorder.keepsComposite = self.backend.layout, self.backend.keepsComposite
        recorder.decompositionOf = decompositionOf
        return recorder

    def build(self) -> None:
        """Bind the calls to the workspace, which may have moved."""
        plan: MemoryPlan = self.plan
        for output in plan.ownOutputs.values():
            output.patches.clear()
            output.renew()
        self.executable = Executable(plan, self.workspace)
        positions = {v.number: i for i, v in enumerate(plan.schedule.inputs)}
        self.results = [(v, None if v is None else positions.get(v.number)) for v in plan.schedule.outputs]

    def __call__(self, arguments: Sequence[Any]) -> tuple | None:
        arrays = [x for x in arguments if x is not None]
        workspace = self.workspace
        with workspace.lock:
            if workspace.isHeld:  # a signal handler runs a pass in the middle of a call
                return None
            workspace.isHeld = True
            try:
                if not self.executable.memory.isCurrent:
                    self.build()
                return self.run(arguments, arrays)
            finally:
                workspace.isHeld = False
                for output in self.plan.ownOutputs.values():
                    output.release()
                for entry in self.executable.inputs:
                    entry.release()

    def run(self, arguments: Sequence[Any], arrays: list[Any]) -> tuple | None:
        """Run the calls; None if an index is out of bounds."""
        executable = self.executable
        with nullcontext() if executable.neverWarns else np.errstate(all="ignore"):
            if not executable.run(arrays):
                return None
        results = [
            None if v is None else executable.taken(v, True) if i is None else arrays[i] for v, i in self.results
        ]
        count = len(results) - len(self.changes)
        for i, new in zip(self.changes, results[count:]):
            arguments[i][...] = new
        return tuple(results[:count])


def multipliesVector(schedule: Schedule) -> bool:
    """True if the only large operand is the matrix of one product with a vector: its bytes are read once, by BLAS as
    fast as by native code."""
    computed = [call for call in schedule.calls if not call.kind.isView]
    products = [call for call in computed if call.kind.isContraction]
    if len(products) != 1 or products[0].function is not np.matmul:
        return False
    outs = [y for call in computed for y in call.outs if y is not None]
    (y,) = products[0].outs
    return (
        y.dtype.kind == "f"
        and y.size == max(y.shape, default=1)
        and all(y.nbytes < NativeRules.leastBytes for y in outs)
    )


def roundedUp(size: int) -> int:
    """The next power of two, so that a workspace seldom moves."""
    return 1 << max(size - 1, 0).bit_length()
