"""Matrix products: native kernel calls, and the tiling of their results."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from puregraph.ops.ir.elementlayout import OutputTiling, collapsed, isReal, realOf, roundsFactors
from puregraph.ops.ir.value import Call
from puregraph.ops.native.llvm import jit
from puregraph.ops.native.llvm.kernelcall import KernelCall
from puregraph.ops.product.native.gemm import BatchAxis, gemm, vectorsFor, worthPacking, worthRounding
from puregraph.ops.product.native.pack import PackedMatrix
from puregraph.ops.product.native.packedmatrix import pack, packedSize

if TYPE_CHECKING:
    from collections.abc import Iterable

    from puregraph.compile.lower.workspace import LoweringWorkspace
    from puregraph.ops.ir.value import Value
    from puregraph.ops.native.llvm.kernelcall import EpilogueSpec


def productTiling(call: Call) -> OutputTiling | None:
    """All axes but the last are rows if b is one matrix and the rows of a can be merged; otherwise they are a batch."""
    if call.function is not np.matmul or call.options:
        return None
    a, b = call.arguments
    (y,) = call.outs
    if not isReal(a, b, y) or a.ndim < 2 or b.ndim < 2:
        return None
    if any(s % y.dtype.itemsize for v in (a, b, y) for s in v.strides):
        return None
    lead = y.ndim - 2
    if math.prod(b.shape[:-2]) == 1:
        rows = [(n, s) for n, s in zip(a.shape[:-1], a.strides[:-1])]
        resultRows = [(n, s) for n, s in zip(y.shape[:-1], y.strides[:-1])]
        if collapsed(rows) is not None and collapsed(resultRows) is not None:
            return OutputTiling(tuple(range(y.ndim - 1)), y.ndim - 1)
    batch = tuple(a for a in range(lead) if y.shape[a] > 1)
    return OutputTiling((lead,), lead + 1, batch) if len(batch) <= 2 else None


def productOf(call: Call, epilogue: EpilogueSpec, workspace: LoweringWorkspace) -> list[KernelCall] | None:
    """A matrix product (GEMM) as native kernel calls."""
    a, b = call.arguments
    (y,) = call.outs
    tiling = productTiling(call)
    if tiling is None:
        return None
    m = math.prod(y.shape[i] for i in tiling.rows)
    n, k, size = y.shape[-1], a.shape[-1], y.dtype.itemsize
    rows = (
        [(n, s // size) for n, s in zip(a.shape[:-1], a.strides[:-1])]
        if len(tiling.rows) > 1
        else [(a.shape[-2], a.strides[-2] // size)]
    )
    aRow = collapsed(rows)
    batch = []
    for axis in tiling.batch:
        steps = []
        for v in (a, b):
            position = axis - (y.ndim - v.ndim)
            steps.append(v.strides[position] // size if position >= 0 and v.shape[position] > 1 else 0)
        batch.append(BatchAxis(y.shape[axis], *steps))
    lanes, real = jit.lanes(size), realOf(y)
    aStrides, bStrides = (aRow or 0, a.strides[-1] // size), (b.strides[-2] // size, b.strides[-1] // size)
    before: list[KernelCall] = []
    halves = roundsFactors(call)
    if workspace.packedWeights is not None and b.root.role == "param" and not batch and worthPacking(m, n, k, lanes):
        halves = halves and worthRounding(m, n, k)
        vectors = vectorsFor(m, n, k, aStrides, lanes, real, halves)
        packed, before = workspace.packed(
            b,
            packedSize(n, k, vectors, lanes, halves),
            lambda to: pack(b, n, k, bStrides, to, lanes, vectors, real, halves),
        )
        b = PackedMatrix(packed, k, n, vectors, lanes)
    scratch = partial(workspace, dtype=y.dtype)
    options = (lanes, None, scratch, real, isTranspose(*call.arguments), halves)
    return [*before, *gemm(a, b, epilogue, m, n, k, aStrides, bStrides, batch, *options)]


def isTranspose(a: Value, b: Value) -> bool:
    """True if b is a^T in the same memory, so that their product is symmetric."""
    axes = (*range(a.ndim - 2), a.ndim - 1, a.ndim - 2)
    return a.root is b.root and a.offset == b.offset and layoutAlong(a, axes) == layoutAlong(b, range(b.ndim))


def layoutAlong(x: Value, axes: Iterable[int]) -> list[tuple[int, int]]:
    """The sizes and strides of some axes."""
    return [(x.shape[axis], x.strides[axis]) for axis in axes]
