"""Copy launches: the launches that copy and fill, for the rules of `compile/lower/copies.py`."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from puregraph.compile.lower.copies import COPYING, CopyWriter, Strides
from puregraph.compile.passes.nestlines import FLOATS, KINDS, named
from puregraph.ops.cuda.nests import launches
from puregraph.ops.formula import Formula
from puregraph.ops.formula.loopnest import INTEGERS, LoopNest, Operand
from puregraph.ops.ir.elementlayout import broadcastStrides
from puregraph.ops.ir.value import Call, Value

if TYPE_CHECKING:
    from puregraph.compile.memory.planner import MemoryPlan

BITS = {1: "u8", 2: "u16", 4: "u32", 8: "u64"}  # by itemsize: the type that elements are copied as, bit for bit


def kindOf(dtype: np.dtype) -> str:
    """The type that elements are copied as."""
    return FLOATS.get(named(dtype)) or BITS[dtype.itemsize]


class CopyLauncher(CopyWriter):
    """Launches that copy and fill."""

    def canCopy(self, *values: Any) -> bool:
        if not all(type(v) is Value and v.role != "object" and v.dtype == values[0].dtype for v in values):
            return False
        size = values[0].dtype.itemsize
        return size in BITS and not any(s % size for v in values for s in v.strides)

    def copies(
        self, x: Any, y: Any, dtype: np.dtype, shape: Strides, xStrides: Strides, yStrides: Strides
    ) -> list[Any]:
        if 0 in shape:
            return []
        kind = kindOf(dtype)
        loads, stores = {"x": Operand(kind, x, xStrides)}, {"y": Operand(kind, y, yStrides)}
        work = "f64" if kind == "f64" else kind if kind in INTEGERS else "f32"
        nest = LoopNest(shape, loads, (("y", Formula("x")),), stores, work)
        return [launch._replace(name="copy") for launch in launches.launches(nest)]

    def fills(self, number: Any, y: Any, dtype: np.dtype, shape: Strides, strides: Strides) -> list[Any] | None:
        kind = KINDS.get(named(dtype))
        if kind is None or not isinstance(number, (bool, int, float, np.generic)) or math.isnan(number):
            return None
        if 0 in shape:
            return []
        work = "f64" if kind == "f64" else kind if kind in INTEGERS else "f32"
        line = Formula(int(number) if kind in INTEGERS else float(number))
        nest = LoopNest(shape, {}, (("y", line),), {"y": Operand(kind, y, strides)}, work)
        return [launch._replace(name=f"fill {number}") for launch in launches.launches(nest)]


LAUNCHER = CopyLauncher()


def stored(value: Value, array: Any) -> list[Any]:
    """The launches that copy the elements of a Value to an array."""
    shape, strides = array.shape, broadcastStrides(value, array.shape)
    steps = tuple([s // array.dtype.itemsize for s in array.strides])
    if value.dtype == array.dtype:
        return LAUNCHER.copies(value, array, array.dtype, shape, strides, steps)
    loads = {"x": Operand(KINDS[named(value.dtype)], value, strides)}
    stores = {"y": Operand(KINDS[named(array.dtype)], array, steps)}
    work = stores["y"].kind if value.dtype.kind in "iub" and array.dtype.kind in "iu" else "f64"
    return launches.launches(LoopNest(shape, loads, (("y", Formula("x")),), stores, work))


def startsOf(plan: MemoryPlan) -> list[Any]:
    """The launches and library calls of a plan; works without a GPU."""
    native = [call.function for call in plan.schedule.calls if call.kind.isNative]
    ends = [launch for target, value in plan.copies for launch in stored(value, target.array)]
    return [*(task.what for step in native for task in step.works), *ends]


def moved(call: Call) -> list[Any] | None:
    """The launches that copy elements; None if these strides are not supported."""
    return COPYING[call.function](call, LAUNCHER) if call.function in COPYING else None
