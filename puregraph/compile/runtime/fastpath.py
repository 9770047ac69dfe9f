"""Fast path: the run of a step that is native code alone, without decisions: inputs in, one result out.

Python takes longer than a small network does, above all when weights have just evicted it from every cache. So one
function does what `Executable.run` and its helpers do for the usual case.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from puregraph.compile.runtime.segment import Segment

Run = Callable[[Sequence[Any], bool], Any]


def fastPathOf(executable: Any) -> Run | None:
    """`run(inputs, copy)` gives the output, or None, with nothing done, for inputs that need a full check.

    None where a step has anything else: calls of numpy, scalars, gradients, states, an update, indices to check.
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
        output = None  # its user owns its memory

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
