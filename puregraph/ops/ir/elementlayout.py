"""Element layout: strides of a Value in elements, and copies to another layout."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from puregraph.ops.ir.strides import contiguous, isContiguous
from puregraph.ops.ir.value import Call, Value
from puregraph.ops.native.llvm import jit
from puregraph.ops.native.llvm.kernelcall import KernelCall
from puregraph.ops.native.llvm.registertranspose import LANE_ELEMENTS
from puregraph.ops.native.nests.copy import stridedCopy

if TYPE_CHECKING:
    from puregraph.compile.lower.workspace import LoweringWorkspace

SINGLE, DOUBLE = np.dtype(np.float32), np.dtype(np.float64)
T = TypeVar("T")
KINDS = {1: "i8", 2: "i16", 4: "f32", 8: "f64"}  # by itemsize: the type that elements are copied as


class OutputTiling(NamedTuple):
    """The output tiling of a product or convolution: the row axes, the column axis and the batch axes of its result."""

    rows: tuple[int, ...]
    column: int
    batch: tuple[int, ...] = ()


def allOf(results: Iterable[T | None]) -> list[T] | None:
    """The results as a list; None if any of them is None."""
    known = [*results]
    return None if None in known else [result for result in known if result is not None]


def isSingle(*values: object) -> bool:
    """True if all are float32 Values with at least one element."""
    return all(type(v) is Value and v.dtype == SINGLE and 0 not in v.shape for v in values)


def isReal(*values: object) -> bool:
    """True if all are Values of one dtype that kernels compute in, with at least one element.

    That is float32, and float64 where a vector has at least four: shorter ones cannot be transposed in registers.
    """
    dtypes = {v.dtype if type(v) is Value and 0 not in v.shape else None for v in values}
    return len(dtypes) == 1 and (
        dtypes <= {SINGLE} or dtypes <= {DOUBLE} and jit.lanes(DOUBLE.itemsize) >= LANE_ELEMENTS
    )


def realOf(value: Value) -> str:
    """The kind of the elements of a Value that `isReal`, in native code."""
    return KINDS[value.dtype.itemsize]


def roundsFactors(call: Call) -> bool:
    """True if a call may round its factors to bfloat16: its module allows it, and the CPU multiplies such numbers."""
    (y,) = call.outs
    return call.origin.precision == "bfloat16" and realOf(y) == "f32" and jit.multipliesBfloat16()


def isRowMajor(value: Value) -> bool:
    """True if the elements are contiguous in row-major order."""
    return isContiguous(value.shape, value.strides, value.dtype.itemsize)


def canCopy(*values: Value) -> bool:
    """True if native code can copy elements: all of one dtype, with strides that are multiples of its size."""
    kinds = {v.dtype for v in values}
    size, kind = values[0].dtype.itemsize, values[0].dtype.kind
    known = kind in "iub" or kind == "f" and size in (4, 8)
    return len(kinds) == 1 and known and all(0 not in v.shape and not any(s % size for s in v.strides) for v in values)


def elementStrides(value: Value) -> tuple[int, ...]:
    """Strides in elements, 0 along axes of length one."""
    return tuple([s // value.dtype.itemsize if n > 1 else 0 for n, s in zip(value.shape, value.strides)])


def broadcastStrides(value: Value, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The strides of a Value broadcast to a shape."""
    return (0,) * (len(shape) - value.ndim) + elementStrides(value)


def copies(
    x: Any, y: Any, shape: tuple[int, ...], xStrides: tuple[int, ...], yStrides: tuple[int, ...], size: int = 4
) -> list[KernelCall]:
    """The kernel calls that copy the elements of x, of `size` bytes each, to those of y."""
    return stridedCopy(KINDS[size], x, shape, xStrides, y, yStrides)


def toRowMajor(value: Value, workspace: LoweringWorkspace) -> tuple[Any, list[KernelCall]]:
    """The elements in row-major order: their location, and the kernel calls that copy them if needed."""
    if isRowMajor(value):
        return value, []
    to, size = workspace(value.size, value.dtype), value.dtype.itemsize
    strides = tuple(s // size for s in contiguous(value.shape, size))
    return to, copies(value, to, value.shape, elementStrides(value), strides, size)


def collapsed(axes: list[tuple[int, int]]) -> int | None:
    """The stride of several axes merged into one; None if they cannot be merged."""
    axes = [(n, s) for n, s in axes if n > 1]
    for (_, outer), (n, inner) in zip(axes, axes[1:]):
        if outer != n * inner:
            return None
    return axes[-1][1] if axes else 0
