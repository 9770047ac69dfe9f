"""FLOPs: the number of floating-point operations of a call."""

from __future__ import annotations

from math import prod

import numpy as np

from puregraph.ops.formula.formula import formulasOf
from puregraph.ops.ir.value import Call, Value
from puregraph.ops.operation import declared


def flopsOf(call: Call) -> int:
    """The floating-point operations of a call; copying and selecting elements count as none."""
    if call.kind.isExact or call.kind.isStore or call.kind.isHost:
        return 0
    size = max([y.size for y in call.outs if y is not None], default=0)
    if hasattr(call.function, "terms"):
        return size * sum(f.flops for f in formulasOf(call.function))
    if call.kind.isNative:
        return sum(map(flopsOf, call.function.calls))
    rule = declared(call.function, "flops")
    if rule is not None:
        return rule(call.outs if call.several else call.outs[0], *call.arguments, **call.options)
    values = call.values()
    if call.function is np.matmul:
        return 2 * size * values[0].shape[-1]
    if call.kind.isContraction:
        inner = prod(v.size for v in values) // max(1, size)
        return 2 * size * round(inner**0.5)
    return max([size, *(v.size for v in values)]) if call.kind.isReduction else size


def layoutOf(value: Value) -> str:
    """The layout of a Value as text: empty if row-major, otherwise its axes, slowest first."""
    order = sorted((-abs(s), axis) for axis, (n, s) in enumerate(zip(value.shape, value.strides)) if n != 1)
    axes = [axis for _, axis in order]
    if 0 in [s for n, s in zip(value.shape, value.strides) if n != 1]:
        return "repeated"
    return "" if axes == sorted(axes) else "".join(map(str, axes))
