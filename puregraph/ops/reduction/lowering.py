"""Reduction lowering: the L2 norm of all gradients, and cumulative sums and the like."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from puregraph.ops.formula import Formula
from puregraph.ops.formula.loopnest import LoopNest, Operand, Reduce
from puregraph.ops.ir.elementlayout import canCopy, elementStrides, isReal, realOf
from puregraph.ops.ir.value import Call, Offset
from puregraph.ops.native.llvm.kernelcall import KernelCall
from puregraph.ops.native.nests.nestcode import nestCalls
from puregraph.ops.operation import op
from puregraph.ops.reduction import native
from puregraph.ops.reduction.cumulate import cumulate
from puregraph.ops.reduction.norm import norm

if TYPE_CHECKING:
    from puregraph.compile.lower.workspace import LoweringWorkspace

SQUARES = ("y0", Formula("square(x0)"))
ROOT = ("y1", Formula("sqrt(y0)"))
F32_PER_F64 = 2  # float32 elements per float64
ELEMENTS = {"float32": "f32", "float64": "f64", "int32": "i32", "int64": "i64"}


@op(norm).lower
def lowerNorm(call: Call, workspace: LoweringWorkspace) -> list[KernelCall] | None:
    """y = sqrt(sum x^2): a partial sum for each array, then their total, all in float64."""
    xs, (y,) = call.arguments, call.outs
    if not isReal(*xs) or any(s % x.dtype.itemsize for x in xs for s in x.strides):
        return None
    parts, works = workspace(F32_PER_F64 * len(xs)), []
    for i, x in enumerate(xs):
        sums = ("y1", Reduce("sum", "y0", frozenset(range(max(1, x.ndim)))))
        shape, steps = (x.shape, elementStrides(x)) if x.ndim else ((1,), (0,))
        to = Operand("f64", Offset(parts, 8 * i), (0,) * len(shape))
        nest = LoopNest(shape, {"x0": Operand(realOf(x), x, steps)}, (SQUARES, sums), {"y1": to}, "f64")
        works += nestCalls(nest, lambda count: workspace(F32_PER_F64 * count))
    lines = (("y0", Reduce("sum", "x0", frozenset([0]))), ROOT)
    nest = LoopNest((len(xs),), {"x0": Operand("f64", parts, (1,))}, lines, {"y1": Operand("f64", y, (0,))}, "f64")
    return [*works, *nestCalls(nest, lambda count: workspace(F32_PER_F64 * count))]


@op(cumulate).lower
def lowerCumulate(call: Call, workspace: LoweringWorkspace) -> list[KernelCall] | None:
    """Along any axis of floats or integers with any strides."""
    x, axis, kind, isExclusive, reverse = named(*call.arguments, **call.options)
    (y,) = call.outs
    element = ELEMENTS.get(y.dtype.name)
    if element is None or not canCopy(x, y):
        return None
    lines = native.linesOf(x.shape, elementStrides(x), elementStrides(y), axis % x.ndim, reverse)
    return native.cumulate(x, y, kind, element, lines, isExclusive)


def named(
    x: Any, axis: int, kind: str = "sum", exclusive: bool = False, reverse: bool = False
) -> tuple[Any, int, str, bool, bool]:
    """The arguments of a call, with those that were left out."""
    return x, axis, kind, exclusive, reverse
