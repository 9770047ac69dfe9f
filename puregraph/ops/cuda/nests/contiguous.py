"""Copies of strided arrays without gaps, for kernels that need contiguous ones."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from puregraph.ops.cuda.nests.launches import launches
from puregraph.ops.cuda.runtime.launch import Launch, Scratch, isContiguous, stridesOf
from puregraph.ops.cuda.runtime.preprocess import named
from puregraph.ops.formula import Formula
from puregraph.ops.formula.loopnest import LoopNest, Operand

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

    from puregraph.core.protocols import AnyArray, Strided

KINDS = {"bool": "bool", "float16": "f16", "bfloat16": "bf16", "float32": "f32", "float64": "f64"}
KINDS |= {f"{sign}int{bits}": f"{sign or 'i'}{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}


def kindOf(dtype: DTypeLike) -> str:
    """The dtype's name in a nest."""
    return KINDS[named(dtype)]


def operandOf(x: Strided) -> Operand:
    """An array as an operand of a nest over its own shape."""
    return Operand(kindOf(x.dtype), x, tuple(s if n > 1 else 0 for n, s in zip(x.shape, stridesOf(x))))


def copied(y: Any, x: Any) -> list[Launch]:
    """The launches of y = x, for arrays of equal shape and any strides, with equal dtypes or both floats."""
    kinds = {kindOf(x.dtype), kindOf(y.dtype)}
    computed = "f64" if "f64" in kinds else "f32" if kinds & {"f16", "bf16"} else kindOf(x.dtype)
    return launches(
        LoopNest(tuple(x.shape), {"x": operandOf(x)}, (("y", Formula("x")),), {"y": operandOf(y)}, computed)
    )


def packed(arrays: Iterable[AnyArray]) -> tuple[list[Launch], list[Any]]:
    """The launches that copy arrays with gaps, and the arrays, with contiguous copies in place of these. None stays
    None."""
    made: list[Launch] = []
    results: list[Any] = []
    for x in arrays:
        if x is None or isContiguous(x):
            results.append(x)
        else:
            results.append(Scratch(x.shape, x.dtype))
            made += copied(results[-1], x)
    return made, results
