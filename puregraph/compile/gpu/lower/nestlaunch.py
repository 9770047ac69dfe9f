"""Nest launches: which formulas and reductions become launches, and how the elements of a Value are stored for them."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from puregraph.compile.ir.value import Call, Value
from puregraph.compile.passes.fusion import Fuser
from puregraph.compile.passes.group import Axes, Group
from puregraph.compile.passes.nestlines import EXACT, TRUTHS, NestLines, described
from puregraph.formula.loopnest import Operand

FLOATS = {"float16": "f16", "bfloat16": "bf16", "float32": "f32", "float64": "f64"}
WHOLE = {"int8": "i8", "uint8": "u8", "int16": "i16", "uint16": "u16", "int32": "i32", "uint32": "u32", "int64": "i64"}
KINDS = {**FLOATS, **WHOLE, "bool": "bool"}


@cache
def named(dtype: Any) -> str:
    """The name of a dtype, which numpy would build anew each time."""
    return dtype.name


def reading(call: Call) -> NestLines | None:
    """A call as formulas or a reduction; None if it is neither, or of a dtype that launches do not compute with."""
    found = described(call, canReduce)
    if found is None:
        return None
    results = [y for y, _, _ in found.results]
    values = [v for v, _ in found.given.values()]
    made = KINDS if call.kind.isReduction else {**FLOATS, "bool": "bool"}
    if not all(y.size and named(y.dtype) in made for y in results) or not all(map(isRead, values)):
        return None
    return found if values or named(results[0].dtype) in FLOATS else None


def isRead(x: Value) -> bool:
    """Whether launches read such elements; large integers are no exact floats, but indices are small."""
    kind = named(x.dtype)
    return x.role != "object" and (
        kind in FLOATS or kind == "bool" or (kind in WHOLE and max(x.shape, default=0) < EXACT)
    )


def canReduce(function: Any, x: Value, y: Value) -> bool:
    """Whether these dtypes can be reduced: floats of any kind, or booleans that are joined or counted."""
    if x.dtype == bool:
        return function in TRUTHS if y.dtype == bool else function is np.sum and y.dtype == np.int64 and x.size < EXACT
    return named(x.dtype) in FLOATS and named(y.dtype) in FLOATS and function not in TRUTHS


def kindOf(read: NestLines) -> str:
    """The dtype to compute in: float64 where a result is, or an operand of more than one element."""
    values = [*(y for y, _, _ in read.results), *(x for x, _ in read.given.values() if x.size > 1)]
    return "f64" if any(v.dtype == np.float64 for v in values) else "f32"


class GpuFuser(Fuser):
    """A Fuser whose groups compute in float32, or in float64."""

    reading = staticmethod(reading)

    def join(self, group: Group, read: NestLines, call: Call) -> bool:
        """Add a call to a group, if it fits."""
        kind = kindOf(read)
        if group.calls and group.arithmetic != kind:
            return False
        group.arithmetic = kind
        return super().join(group, read, call)


def rounds(call: Call) -> bool:
    """Whether a call may multiply float32 in tf32, with a fraction of ten bits."""
    return call.origin.precision == "tf32"


def operand(space: tuple[int, ...], value: Value, axes: Axes) -> Operand | None:
    """A Value as an operand of a nest; None if its elements are not stored at multiples of their size."""
    size, steps = value.dtype.itemsize, [0] * len(space)
    for a, s in zip(axes, value.strides):
        if a is not None:
            if s % size:
                return None
            steps[a] += s // size
    return Operand(KINDS[named(value.dtype)], value, tuple(steps))
