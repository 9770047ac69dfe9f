"""Alignments lowering: one native kernel, a task for each sample."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from puregraph.ops.alignment import native as alignment
from puregraph.ops.alignment.reference import alignments
from puregraph.ops.ir.bounds import Bounds, canBeBounded
from puregraph.ops.ir.elementlayout import isRowMajor, isSingle
from puregraph.ops.ir.value import Call, Value
from puregraph.ops.native.llvm.kernelcall import KernelCall
from puregraph.ops.operation import op

if TYPE_CHECKING:
    from puregraph.compile.lower.workspace import LoweringWorkspace


@op(alignments).lower
def lowerAlignments(call: Call, workspace: LoweringWorkspace) -> list[KernelCall] | None:
    """The kernel call for float32 logarithms and int64 integers, all contiguous; None for other arrays."""
    logs, index, lengths, counts, blank = call.arguments
    costs, chances = call.outs
    whole = (index, lengths, counts)
    if not all(type(x) is Value and x.dtype == np.int64 and isRowMajor(x) for x in whole):
        return None
    if not isSingle(logs, costs, chances) or not all(map(isRowMajor, (logs, costs, chances))):
        return None
    n, time, classes = logs.shape
    for value, size in ((lengths, time), (counts, index.shape[1])):
        if canBeBounded(value):  # the kernel clamps integers that the step itself computes
            workspace.check(Bounds(value, 0, size + 1))
    space = workspace(alignment.workspaceSize(n, time, index.shape[1]))
    sizes = (n, time, classes, index.shape[1])
    return alignment.alignments(logs, index, lengths, counts, costs, chances, space, sizes, blank)
