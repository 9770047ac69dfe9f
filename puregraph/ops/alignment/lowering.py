"""Alignments lowering: a native kernel for each, with a task for each sample."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from puregraph.ops.alignment import latticewriter
from puregraph.ops.alignment import native as alignment
from puregraph.ops.alignment.reference import alignments
from puregraph.ops.alignment.transducer import transductions
from puregraph.ops.ir.bounds import Bounds, canBeBounded
from puregraph.ops.ir.elementlayout import isRowMajor, isSingle
from puregraph.ops.ir.value import Call, Value
from puregraph.ops.native.llvm.kernelcall import KernelCall
from puregraph.ops.operation import op

if TYPE_CHECKING:
    from puregraph.compile.lower.workspace import LoweringWorkspace


@op(alignments).lower
def lowerAlignments(call: Call, workspace: LoweringWorkspace) -> list[KernelCall] | None:
    """Logarithms of float32, and integers of 64 bits, all without gaps."""
    if not isReadable(call, workspace):
        return None
    logs, index, lengths, counts, blank = call.arguments
    (n, time, classes), labels, (costs, chances) = logs.shape, index.shape[1], call.outs
    space, sizes = workspace(alignment.workspaceSize(n, time, labels)), (n, time, classes, labels)
    return alignment.alignments(logs, index, lengths, counts, costs, chances, space, sizes, blank)


@op(transductions).lower
def lowerTransductions(call: Call, workspace: LoweringWorkspace) -> list[KernelCall] | None:
    """Logarithms of float32, and integers of 64 bits, all without gaps."""
    if not isReadable(call, workspace):
        return None
    logs, index, lengths, counts, blank = call.arguments
    (n, time, rows, classes), (costs, chances) = logs.shape, call.outs
    space, sizes = workspace(latticewriter.latticeSize(n, time, rows)), (n, time, rows, classes)
    return latticewriter.transductions(logs, index, lengths, counts, costs, chances, space, sizes, blank)


def isReadable(call: Call, workspace: LoweringWorkspace) -> bool:
    """True if native code can read and write the arrays; lengths that are inputs are then checked before each run."""
    logs, index, lengths, counts, _ = call.arguments
    if not all(type(x) is Value and x.dtype == np.int64 and isRowMajor(x) for x in (index, lengths, counts)):
        return False
    if not isSingle(logs, *call.outs) or not all(map(isRowMajor, (logs, *call.outs))):
        return False
    for value, size in ((lengths, logs.shape[1]), (counts, index.shape[1])):
        if canBeBounded(value):  # what is computed in the step is kept within bounds by the kernel
            workspace.check(Bounds(value, 0, size + 1))
    return True
