"""Flops: how many operations a call takes."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from puregraph.compile.ir.value import Call, Value
from puregraph.formula.formula import formulasOf
from puregraph.kernels.attention import attend, attendGrad
from puregraph.kernels.convolution import convolve, convolveData, convolveWeight
from puregraph.kernels.pooling import maxPool, meanPool

KERNELS: dict[Any, Callable[[Call], int]] = {
    convolve: lambda c: 2 * c.outs[0].size * prod(c.arguments[1].shape[1:]),
    convolveData: lambda c: 2 * c.arguments[0].size * prod(c.arguments[1].shape[1:]),
    convolveWeight: lambda c: 2 * c.arguments[0].size * prod(c.outs[0].shape[1:]),
    attend: lambda c: 2 * c.outs[0].size * c.arguments[1].shape[2] * 2,
    attendGrad: lambda c: 2 * c.arguments[0].size * c.arguments[2].shape[2] * 5,
    maxPool: lambda c: c.outs[0].size * windowOf(c),
    meanPool: lambda c: c.outs[0].size * windowOf(c),
}


def windowOf(call: Call) -> int:
    """The elements of a pooling window."""
    size = call.arguments[1]
    return size ** (call.outs[0].ndim - 2) if isinstance(size, int) else prod(size)


def flopsOf(call: Call) -> int:
    """The operations of a call; moving and choosing elements is none."""
    if call.kind.isExact or call.kind.isStore or call.kind.isHost:
        return 0
    size = max([y.size for y in call.outs if y is not None], default=0)
    if hasattr(call.function, "terms"):
        return size * sum(f.flops for f in formulasOf(call.function))
    if call.kind.isNative:
        return sum(map(flopsOf, call.function.calls))
    if call.function in KERNELS:
        return KERNELS[call.function](call)
    values = call.values()
    if call.function is np.matmul:
        return 2 * size * values[0].shape[-1]
    if call.kind.isContraction:
        inner = prod(v.size for v in values) // max(1, size)
        return 2 * size * round(inner**0.5)
    return max([size, *(v.size for v in values)]) if call.kind.isReduction else size


def layoutOf(value: Value) -> str:
    """How a Value lies: nothing where it is row-major, else its axes, the slowest first."""
    order = sorted((-abs(s), axis) for axis, (n, s) in enumerate(zip(value.shape, value.strides)) if n != 1)
    axes = [axis for _, axis in order]
    if 0 in [s for n, s in zip(value.shape, value.strides) if n != 1]:
        return "repeated"
    return "" if axes == sorted(axes) else "".join(map(str, axes))
