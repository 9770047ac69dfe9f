"""The gradient of a cross-entropy in the scores, from their probabilities.

cost = scale sum over n of -w_n ln p[n, k_n],   p[n, c] = exp(x[n, c] - peak[n]) / total[n]
dx[n, c] = (p[n, c] w_n - [c = k_n] w_n) scale
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from puregraph.ops.cuda.nests import launches
from puregraph.ops.cuda.runtime.launch import stridesOf
from puregraph.ops.formula import Formula
from puregraph.ops.formula.loopnest import LoopNest, Operand
from puregraph.ops.gather.reference import putClass
from puregraph.ops.kernel import ANYFLOATS, LIKEFIRST, compositeKernel

if TYPE_CHECKING:
    from types import NotImplementedType

    from puregraph.core.protocols import AnyArray
    from puregraph.ops.cuda.runtime.launch import Launch

KINDS = {"float16": "f16", "bfloat16": "bf16", "float32": "f32", "float64": "f64", "int64": "i64"}
SLOPE = "({} - where(axis1 == k, weight, 0)) * scale"


@compositeKernel
def entropyGrad(p, weight, index, scale):
    """dx = (p w - onehot(k) w) scale; index -1 means no class, and a position of weight 0 does not count.

    Shapes    p (n, classes, *spatial), weight and index (n, *spatial), scale () -> dx as p
    """
    return (p * weight[:, None] - putClass(weight, index, p.shape[1])) * scale


@entropyGrad.shape
def entropyGrad(p, weight, index, scale):
    """Shape and dtype of the probabilities."""
    return p.shape, p.dtype


@entropyGrad.cuda
def entropyGrad(dx, p, weight, index, scale):
    """One pass over the probabilities."""
    return launched(dx, SLOPE.format("p * weight"), {"p": p}, {"weight": weight, "k": index}, scale)


entropyGrad.declare(layout=LIKEFIRST, halves=ANYFLOATS)


def ofScores(
    dx: AnyArray, x: AnyArray, peak: Any, total: AnyArray, weight: AnyArray, index: AnyArray, scale: Any
) -> list[Launch] | NotImplementedType:
    """The same from scores and two values (n, 1, *spatial) of each position, so that no probabilities are stored."""
    slope = SLOPE.format("exp(x - peak) * (weight / total)")  # one quotient for all elements of a position
    return launched(dx, slope, {"x": x, "peak": peak, "total": total}, {"weight": weight, "k": index}, scale)


def launched(
    dx: AnyArray, slope: str, fullArrays: Mapping[str, Any], rows: Mapping[str, object], scale: Any
) -> list[Launch] | NotImplementedType:
    """The launches of a formula of arrays like dx, perhaps broadcast, of values of each position, and of a scale."""
    kinds = [KINDS.get(array.dtype.name) for array in (dx, *fullArrays.values(), *rows.values(), scale)]
    if None in kinds or scale.size != 1:
        return NotImplemented
    loads = {n: operand(v, [s if m > 1 else 0 for m, s in zip(v.shape, stridesOf(v))]) for n, v in fullArrays.items()}
    for n, v in rows.items():
        first, *others = stridesOf(v)
        loads[n] = operand(v, [first, 0, *others])
    loads["scale"] = operand(scale, [0] * len(dx.shape))
    stores = {"y": operand(dx, stridesOf(dx))}
    return launches.launches(
        LoopNest(dx.shape, loads, (("y", Formula(slope)),), stores, "f64" if "f64" in kinds else "f32")
    )


def operand(x: Any, strides: Any) -> Operand:
    """An array with its strides in elements."""
    return Operand(KINDS[x.dtype.name], x, tuple(strides))
