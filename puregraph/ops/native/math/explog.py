"""Exponentials, logarithms, powers and hyperbolic functions as native code.

Range reduction: e^x = 2^n e^r with |r| <= ln(2) / 2, x = 2^e (1 + f) with 1 + f from sqrt(1/2) to sqrt(2); the rest
is a polynomial of least maximal relative error. Rarely used functions are computed in f64 and rounded.

Source    Cody, Waite 1980, Software Manual for the Elementary Functions
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, NamedTuple

from puregraph.ops.native.llvm.instructions import IRType, IRValue
from puregraph.ops.native.llvm.irbuilder import IRBuilder


class Real(NamedTuple):
    """The constants of a kind of float."""

    whole: str  # the integer kind of the same size
    digits: int  # bits of its fraction
    bias: int
    half: int  # the bits of sqrt(1/2)
    ln2: tuple[float, float]  # in two parts, the first exact in products with exponents
    least: float  # exp of smaller numbers is 0
    most: float  # exp of larger numbers is inf
    exp: tuple[float, ...]  # (exp(r) - 1 - r) / r^2
    log: tuple[float, ...]  # f32: (log(1 + f) - f + f^2 / 2) / f^3; f64: of (log(1 + f) / s - 2) / s^2, s = f / (2 + f)

    @property
    def magic(self) -> float:
        """The number whose addition rounds to an integer, which is then in the low bits."""
        return 1.5 * 2.0**self.digits


EXP32 = (1.38825232e-3, 8.36652056e-3, 4.16671998e-2, 1.66665436e-1, 4.99999982e-1)
LOG32: tuple[float, ...] = (6.74663083e-2, -1.16756429e-1, 1.18881617e-1, -1.24055903e-1, 1.42195526e-1)
LOG32 += (-1.66679958e-1, 2.00021186e-1, -2.50000096e-1, 3.33333126e-1)
TANH32: tuple[float, ...] = (6.37580982e-5, -5.79941193e-4, 2.59534516e-3, -8.12772253e-3, 2.15343623e-2)
TANH32 += (-5.38808978e-2, 1.33322082e-1, -3.3333283e-1)  # (tanh(x) / x - 1) / x^2 by x^2, for |x| < 1.22
EXP64: tuple[float, ...] = (2.0875330460756255e-9, 2.5108978966437507e-8, 2.7557402640676043e-7)
EXP64 += (2.7557244373920062e-6, 2.4801587172541835e-5, 1.9841269885966225e-4, 1.3888888888962368e-3)
EXP64 += (8.3333333333216915e-3, 4.1666666666666512e-2, 1.6666666666666677e-1, 0.5)
LOG64: tuple[float, ...] = (1.3262863392105129e-1, 1.3249327258090182e-1, 1.5387097895921292e-1, 1.8181776354227427e-1)
LOG64 += (2.2222222623790339e-1, 2.8571428569370272e-1, 4.0000000000004782e-1, 6.6666666666666663e-1)

REALS = {
    "f32": Real("i32", 23, 127, 0x3F3504F3, (0.693359375, -2.12194440e-4), -104.0, 89.0, EXP32, LOG32),
    "f64": Real(
        "i64",
        52,
        1023,
        0x3FE6A09E667F3BCD,
        (0.693147180369123816490, 1.90821492927058770002e-10),
        -746.0,
        710.0,
        EXP64,
        LOG64,
    ),
}
LN2 = {"f32": (0.693147182464599609375, -1.904654299957767878541e-9), "f64": (math.log(2), 2.319046813846299558e-17)}
Emission = Callable[..., IRValue]


def rounded(emission: Emission) -> Emission:
    """An emission for f64, extended to f32: computed in f64 and rounded."""

    @wraps(emission)
    def both(code: IRBuilder, *values: IRValue) -> IRValue:
        values = tuple(code.broadcast(*values))
        if values[0].kind == "f64":
            return emission(code, *values)
        return code.convert(emission(code, *[code.convert(v, "f64") for v in values]), values[0].kind)

    return both


def horner(code: IRBuilder, x: IRValue, coefficients: Sequence[float]) -> IRValue:
    """A polynomial by Horner's scheme, its highest coefficient first."""
    y: Any = coefficients[0]
    for c in coefficients[1:]:
        y = code.fma(y, x, c)
    return y


