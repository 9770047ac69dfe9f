"""Fast path: run a step that is native code only, has inputs and one result, and needs no decisions.

Python takes longer than a small network, above all after weights have evicted its code from the caches. So one
function does the work of `Executable.run` and its helpers for the usual case.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from puregraph.compile.runtime.segment import Segment

Run = Callable[[Sequence[Any], bool], Any]


def fastPathOf(executable: Any) -> Run | None:
    """The function `run(inputs, copy)`: returns the output, or None, before running, if inputs need a full check.

    None if the step has anything else: numpy calls, scalars, gradients, states, an update, indices to check.
    """
    schedule, memory = executable.schedule, executable.memory
    steps = [step for part in executable.parts for step in part.steps]
    if len(executable.parts) != 1 or not all(type(step.function) is Segment for step in steps):
        return None
    if executable.numbers or executable.objects or executable.guard.table is not None or schedule.written:
        return None
    if schedule.inputGrads or len(schedule.outputs) != 1 or schedule.outputs[0] is None:
        return None
    tables = [step.function.table for step in steps]
    entries = [(entry.put, *wanted) for entry, wanted in zip(executable.inputs, executable.wanted)]
    output, workspace, arena, count = memory(schedule.outputs[0]), memory.workspace, memory.arena, len(entries)
    if output.ndim == 0 or schedule.outputs[0].root.role != "made":
        return None
    packedWeights, packing = executable.packedWeights, executable.packing
    exit = executable.ownOutputs[0] if executable.ownOutputs else None
    if exit is not None:
        output = None  # the user owns its memory

    def run(inputs: Sequence[Any], copy: bool) -> Any:
        if len(inputs) != count or arena is not workspace.array:
            return None
        for x, (_, shape, dtype) in zip(inputs, entries):
            if type(x) is not np.ndarray or x.shape != shape or x.dtype != dtype:
                return None
        for x, (put, _, _) in zip(inputs, entries):
            put(x)
        if exit is not None:
            exit.renew()
        if packedWeights is not None:
            packedWeights.refresh(packing)
        for table in tables:
            table()
        if exit is not None:
            return exit.array
        return output.copy("K") if copy else output

    return run
