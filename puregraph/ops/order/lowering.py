"""Order lowering: sorting along an axis."""

from __future__ import annotations

from typing import TYPE_CHECKING

from puregraph.ops.ir.elementlayout import elementStrides
from puregraph.ops.ir.value import Call
from puregraph.ops.native.llvm.kernelcall import KernelCall
from puregraph.ops.operation import op
from puregraph.ops.order import native
from puregraph.ops.order.reference import sortAlong

if TYPE_CHECKING:
    from puregraph.compile.lower.workspace import LoweringWorkspace

ELEMENTS = {"float32": "f32", "float64": "f64", "int32": "i32", "int64": "i64"}
MAX_LINE_ELEMENTS = 1 << 20  # most elements of a line: each thread keeps two buffers of keys and indices for a line


@op(sortAlong).lower
def lowerSort(call: Call, workspace: LoweringWorkspace) -> list[KernelCall] | None:
    """Along any axis of floats or integers with any strides."""
    x, axis, count, *rest = call.arguments
    isLargest = bool(rest[0] if rest else call.options.get("largest", False))
    values, indices = call.outs
    element, n = ELEMENTS.get(x.dtype.name), x.shape[axis % x.ndim]
    if element is None or 0 in values.shape or n > MAX_LINE_ELEMENTS or any(s % x.dtype.itemsize for s in x.strides):
        return None
    lines = native.stridesAlong(x.shape, [elementStrides(a) for a in (x, values, indices)], axis % x.ndim)
    return native.sortAlong(x, values, indices, element, n, count, lines, isLargest)