def clamped(code: IRBuilder, x: IRValue, low: float, high: float) -> IRValue:
    """x, but at least low and at most high; nan stays."""
    x = code.select(code.cast(low, x.type) > x, low, x)
    return code.select(code.cast(high, x.type) < x, high, x)


def shiftSigned(code: IRBuilder, x: IRValue, count: int) -> IRValue:
    """x / 2^count, rounded down."""
    return code.emit(f"ashr {x.type.text} {x.name}, {code.constant(count, x.type).name}", x.type)


def powerOfTwo(code: IRBuilder, n: IRValue, kind: str) -> IRValue:
    """2^n for integers n within the range of exponents."""
    real = REALS[kind]
    return code.bitcast((n + real.bias) << real.digits, kind)


def reduced(code: IRBuilder, x: IRValue) -> tuple[IRValue, IRValue]:
    """Range reduction: an integer n and r with x = n ln 2 + r, |r| <= ln(2) / 2."""
    real = REALS[x.kind]
    high, low = LN2[x.kind]
    t = code.fma(x, 1 / math.log(2), real.magic)
    n = t - real.magic
    r = code.fma(n, -low, code.fma(n, -high, x))
    return code.bitcast(t, real.whole) - bitsOf(real.magic, x.kind), r


def bitsOf(number: float, kind: str) -> int:
    """The bits of a power of two times 1.5."""
    exponent = math.frexp(number)[1] - 1
    real = REALS[kind]
    return ((exponent + real.bias) << real.digits) | (1 << (real.digits - 1))


def expm1Reduced(code: IRBuilder, r: IRValue) -> IRValue:
    """exp(r) - 1 for |r| <= ln(2) / 2."""
    return code.fma(r * r, horner(code, r, REALS[r.kind].exp), r)


def scaled(code: IRBuilder, y: IRValue, n: IRValue) -> IRValue:
    """y 2^n, in two steps, so that n may leave the range of exponents."""
    y, power = scaledFactors(code, y, n)
    return y * power


def scaledFactors(code: IRBuilder, y: IRValue, n: IRValue) -> tuple[IRValue, IRValue]:
    """y 2^n as the two factors of its last product."""
    half = shiftSigned(code, n, 1)
    return y * powerOfTwo(code, half, y.kind), powerOfTwo(code, n - half, y.kind)


def exp(code: IRBuilder, x: IRValue) -> IRValue:
    """exp x = 2ⁿ exp r with n = round(x / log 2), r = x - n log 2."""
    y, power = expFactors(code, x)
    return y * power


def expFactors(code: IRBuilder, x: IRValue) -> tuple[IRValue, IRValue]:
    """exp x as two factors."""
    real = REALS[x.kind]
    n, r = reduced(code, clamped(code, x, real.least, real.most))
    return scaledFactors(code, expm1Reduced(code, r) + 1.0, n)


def expBelow(code: IRBuilder, x: IRValue) -> IRValue:
    """exp(x) for x <= 1, in fewer steps: 0 where it would be denormal."""
    y, power = expNear(code, x)
    return code.select(x < (1 - REALS[x.kind].bias + 0.51) * math.log(2), 0.0, y * power)


def expNear(code: IRBuilder, x: IRValue) -> tuple[IRValue, IRValue]:
    """exp(x) as two factors, for x <= 1 whose exponential is not denormal."""
    real = REALS[x.kind]
    shift = real.magic + real.bias  # aligns the low bits with the power of two
    t = code.fma(x, 1 / math.log(2), shift)
    n = t - shift
    high, low = LN2[x.kind]
    y = expm1Reduced(code, code.fma(n, -low, code.fma(n, -high, x))) + 1.0
    return y, code.bitcast(code.bitcast(t, real.whole) << real.digits, x.kind)


