"""Error functions and normal quantiles as native code.

Source    W. J. Cody 1969, Rational Chebyshev approximations for the error function; M. J. Wichura 1988, AS 241
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from puregraph.ops.native.llvm.instructions import IRValue
from puregraph.ops.native.llvm.irbuilder import IRBuilder
from puregraph.ops.native.math.explog import REALS, exp, expNear, horner, log, rounded
from puregraph.ops.special import error, normal

# minimax polynomial (relative error) of exp(a^2) erfc(a) / t in t = 1 / (1 + a / 2), for all a whose erfc fits float32
TAIL: tuple[float, ...] = (-0.0591932686, 0.285182561, -0.488460406, 0.279512139, -0.0276231765, 0.203109837)
TAIL += (0.24299663, 0.282390066, 0.282085575)
ERFC_IS_ZERO_FROM = 10.5  # from here on erfc is 0


def ratio(code: IRBuilder, x: IRValue, above: Sequence[float], below: Sequence[float]) -> IRValue:
    """A ratio of two polynomials of x."""
    return horner(code, x, above) / horner(code, x, below)


def erfSingle(code: IRBuilder, x: IRValue) -> IRValue:
    """x + x times a polynomial of x^2 below 0.9, 1 - exp(a polynomial of |x|) above; from 4 on it is 1."""
    a, z = code.call("fabs", x), x * x
    small = code.fma(x, horner(code, z, error.NEAR), x)
    y, power = expNear(code, horner(code, code.select(code.cast(4.0, x.type) < a, 4.0, a), error.FAR))
    large = code.fma(-y, power, 1.0)
    return code.select(a >= 0.9, code.call("copysign", large, x), small)


def erfSmall(code: IRBuilder, x: IRValue) -> IRValue:
    """erf x = x P(x²) / Q(x²), for |x| up to 0.46875."""
    z = x * x
    return x * ratio(code, z, error.SMALL, error.SMALL_BELOW)


def scaledTail(code: IRBuilder, x: IRValue) -> IRValue:
    """exp(x^2) erfc(x) for x > 0.46875."""
    z = 1.0 / (x * x)
    far = (1.0 / math.sqrt(math.pi) - z * ratio(code, z, error.TAIL, error.TAIL_BELOW)) / x
    return code.select(x > 4.0, far, ratio(code, x, error.MIDDLE, error.MIDDLE_BELOW))


def expSquare(code: IRBuilder, x: IRValue, sign: float) -> IRValue:
    """exp(x^2), or exp(-x^2) for a negative sign: split into two factors, the first exact, to keep the relative
    accuracy."""
    x = code.select(x > 32.0, 32.0, code.select(x < -32.0, -32.0, x))
    near = code.call("trunc", x * 16.0) * 0.0625
    return exp(code, near * near * sign) * exp(code, (x - near) * (x + near) * sign)


def tailOf(code: IRBuilder, a: IRValue) -> IRValue:
    """erfc for a > 0.46875."""
    return scaledTail(code, a) * expSquare(code, a, -1.0)


def erf(code: IRBuilder, x: IRValue) -> IRValue:
    """erf x = 2/√π ∫ exp(-t²) dt from 0 to x."""
    if x.kind == "f32":
        return erfSingle(code, x)
    a = code.call("fabs", x)
    return code.select(a <= 0.46875, erfSmall(code, x), code.call("copysign", 1.0 - tailOf(code, a), x))


def erfcSingle(code: IRBuilder, x: IRValue) -> IRValue:
    """t exp(-a^2) times a polynomial of t = 1 / (1 + a / 2), in float64, as several factors would each be rounded."""
    a = code.call("fabs", x)
    below = code.fma(a, 0.5, 1.0)
    guess, wide = code.convert(1.0 / below, "f64"), code.convert(a, "f64")
    t = guess * (2.0 - guess * code.fma(wide, 0.5, 1.0))  # a step of Newton is quicker than a division
    y = t * horner(code, t, TAIL) * expQuick(code, -(wide * wide))
    y = code.select(a > ERFC_IS_ZERO_FROM, 0.0, y)
    return code.convert(code.select(x < 0.0, 2.0 - y, y), x.kind)


def expQuick(code: IRBuilder, x: IRValue) -> IRValue:
    """exp(x) of float64 to the digits of float32, for x from -150 to 0."""
    shift = REALS["f64"].magic + REALS["f64"].bias  # aligns the low bits with the power of two
    t = code.fma(x, 1 / math.log(2), shift)
    r = code.fma(t - shift, -math.log(2), x)
    y = code.fma(r * r, horner(code, r, REALS["f32"].exp), r) + 1.0
    return y * code.bitcast(code.bitcast(t, "i64") << REALS["f64"].digits, "f64")


def erfc(code: IRBuilder, x: IRValue) -> IRValue:
    """erfc x = 1 - erf x, to full precision where erf x is nearly 1."""
    return erfcSingle(code, x) if x.kind == "f32" else erfcDouble(code, x)


def erfcDouble(code: IRBuilder, x: IRValue) -> IRValue:
    """erfc x in float64: 1 - erf x near 0, the tail further out, 2 less the tail where x < 0."""
    a = code.call("fabs", x)
    tail = tailOf(code, a)
    return code.select(a <= 0.46875, 1.0 - erfSmall(code, x), code.select(x < 0.0, 2.0 - tail, tail))


@rounded
def erfcx(code: IRBuilder, x: IRValue) -> IRValue:
    """erfcx x = exp(x²) erfc x; where x < 0 it is 2 exp(x²) less that of -x."""
    a = code.call("fabs", x)
    tail = scaledTail(code, a)
    small = exp(code, x * x) * (1.0 - erfSmall(code, x))
    large = code.select(x < 0.0, 2.0 * expSquare(code, x, 1.0) - tail, tail)
    return code.select(a <= 0.46875, small, large)


def quantile(code: IRBuilder, q: IRValue, tail: IRValue) -> IRValue:
    """The normal quantile at 0.5 + q, with `tail` = 0.5 - |q| given to full relative accuracy."""
    r = code.call("sqrt", -log(code, tail))
    end, side = ratio(code, r - 5.0, normal.END, normal.END_BELOW), ratio(code, r - 1.6, normal.SIDE, normal.SIDE_BELOW)
    y = code.select(tail == 0.0, math.inf, code.select(r > 5.0, end, side))
    centre = q * ratio(code, 0.180625 - q * q, normal.CENTRE, normal.CENTRE_BELOW)
    return code.select(code.call("fabs", q) <= 0.425, centre, code.call("copysign", y, q))


@rounded
def ndtri(code: IRBuilder, p: IRValue) -> IRValue:
    """The x at which the normal distribution function is p."""
    complement = 1.0 - p
    return quantile(code, p - 0.5, code.select(p > complement, complement, p))


@rounded
def erfinv(code: IRBuilder, x: IRValue) -> IRValue:
    """The y with erf y = x: the normal quantile at (1 + x) / 2, over √2."""
    return quantile(code, x * 0.5, 0.5 - code.call("fabs", x) * 0.5) * math.sqrt(0.5)
