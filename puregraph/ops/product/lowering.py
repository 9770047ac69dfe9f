"""Product lowerings: symmetric and grouped products, pairwise dot products of several vectors, and their gradients."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from puregraph.ops.ir.elementlayout import (
    OutputTiling,
    collapsed,
    elementStrides,
    isReal,
    isRowMajor,
    realOf,
    toRowMajor,
)
from puregraph.ops.ir.value import Call, Value
from puregraph.ops.native.llvm import jit
from puregraph.ops.native.llvm.kernelcall import EpilogueSpec, KernelCall
from puregraph.ops.operation import op
from puregraph.ops.product.groupedproduct import groupedProduct, groupedProductGrad
from puregraph.ops.product.native import pairwisedot
from puregraph.ops.product.native.gemm import BatchAxis, Grouping, gemm
from puregraph.ops.product.pairwisedot import pairDots, pairDotsGrad
from puregraph.ops.product.symmetric import symmetricProduct

if TYPE_CHECKING:
    from puregraph.compile.lower.workspace import LoweringWorkspace

MAX_VECTORS = 128  # most vectors: each one adds two arguments and some instructions


@op(symmetricProduct).lower
def lowerSymmetricProduct(call: Call, workspace: LoweringWorkspace) -> list[KernelCall] | None:
    """A product without an epilogue: a tile and its transpose, column by column, would read its operands slowly."""
    (y,), (a, b) = call.outs, call.arguments
    if not isReal(a, b, y) or not isRowMajor(y):
        return None
    n, lanes, real = y.shape[0], jit.lanes(y.dtype.itemsize), realOf(y)
    sums, scratch = EpilogueSpec(y, n, (), real), partial(workspace, dtype=y.dtype)
    (aRow, aColumn), (bRow, bColumn) = elementStrides(a), elementStrides(b)
    strides = (aRow, aColumn), (bRow, bColumn)
    return gemm(a, b, sums, n, n, n, *strides, (), lanes, None, scratch, real, isSymmetric=True)


def groupedTiling(call: Call) -> OutputTiling | None:
    """Matrices as a batch, one for each block, or for each group; None if native code cannot read the operands."""
    a, b, first = call.arguments
    isRead = type(first) is Value and first.dtype == np.int64 and isRowMajor(first)
    return OutputTiling((1,), 2, (0,)) if isRead and isReal(a, b, *call.outs) else None


@op(groupedProduct).lower
def lowerGroupedProduct(call: Call, epilogue: EpilogueSpec, workspace: LoweringWorkspace) -> list[KernelCall] | None:
    """Products of a batch, which read the matrix of their group where it is."""
    (y,), (x, W, first) = call.outs, call.arguments
    (blocks, m, k), n = x.shape, W.shape[2]
    (block, *xSteps), (matrix, *wSteps) = elementStrides(x), elementStrides(W)
    batch, grouping = [BatchAxis(blocks, block, matrix)], Grouping("blocks", first, W.shape[0])
    strides = (xSteps[0], xSteps[1]), (wSteps[0], wSteps[1])
    lanes, real = jit.lanes(y.dtype.itemsize), realOf(y)
    return gemm(x, W, epilogue, m, n, k, *strides, batch, lanes, real=real, grouping=grouping)


@op(groupedProductGrad).lower
def lowerGroupedProductGrad(
    call: Call, epilogue: EpilogueSpec, workspace: LoweringWorkspace
) -> list[KernelCall] | None:
    """A product for each group, over all rows of its blocks."""
    (dW,), (grad, x, first) = call.outs, call.arguments
    (groups, k, n), (blocks, m, _) = dW.shape, x.shape
    rows = [collapsed([(blocks, block), (m, row)]) for block, row, _ in (elementStrides(x), elementStrides(grad))]
    if None in rows:
        return None
    strides = (elementStrides(x)[2], rows[0] or 0), (rows[1] or 0, elementStrides(grad)[2])
    batch, grouping = [BatchAxis(groups, 0, 0)], Grouping("depth", first, groups, m)
    lanes, real = jit.lanes(dW.dtype.itemsize), realOf(dW)
    return gemm(x, grad, epilogue, k, n, blocks * m, *strides, batch, lanes, real=real, grouping=grouping)


for product in (groupedProduct, groupedProductGrad):
    op(product).declare(tiling=groupedTiling)


@op(pairDots).lower
def lowerPairDots(call: Call, workspace: LoweringWorkspace) -> list[KernelCall] | None:
    """The dot products of all pairs."""
    (y,), xs = call.outs, call.arguments
    if len(xs) > MAX_VECTORS or not isReal(*xs, y) or not isRowMajor(y):
        return None
    matrices, rows, before = sampled(xs, workspace)
    samples, size = xs[0].shape
    return [*before, *pairwisedot.pairDots(matrices, rows, size, samples, y, y.shape[1], realOf(y))]


@op(pairDotsGrad).lower
def lowerPairDotsGrad(call: Call, workspace: LoweringWorkspace) -> list[KernelCall] | None:
    """The gradients of all vectors, concatenated."""
    (dx,), (grad, *xs) = call.outs, call.arguments
    if len(xs) > MAX_VECTORS or not isReal(grad, *xs, dx) or not isRowMajor(dx):
        return None
    matrices, rows, before = sampled([grad, *xs], workspace)
    samples, size = xs[0].shape
    return [
        *before,
        *pairwisedot.pairDotsGrad(matrices[0], rows[0], matrices[1:], rows[1:], size, samples, dx, realOf(dx)),
    ]


def sampled(values: Any, workspace: LoweringWorkspace) -> tuple[list[Any], list[int], list[KernelCall]]:
    """Matrices with contiguous rows: their locations, row strides, and the kernel calls that copy them if needed."""
    matrices, rows, before = list[Any](), list[int](), list[KernelCall]()
    for value in values:
        (row, column), where = elementStrides(value), value
        if value.shape[1] > 1 and column != 1:
            where, work = toRowMajor(value, workspace)
            row, before = value.shape[1], before + work
        matrices.append(where)
        rows.append(row)
    return matrices, rows, before