def exp2(code: IRBuilder, x: IRValue) -> IRValue:
    """2ˣ = 2ⁿ exp(r log 2) with n = round(x), r = x - n."""
    real = REALS[x.kind]
    x = clamped(code, x, real.least / math.log(2), real.most / math.log(2))
    t = x + real.magic
    r = (x - (t - real.magic)) * math.log(2)
    return scaled(code, expm1Reduced(code, r) + 1.0, code.bitcast(t, real.whole) - bitsOf(real.magic, x.kind))


def expm1(code: IRBuilder, x: IRValue) -> IRValue:
    """2^n (e^r - 1) + (2^n - 1), by half of 2^n, which is always finite."""
    real = REALS[x.kind]
    n, r = reduced(code, clamped(code, x, -(real.digits + 3) * math.log(2), real.most))
    half = powerOfTwo(code, n - 1, x.kind)
    return code.fma(expm1Reduced(code, r), half, half - 0.5) * 2.0


def split(code: IRBuilder, x: IRValue) -> tuple[IRValue, IRValue]:
    """An integer e and f with x = 2^e (1 + f), 1 + f from sqrt(1/2) to sqrt(2), for x > 0 with a full fraction."""
    real = REALS[x.kind]
    b = code.bitcast(x, real.whole)
    e = shiftSigned(code, b - real.half, real.digits)
    return e, code.bitcast(b - (e << real.digits), x.kind) - 1.0


def upscaled(code: IRBuilder, x: IRValue) -> tuple[IRValue, IRValue]:
    """x with a normalised fraction, and the offset of its exponent."""
    real = REALS[x.kind]
    tiny = x < 2.0 ** (1 - real.bias)
    of = IRType(real.whole, x.lanes)
    return code.select(tiny, x * 2.0**real.digits, x), code.select(
        tiny, code.constant(-real.digits, of), code.constant(0, of)
    )


def logNear(code: IRBuilder, f: IRValue, e: IRValue | None = None, rest: IRValue | float = 0.0) -> IRValue:
    """log(1 + f) + e ln 2 for 1 + f from sqrt(1/2) to sqrt(2), e an integer as a float; `rest` is the error of f."""
    real = REALS[f.kind]
    high, low = real.ln2
    if f.kind == "f32":
        z = f * f
        y = z * f * horner(code, f, real.log)
        if e is not None:
            y = code.fma(e, low, y + rest)
        y = f + code.fma(z, -0.5, y)
        return y if e is None else code.fma(e, high, y)
    s = f / (f + 2.0)
    z = s * s
    rest = z * horner(code, z, real.log)
    square = f * f * 0.5
    if e is None:
        return f - (square - s * (square + rest))
    return code.fma(e, high, f - (square - code.fma(s, square + rest, e * low)))


def logEdges(code: IRBuilder, x: IRValue, y: IRValue) -> IRValue:
    """The logarithm y of x, also where x is 0, negative, inf or nan."""
    y = code.select(x < math.inf, y, x)
    y = code.select(x >= 0.0, y, math.nan)
    return code.select(x == 0.0, -math.inf, y)


def log(code: IRBuilder, x: IRValue) -> IRValue:
    """log x = e log 2 + log f with x = 2ᵉ f, f near 1."""
    full, more = upscaled(code, x)
    e, f = split(code, full)
    return logEdges(code, x, logNear(code, f, code.convert(e + more, x.kind)))


def log1p(code: IRBuilder, x: IRValue) -> IRValue:
    """With 1 + x = 2^e (1 + f), f = x 2^-e + (2^-e - 1)."""
    u = x + 1.0
    e, far = split(code, u)
    scale = powerOfTwo(code, code.select(u < 2.0**60, 0 - e, 0), x.kind)
    isNear, less = u < 2.0**60, scale - 1.0
    f = code.select(isNear, code.fma(x, scale, less), far)
    rest = code.select(isNear, code.fma(x, scale, less - f), 0.0)
    y = logEdges(code, u, logNear(code, f, code.convert(e, x.kind), rest))
    return code.select(x == 0.0, x, y)


