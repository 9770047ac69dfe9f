"""Movement lowering: writes in place as native kernel calls."""

from __future__ import annotations

from typing import TYPE_CHECKING

from puregraph.ops.ir.elementlayout import KINDS, canCopy, elementStrides, isRowMajor
from puregraph.ops.ir.value import Call
from puregraph.ops.movement import native
from puregraph.ops.movement.reference import writeAt
from puregraph.ops.operation import op

if TYPE_CHECKING:
    from puregraph.compile.lower.workspace import LoweringWorkspace
    from puregraph.ops.native.llvm.kernelcall import KernelCall


@op(writeAt).lower
def lowerWriteAt(call: Call, workspace: LoweringWorkspace) -> list[KernelCall] | None:
    """cache[n, h, offset[n] + i] = rows[n, h, i] in the memory of the cache."""
    cache, rows, offset = call.arguments
    n, h, t, d = elementStrides(rows)
    isRow = isRowMajor(cache) and isRowMajor(offset) and (d == 1 or rows.shape[3] == 1)
    size = rows.dtype.itemsize
    if not isRow or not canCopy(cache, rows) or size not in (4, 8) or offset.dtype.name not in ("int32", "int64"):
        return None
    return native.writeAt(cache, rows, (n, h, t), offset, KINDS[size], f"i{8 * offset.dtype.itemsize}")
