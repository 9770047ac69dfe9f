"""Pairwise dot products of several vectors, and their gradients, sample by sample in scratch memory."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from puregraph.core.opensize import largest, sized, smallest
from puregraph.ops.native.llvm import jit
from puregraph.ops.native.llvm.instructions import SIZES, IRPointer, IRType, IRValue
from puregraph.ops.native.llvm.irbuilder import IRBuilder
from puregraph.ops.native.llvm.kernelcall import KernelCall
from puregraph.ops.native.llvm.registertranspose import transposed

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from typing import Any

    from puregraph.core.protocols import AnyArray, Strided
    from puregraph.ops.ir.value import Value

CHUNK = 1 << 18  # multiplications of a task, or more


def pairDots(
    xs: Sequence[Value], rows: Sequence[int], size: int, samples: int, y: Value, yRow: int, real: str = "f32"
) -> list[KernelCall]:
    """y[n, p] = <x_i[n], x_j[n]> for i > j, row by row; `rows` are the strides of the samples of each x."""
    count = len(xs)
    slots = slotsFor(xs, rows, samples, count * count * size) | {"y": y, "yRow": yRow}
    write = partial(writeDots, count, size, real)
    return [
        KernelCall(sized("pairDots {}x{}x{}", samples, count, size), machineKey(real), write, slots, tasksOf(slots))
    ]


def pairDotsGrad(
    grad: Strided,
    gradRow: int,
    xs: Sequence[AnyArray],
    rows: Sequence[int],
    size: int,
    samples: int,
    dx: Strided,
    real: str = "f32",
) -> list[KernelCall]:
    """dx[n, i] = the sum over j of g[n, i j] x_j[n], g being as `pairDots` gives y; dx (n, f, d) is contiguous."""
    count = len(xs)
    slots = slotsFor(xs, rows, samples, 2 * count * count * size) | {"grad": grad, "gradRow": gradRow, "dx": dx}
    write = partial(writeGrads, count, size, real)
    return [
        KernelCall(sized("pairDotsGrad {}x{}x{}", samples, count, size), machineKey(real), write, slots, tasksOf(slots))
    ]


def machineKey(real: str) -> str:
    """The machine part of the code's key; sizes are constants in the code."""
    return f"{real} {jit.lanes(SIZES[real])}"


def slotsFor(xs: Sequence[Any], rows: Sequence[int], samples: int, cost: int) -> dict[str, Value | int]:
    """The arguments of both kernels."""
    vectors = {f"x{i}": x for i, x in enumerate(xs)} | {f"row{i}": row for i, row in enumerate(rows)}
    return vectors | {"samples": samples, "step": largest(1, smallest(samples, CHUNK // cost))}


def tasksOf(slots: dict[str, Any]) -> int:
    """A task has `step` samples."""
    return -(-slots["samples"] // slots["step"])


def writeDots(count: int, size: int, real: str, code: IRBuilder) -> None:
    """For each sample y = x x' below the diagonal: broadcast elements of x times rows of x'."""
    lanes = jit.lanes(SIZES[real])
    vectors = vectorsOf(code, count, real)
    y, stride = code.pointer("y", real), code.integer("yRow")
    wide, high = paddedSize(size, lanes), paddedSize(count, lanes)
    plain, across = code.scratch(real, high * wide), code.scratch(real, wide * high)
    with eachSample(code) as n:
        for first in range(0, high, lanes):
            with code.loop(0, wide, lanes, unroll=1) as c:
                block = [read(code, vectors, n, first + k, c, size, lanes) for k in range(lanes)]
                for k, row in enumerate(block):
                    plain.store((first + k) * wide + c, row)
                for k, column in enumerate(transposed(code, block)):
                    across.store((c + k) * high + first, column)
        target = y.at(n * stride)
        with code.loop(1, count, unroll=1) as i:
            start, left = i * (i - 1) // 2, plain.at(i * wide)
            with code.loop(0, i, lanes, unroll=1) as j:
                sums = code.variable(code.constant(0.0, IRType(real, lanes)))
                with code.loop(0, size, unroll=4) as c:
                    sums.value = code.fma(code.splat(left.load(c), lanes), across.load(c * high + j, lanes), sums.value)
                target.store(start + j, sums.value, code.mask(i - j, lanes))


def writeGrads(count: int, size: int, real: str, code: IRBuilder) -> None:
    """For each sample and vector, the sum of the other vectors weighted by their gradients."""
    lanes = jit.lanes(SIZES[real])
    vectors = vectorsOf(code, count, real)
    grad, stride, dx = code.pointer("grad", real), code.integer("gradRow"), code.pointer("dx", real)
    wide = paddedSize(size, lanes)
    plain = code.scratch(real, count * wide)
    with eachSample(code) as n:
        for row in range(count):
            with code.loop(0, wide, lanes, unroll=1) as c:
                plain.store(row * wide + c, read(code, vectors, n, row, c, size, lanes))
        sampleGrad, target = grad.at(n * stride), dx.at(n * (count * size))
        with code.loop(0, count, unroll=1) as i, code.loop(0, wide, lanes, unroll=1) as c:
            sums = code.variable(code.constant(0.0, IRType(real, lanes)))

            def add(j: IRValue, pair: IRValue) -> None:
                weight = code.splat(sampleGrad.load(pair), lanes)
                sums.value = code.fma(weight, plain.load(j * wide + c, lanes), sums.value)

            with code.loop(0, i, unroll=4) as j:
                add(j, i * (i - 1) // 2 + j)
            with code.loop(i + 1, count, unroll=4) as j:
                add(j, j * (j - 1) // 2 + i)
            target.store(i * size + c, sums.value, code.mask(size - c, lanes))


def paddedSize(count: int, lanes: int) -> int:
    """A count rounded up to whole vectors."""
    return -(-count // lanes) * lanes


def vectorsOf(code: IRBuilder, count: int, real: str) -> list[tuple[IRPointer, IRValue]]:
    """The pointer of each vector and its stride of samples."""
    return [(code.pointer(f"x{i}", real), code.integer(f"row{i}")) for i in range(count)]


def read(
    code: IRBuilder, vectors: list[tuple[IRPointer, IRValue]], n: IRValue, i: int, c: IRValue, size: int, lanes: int
) -> IRValue:
    """Elements c, c + 1, ... of vector i of sample n; 0 beyond its end, and for vectors beyond the last."""
    if i >= len(vectors):
        return code.constant(0.0, IRType(vectors[0][0].kind, lanes))
    pointer, row = vectors[i]
    return pointer.at(n * row).load(c, lanes, None if size % lanes == 0 else code.mask(size - c, lanes))


def eachSample(code: IRBuilder) -> AbstractContextManager:
    """The loop over the samples of a task."""
    samples, step = code.integer("samples"), code.integer("step")
    start = code.task * step
    return code.loop(start, code.min(start + step, samples), unroll=1)