def logarithm(base: float) -> Emission:
    """log to a base, exact for powers of two if that is the base."""

    @rounded
    def emission(code: IRBuilder, x: IRValue) -> IRValue:
        full, more = upscaled(code, x)
        e, f = split(code, full)
        y = logNear(code, f) * (1 / math.log(base))
        return logEdges(code, x, code.fma(code.convert(e + more, x.kind), math.log(2) / math.log(base), y))

    return emission


log2, log10 = logarithm(2.0), logarithm(10.0)


def precise(code: IRBuilder, x: IRValue) -> tuple[IRValue, IRValue]:
    """log(x) of f64 x > 0 as a sum of two, to some 2^-60."""
    full, more = upscaled(code, x)
    exponent, f = split(code, full)
    e = code.convert(exponent + more, "f64")
    below = f + 2.0
    s = f / below
    error = (code.fma(-s, below, f) - s * (f - (below - 2.0))) / below
    z = s * s
    double = s + s
    rest = s * (z * horner(code, z, LOG64))
    high = double + rest
    low = (rest - (high - double)) + (error + error)
    first, second = REALS["f64"].ln2
    lead = e * first
    total = lead + high
    part = total - lead
    low = (lead - (total - part)) + (high - part) + code.fma(e, second, low)
    rounded = total + low
    return rounded, low - (rounded - total)


def power64(code: IRBuilder, x: IRValue, y: IRValue) -> IRValue:
    """xʸ = exp(y log |x|) in float64, where the logarithm has two parts, so that large powers keep their digits."""
    a = code.call("fabs", x)
    high, low = precise(code, a)
    high = logEdges(code, a, high)
    p = y * high
    rest = code.fma(y, low, code.fma(y, high, -p))
    return powerEdges(code, x, y, code.select(code.call("fabs", p) < 1000.0, nudged(code, p, rest), exp(code, p)))


def nudged(code: IRBuilder, p: IRValue, rest: IRValue) -> IRValue:
    """exp(p + rest) for a tiny rest."""
    real = REALS["f64"]
    n, r = reduced(code, clamped(code, p, real.least, real.most))
    y = expm1Reduced(code, r)
    return scaled(code, y + code.fma(y, rest, rest) + 1.0, n)


def power32(code: IRBuilder, x: IRValue, y: IRValue) -> IRValue:
    """xʸ = exp(y log |x|) in float32, computed in float64."""
    wide, exponent = code.convert(x, "f64"), code.convert(y, "f64")
    p = exponent * log(code, code.call("fabs", wide))
    return powerEdges(code, x, y, code.convert(exp(code, p), "f32"))


def powerEdges(code: IRBuilder, x: IRValue, y: IRValue, magnitude: IRValue) -> IRValue:
    """x^y given |x|^y, also where x is negative, 1 or infinite, and where y is 0."""
    a, b = code.call("fabs", x), code.call("fabs", y)
    integral = code.call("floor", y) == y
    half = y * 0.5
    odd = integral & (code.call("floor", half) != half)
    negative = code.bitcast(x, REALS[x.kind].whole) < 0
    result = code.select(odd & negative, -magnitude, magnitude)
    result = code.select((x < 0.0) & (a < math.inf) & (b < math.inf) & ~integral, math.nan, result)
    result = code.select((a == 1.0) & (b == math.inf), 1.0, result)
    return code.select((y == 0.0) | (x == 1.0), 1.0, result)


def power(code: IRBuilder, x: IRValue, y: IRValue) -> IRValue:
    """xʸ with the special cases of C."""
    x, y = code.broadcast(x, y)
    return power64(code, x, y) if x.kind == "f64" else power32(code, x, y)


