"""Fast path: run a step that is native code only, has inputs and results, and needs no decisions.

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
    """The function `run(inputs, copy)`: returns the output or a list of outputs, or None, before running, if inputs
    need a full check. With `copy` nothing else shares the memory of the outputs.

    None if the step has anything else: numpy calls, scalars, gradients, states, an update, indices to check.
    """
    schedule, memory = executable.schedule, executable.memory
    steps = [step for part in executable.parts for step in part.steps]
    if len(executable.parts) != 1 or not all(type(step.function) is Segment for step in steps):
        return None
    if executable.numbers or executable.objects or executable.guard.table is not None or schedule.written:
        return None
    values = schedule.outputs
    if schedule.inputGrads or not values or any(v is None or v.root.role != "made" for v in values):
        return None
    if len({v.root.number for v in values}) < len(values):
        return None
    tables = [step.function.table for step in steps]
    entries = [(entry.put, *wanted) for entry, wanted in zip(executable.inputs, executable.wanted)]
    workspace, arena, count = memory.workspace, memory.arena, len(entries)
    exits = executable.ownOutputs
    owned = executable.plan.ownOutputs  # the user owns the memory of these
    outputs: list[tuple[Any, Any]] = [
        (owned[v.number], None) if v.number in owned else (None, memory(v)) for v in values
    ]
    if any(array is not None and array.ndim == 0 for _, array in outputs):
        return None
    first, only = outputs[0] if len(outputs) == 1 else (None, None)
    packedWeights, packing = executable.packedWeights, executable.packing

    def run(inputs: Sequence[Any], copy: bool) -> Any:
        if len(inputs) != count or arena is not workspace.array:
            return None
        for x, (_, shape, dtype) in zip(inputs, entries):
            if type(x) is not np.ndarray or x.shape != shape or x.dtype != dtype:
                return None
        for x, (put, _, _) in zip(inputs, entries):
            put(x)
        for exit in exits:
            exit.renew()
        if packedWeights is not None:
            packedWeights.refresh(packing)
        for table in tables:
            table()
        if only is not None:
            return only.copy("K") if copy else only
        if first is not None:
            return first.array
        return [exit.array if y is None else y.copy("K") if copy else y for exit, y in outputs]

    return run
