"""The sigmoid and tanh of recurrent cells as ratios, so that several of them share one division.

Arguments are clamped to +-BOUND, which changes no digit of the results; then the product of three denominators is
finite.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from puregraph.ops.native.llvm.instructions import IRValue
from puregraph.ops.native.llvm.irbuilder import IRBuilder
from puregraph.ops.native.math.explog import LN2, REALS, clamped, expm1Reduced

BOUND = {"f32": 28.0, "f64": 236.0}  # exp(3 BOUND) < 2^128, 2^1024


class Ratio(NamedTuple):
    """over / under, with under at least 1."""

    over: IRValue
    under: IRValue


def sigmoid(code: IRBuilder, x: IRValue) -> Ratio:
    """1 / (1 + exp(-x))."""
    return Ratio(code.constant(1.0, x.type), grown(code, -x)[0] + 1.0)


def tanh(code: IRBuilder, x: IRValue) -> Ratio:
    """-t / (2 + t), t = exp(-2x) - 1."""
    _, t = grown(code, x * -2.0)
    return Ratio(-t, t + 2.0)


def grown(code: IRBuilder, x: IRValue) -> tuple[IRValue, IRValue]:
    """exp x and exp x - 1: 2^n e^r with n = round(x / log 2), r = x - n log 2."""
    real = REALS[x.kind]
    x = clamped(code, x, -BOUND[x.kind], BOUND[x.kind])
    shift = real.magic + real.bias  # aligns the low bits with the power of two
    t = code.fma(x, 1 / math.log(2), shift)
    n, (high, low) = t - shift, LN2[x.kind]
    r = code.fma(n, -math.log(2), x) if x.kind == "f32" else code.fma(n, -low, code.fma(n, -high, x))
    power, growth = code.bitcast(code.bitcast(t, real.whole) << real.digits, x.kind), expm1Reduced(code, r)
    return code.fma(growth, power, power), code.fma(growth, power, power - 1.0)