@rounded
def cbrt(code: IRBuilder, x: IRValue) -> IRValue:
    """By a logarithm, then one step of Newton."""
    a = code.call("fabs", x)
    y = exp(code, log(code, a) * (1 / 3))
    y = y - code.fma(y, y, -(a / y)) / (y * 3.0)
    return code.call("copysign", code.select((a > 0.0) & (a < math.inf), y, a), x)


@rounded
def hypot(code: IRBuilder, x: IRValue, y: IRValue) -> IRValue:
    """sqrt(x^2 + y^2), scaled by a power of two."""
    a, b = code.call("fabs", x), code.call("fabs", y)
    most = code.select(a > b, a, b)
    large, tiny = most > 2.0**500, most < 2.0**-500
    scale = code.select(large, 2.0**-600, code.select(tiny, code.constant(2.0**600, x.type), 1.0))
    back = code.select(large, 2.0**600, code.select(tiny, code.constant(2.0**-600, x.type), 1.0))
    a, b = a * scale, b * scale
    y = code.call("sqrt", code.fma(a, a, b * b)) * back
    return code.select((a == math.inf) | (b == math.inf), math.inf, y)


def tanh(code: IRBuilder, x: IRValue) -> IRValue:
    """-t / (t + 2) with t = exp(-2 |x|) - 1.

    In float32 it is an odd polynomial near 0, and 1 - 2 t / (1 + t) with t = exp(-2 |x|) further out: both round little
    more than once.
    """
    a = code.call("fabs", x)
    if x.kind == "f64":
        t = expm1(code, a * -2.0)
        return code.call("copysign", t / (t + 2.0), x)
    t = expBelow(code, a * -2.0)
    far = code.call("copysign", 1.0 - (t + t) / (t + 1.0), x)
    z = x * x
    return code.select(a < 1.0, code.fma(x * z, horner(code, z, TANH32), x), far)


@rounded
def sinh(code: IRBuilder, x: IRValue) -> IRValue:
    """sinh x = (t + t / (t + 1)) / 2 with t = exp(|x|) - 1, and the sign of x."""
    a = code.call("fabs", x)
    t = expm1(code, a)
    half = exp(code, a * 0.5)
    y = code.select(a < 20.0, (t + t / (t + 1.0)) * 0.5, half * 0.5 * half)
    return code.call("copysign", y, x)


@rounded
def cosh(code: IRBuilder, x: IRValue) -> IRValue:
    """cosh x = (t + 1/t) / 2 with t = exp(|x|)."""
    a = code.call("fabs", x)
    t = exp(code, a)
    half = exp(code, a * 0.5)
    return code.select(a < 20.0, (t + 1.0 / t) * 0.5, half * 0.5 * half)


@rounded
def arcsinh(code: IRBuilder, x: IRValue) -> IRValue:
    """arcsinh x = log1p(a + a² / (√(a² + 1) + 1)) with a = |x|, and the sign of x."""
    a = code.call("fabs", x)
    z = a * a
    y = log1p(code, a + z / (code.call("sqrt", z + 1.0) + 1.0))
    return code.call("copysign", code.select(a < 2.0**28, y, log(code, a) + math.log(2)), x)


@rounded
def arccosh(code: IRBuilder, x: IRValue) -> IRValue:
    """arccosh x = log1p(t + √(t² + 2t)) with t = x - 1."""
    t = x - 1.0
    y = log1p(code, t + code.call("sqrt", code.fma(t, t, t + t)))
    return code.select(x >= 1.0, code.select(x < 2.0**28, y, log(code, x) + math.log(2)), math.nan)


@rounded
def arctanh(code: IRBuilder, x: IRValue) -> IRValue:
    """arctanh x = log1p(2a / (1 - a)) / 2 with a = |x|, and the sign of x."""
    a = code.call("fabs", x)
    return code.call("copysign", log1p(code, (a + a) / (1.0 - a)) * 0.5, x)
