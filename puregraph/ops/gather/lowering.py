"""Gather lowering: gather and scatter-add of rows, labels, random numbers, fills."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from puregraph.ops.formula import Formula
from puregraph.ops.formula.loopnest import LoopNest, Operand
from puregraph.ops.gather import alonglines, native
from puregraph.ops.gather.alongaxis import putAlong, takeAlong, wrapIndex
from puregraph.ops.gather.labels import classIndex
from puregraph.ops.gather.reference import gather, scatterAdd
from puregraph.ops.gather.scatterfused import scatterAddFused
from puregraph.ops.ir.bounds import Bounds, canBeBounded
from puregraph.ops.ir.elementlayout import (
    KINDS,
    OutputTiling,
    canCopy,
    collapsed,
    copies,
    elementStrides,
    isReal,
    isRowMajor,
    realOf,
)
from puregraph.ops.ir.strides import contiguous
from puregraph.ops.ir.value import Call, Value
from puregraph.ops.native.llvm.kernelcall import EpilogueSpec, KernelCall
from puregraph.ops.native.nests.nestcode import nestCalls
from puregraph.ops.operation import op
from puregraph.ops.random import native as philox
from puregraph.ops.random.reference import uniform

if TYPE_CHECKING:
    from puregraph.compile.lower.workspace import LoweringWorkspace

ELEMENTS = {"float32": "f32", "float64": "f64", "int32": "i32", "int64": "i64"}


def isIndex(value: object) -> bool:
    """True if native code can read indices."""
    return type(value) is Value and 0 not in value.shape and value.dtype == np.int64


def isInputIndex(value: object) -> bool:
    """True if indices can be checked before a step: they are an input, or a view of one."""
    return type(value) is Value and isIndex(value) and canBeBounded(value)


def indicesOf(value: Value, workspace: LoweringWorkspace) -> tuple[Any, int, list[KernelCall]]:
    """The indices in row-major order: their location, their stride, and the kernel calls that copy them if needed."""
    step = collapsed([(n, s // 8) for n, s in zip(value.shape, value.strides)])
    if step is not None:
        return value, step, []
    to = workspace(2 * value.size)
    strides = tuple(s // 8 for s in contiguous(value.shape, 8))
    return to, 1, copies(value, to, value.shape, elementStrides(value), strides, 8)


def rowLike(value: Value, lead: int) -> int | None:
    """The stride between contiguous rows, which the first `lead` axes index; None if rows are not contiguous."""
    step = value.dtype.itemsize
    for n, s in zip(reversed(value.shape[lead:]), reversed(value.strides[lead:])):
        if n > 1 and s != step:
            return None
        step *= n
    size = value.dtype.itemsize
    axes = [(n, s // size) for n, s in zip(value.shape[:lead], value.strides[:lead])]
    stride = collapsed(axes)
    return None if stride is None else stride or step // size


@op(gather).lower
def lowerGather(call: Call, workspace: LoweringWorkspace) -> list[KernelCall] | None:
    """y = table[index]."""
    table, index = call.arguments
    (y,) = call.outs
    if not canCopy(table, y) or not isIndex(index) or not isRowMajor(y):
        return None
    stride, width = rowLike(table, 1), math.prod(table.shape[1:])
    if stride is None:
        return None
    where, step, before = indicesOf(index, workspace)
    fault = workspace.faultOf(index, -1, table.shape[0])
    kind = KINDS[y.dtype.itemsize]
    return [*before, *native.gather(table, stride, table.shape[0], where, index.size, y, width, fault, step, kind)]


@op(scatterAdd).lower
def lowerScatterAdd(call: Call, epilogue: Any, workspace: LoweringWorkspace) -> list[KernelCall] | None:
    """table[index] += grad, on zeros, with an epilogue by rows."""
    if type(epilogue) is EpilogueSpec:
        return lowerScatter(call, workspace)
    grad, index, rows = call.arguments
    (table,) = call.outs
    stride = rowLike(grad, index.ndim)
    if stride is None:
        return None
    where, step, before = indicesOf(index, workspace)
    sizes, fault = (rows, table.shape[1]), workspace.faultOf(index, -1, rows)
    return [
        *before,
        *scatterAddFused(grad, stride, where, step, index.size, epilogue, *sizes, fault, realOf(table)),
    ]


def lowerScatter(call: Call, workspace: LoweringWorkspace) -> list[KernelCall] | None:
    """table[index] += grad, on zeros, without an epilogue."""
    grad, index, rows = call.arguments
    (table,) = call.outs
    if not isReal(grad, table) or not isIndex(index) or not isRowMajor(table):
        return None
    stride = rowLike(grad, index.ndim)
    if stride is None:
        return None
    where, step, before = indicesOf(index, workspace)
    fault = workspace.faultOf(index, -1, rows)
    width = math.prod(table.shape[1:])
    return [
        *before,
        *native.scatterAdd(grad, where, index.size, table, rows, width, fault, stride, step, realOf(table)),
    ]


def scatterTiling(call: Call) -> OutputTiling | None:
    """The output tiling of a scatter-add: the rows of the table."""
    grad, index, _ = call.arguments
    (table,) = call.outs
    if table.ndim != 2 or not isReal(grad, table) or not isIndex(index) or not isRowMajor(table):
        return None
    return None if rowLike(grad, index.ndim) is None else OutputTiling((0,), 1)


op(scatterAdd).declare(tiling=scatterTiling, untiled=lowerScatter)


@op(takeAlong).lower
def lowerTake(call: Call, workspace: LoweringWorkspace) -> list[KernelCall] | None:
    """y[i] = x[index[i]] along an axis; elements of any dtype, with any strides."""
    x, index, axis = call.arguments
    (y,) = call.outs
    if not isIndex(index) or not canCopy(x, y):
        return None
    axis = axis % x.ndim
    steps = alonglines.stepsOf(y.shape, [elementStrides(a) for a in (x, index, y)], axis)
    n = x.shape[axis]
    fault = workspace.faultOf(index, -n, n)
    return alonglines.takeAlong(x, index, y, KINDS[y.dtype.itemsize], n, steps, fault)


@op(putAlong).lower
def lowerPut(call: Call, workspace: LoweringWorkspace) -> list[KernelCall] | None:
    """A copy of x, then y[index[i]] of updates[i] along an axis; elements of any dtype are replaced."""
    x, index, updates, axis, *rest = call.arguments
    kind = rest[0] if rest else call.options.get("kind", "set")
    (y,) = call.outs
    element = KINDS.get(y.dtype.itemsize) if kind == "set" else ELEMENTS.get(y.dtype.name)
    if not isIndex(index) or not canCopy(x, y) or not canCopy(y, updates) or element is None:
        return None
    axis = axis % x.ndim
    steps = alonglines.stepsOf(index.shape, [elementStrides(a) for a in (y, index, updates)], axis)
    n = x.shape[axis]
    fault = workspace.faultOf(index, -n, n)
    start = copies(x, y, x.shape, elementStrides(x), elementStrides(y), x.dtype.itemsize)
    return [*start, *alonglines.putAlong(y, index, updates, kind, element, n, steps, fault)]


@op(wrapIndex).lower
def lowerWrap(call: Call, workspace: LoweringWorkspace) -> list[KernelCall] | None:
    """Indices counted from the start."""
    (index, n), (y,) = call.arguments, call.outs
    if not isIndex(index) or not isRowMajor(y):
        return None
    where, step, before = indicesOf(index, workspace)
    return [*before, *alonglines.wrapIndex(where, step, y, index.size, n, workspace.faultOf(index, -n, n))]


@op(classIndex).lower
def lowerClassIndex(call: Call, workspace: LoweringWorkspace) -> list[KernelCall] | None:
    """The labels, with -1 for ignored ones."""
    labels, classes, *optional = call.arguments
    ignored = optional[0] if optional else call.options.get("ignored")
    (index,) = call.outs
    if not isInputIndex(labels) or not isRowMajor(labels) or not isRowMajor(index) or index.dtype != np.int64:
        return None
    workspace.check(Bounds(labels, 0, classes, None if ignored is None else int(ignored)))
    line = Formula("x0") if ignored is None else Formula(f"where(x0 == {int(ignored)}, -1, x0)")
    loads, stores = {"x0": Operand("i64", labels, (1,))}, {"y0": Operand("i64", index, (1,))}
    return nestCalls(LoopNest((labels.size,), loads, (("y0", line),), stores, "i64"), workspace)


@op(uniform).lower
def lowerUniform(call: Call, workspace: LoweringWorkspace) -> list[KernelCall] | None:
    """Uniform random numbers of Philox, from a key and a counter that each run reads."""
    _, key, counter, *_ = call.arguments
    (y,) = call.outs
    if type(key) is not Value or type(counter) is not Value or not isReal(y) or not isRowMajor(y):
        return None
    return philox.uniform(y, y.size, key, counter, realOf(y))
