"""The logarithm of the gamma function, its derivatives, and Bessel functions as native code.

They follow `special.gamma` and `special.bessel` step by step, in f64. Each lane has an order of its own; sums run as
far as the largest order among the lanes needs.

Source    Abramowitz, Stegun 1964, 6.1.15 to 6.1.41, 6.3.5, 6.3.18, 9.6.10, 9.7.1, 23.1.30
"""

from __future__ import annotations

import math

from puregraph.ops.native.llvm.instructions import IRValue
from puregraph.ops.native.llvm.irbuilder import IRBuilder
from puregraph.ops.native.math.explog import exp, horner, log, log1p, power64, rounded
from puregraph.ops.native.math.trig import circle, flipped, quarters
from puregraph.ops.special.bessel import ASYMPTOTIC_FROM, MAX_SERIES_ORDER
from puregraph.ops.special.flat import MAX_ORDERS
from puregraph.ops.special.gamma import BERNOULLI, HURWITZ, NEAR_TWO, STIRLING_ARGUMENT

SERIES = list(enumerate(BERNOULLI, start=1))[::-1]  # (k, B2k), the highest first


def halfTurns(code: IRBuilder, x: IRValue) -> tuple[IRValue, IRValue]:
    """Sine and cosine of pi (x - the nearest integer)."""
    n, *r = quarters(code, (x - code.call("rint", x)) * math.pi)
    sine, cosine = circle(code, *r)
    odd = (n & 1) != 0
    return flipped(code, code.select(odd, cosine, sine), n), flipped(code, code.select(odd, sine, cosine), n + 1)


@rounded
def lgamma(code: IRBuilder, x: IRValue) -> IRValue:
    """log |Γ(x)|; where x <= 0 by reflection: |Γ(x) Γ(1 - x)| = π / |sin πx|."""
    below = x <= 0.0
    z = code.select(below, 1.0 - x, x)
    isNear = z < STIRLING_ARGUMENT
    y = code.select(isNear, lgammaNear(code, code.select(isNear, z, 2.0)), lgammaFar(code, z))
    sine = code.call("fabs", halfTurns(code, x)[0])
    y = code.select(below, log(code, math.pi / sine) - y, y)
    return code.select(code.call("fabs", x) == math.inf, math.inf, y)


def lgammaFar(code: IRBuilder, z: IRValue) -> IRValue:
    """log Γ(z) = (z - 1/2) log z - z + log(2π)/2 + Σ B₂ₖ / (2k (2k - 1) z²ᵏ⁻¹), for large z."""
    series = horner(code, 1.0 / (z * z), [b / (2 * k * (2 * k - 1)) for k, b in SERIES]) / z
    return (z - 0.5) * log(code, z) - z + 0.5 * math.log(2 * math.pi) + series


def lgammaNear(code: IRBuilder, z: IRValue) -> IRValue:
    """The series about 1 and 2; from further away by recurrence."""
    one = code.constant(1.0, z.type)
    product = one
    for _ in range(int(STIRLING_ARGUMENT) - 2):
        high = z > 2.5
        z = z - code.select(high, one, 0.0)
        product = product * code.select(high, z, 1.0)
    tiny, low = z < 0.5, z < 1.5
    w = z - code.select(tiny, 0.0, code.select(low, one, 2.0))
    y = w * horner(code, w, NEAR_TWO) - code.select(low, log1p(code, w), 0.0)
    return y + code.select(tiny, -one, one) * log(code, code.select(tiny, z, product))


@rounded
def digamma(code: IRBuilder, x: IRValue) -> IRValue:
    """ψ(x) = log z - 1/(2z) - Σ B₂ₖ / (2k z²ᵏ) for large z; ψ(z) = ψ(z + 1) - 1/z, ψ(x) = ψ(1 - x) - π / tan πx."""
    sine, cosine = halfTurns(code, x)
    below = x <= 0.0
    z = code.select(below, 1.0 - x, x)
    y = code.select(below, cosine / sine * -math.pi, 0.0)
    for _ in range(int(STIRLING_ARGUMENT)):
        low = z < STIRLING_ARGUMENT
        y = y - code.select(low, 1.0 / z, 0.0)
        z = z + code.select(low, code.constant(1.0, z.type), 0.0)
    w = 1.0 / (z * z)
    y = y + log(code, z) - 0.5 / z - w * horner(code, w, [b / (2 * k) for k, b in SERIES])
    y = code.select((x < 0.0) & (x == code.call("rint", x)), math.nan, y)
    return code.select(x == 0.0, -1.0 / x, y)


def most(code: IRBuilder, x: IRValue) -> IRValue:
    """The largest of all lanes, as an integer."""
    return code.convert(code.reduce(x, lambda a, b: code.select(a > b, a, b)), "i64")


def factorial(code: IRBuilder, n: IRValue) -> IRValue:
    """n! of integers, as the product of 2, 3, ... n."""
    product = code.variable(code.constant(1.0, n.type))
    with code.loop(2, most(code, n) + 1, unroll=1) as k:
        factor = code.splat(code.convert(k, "f64"), n.lanes)
        product.value = product.value * code.select(factor <= n, factor, 1.0)
    return product.value


def isOdd(code: IRBuilder, n: IRValue) -> IRValue:
    """True for odd integers."""
    half = n * 0.5
    return code.call("floor", half) != half


def hurwitz(code: IRBuilder, s: IRValue, x: IRValue) -> IRValue:
    """The sum of (x + k)^-s over k = 0, 1, 2, ..., for x >= 0, s > 1."""
    total, argument = code.variable(code.constant(0.0, x.type)), code.variable(x)
    with code.loop(0, most(code, s) + int(STIRLING_ARGUMENT), unroll=1):
        z = argument.value
        low = z < s + STIRLING_ARGUMENT
        total.value = total.value + code.select(low, power64(code, z, -s), 0.0)
        argument.value = z + code.select(low, code.constant(1.0, x.type), 0.0)
    z = argument.value
    remainder, term, w = z / (s - 1.0) + 0.5, s / z, 1.0 / (z * z)
    for k, c in enumerate(HURWITZ, start=1):
        remainder = remainder + term * c
        term = term * ((s + (2 * k - 1)) * (s + 2 * k)) * w
    return total.value + code.select(z == math.inf, 0.0, power64(code, z, -s) * remainder)


@rounded
def polygamma(code: IRBuilder, n: IRValue, x: IRValue) -> IRValue:
    """The n-th derivative of digamma for whole n up to 149, else nan."""
    isOrder = (n >= 0.0) & (n < float(MAX_ORDERS)) & (n == code.call("floor", n))
    order = code.select(isOrder & (n > 0.0), n, 1.0)
    below = x < 0.0
    floor = code.call("floor", x)
    s = order + 1.0
    up = hurwitz(code, s, code.select(below, x - floor, code.call("fabs", x)))
    down = code.variable(code.constant(0.0, x.type))
    with code.when(most(code, code.select(below, code.constant(1.0, x.type), 0.0)) != 0):
        after = hurwitz(code, s, code.select(below, floor + 1.0 - x, 1.0))
        down.value = after - hurwitz(code, s, code.select(below, 1.0 - x, 1.0))
    sign = code.select(isOdd(code, order), code.constant(1.0, x.type), -1.0)
    y = sign * factorial(code, order) * (up + code.select(below, sign * down.value, 0.0))
    return code.select(isOrder, code.select(n == 0.0, digamma(code, x), y), math.nan)


@rounded
def ive(code: IRBuilder, n: IRValue, x: IRValue) -> IRValue:
    """exp(-|x|) I_n(x) for whole n up to 30, else nan."""
    n = code.call("fabs", n)
    isOrder = (n < MAX_SERIES_ORDER + 1.0) & (n == code.call("floor", n))
    n = code.select(isOrder, n, 0.0)
    one = code.constant(1.0, x.type)
    z, limit = code.call("fabs", x), n * n * 0.5 + ASYMPTOTIC_FROM
    isFar = z > limit
    near = code.select(isFar, 0.0, z)
    quarter, series = near * near * 0.25, code.variable(one)
    terms = most(code, limit) * 2
    with code.loop(0, terms, unroll=1) as i:
        k = code.splat(code.convert(terms - i, "f64"), x.lanes)
        series.value = series.value * quarter / (k * (k + n)) + 1.0
    y = power64(code, near * 0.5, n) / factorial(code, n) * series.value * exp(code, -near)
    far = code.variable(one)
    with code.loop(0, ASYMPTOTIC_FROM, unroll=1) as i:
        k = code.splat(code.convert(ASYMPTOTIC_FROM - i, "f64"), x.lanes)
        odd = k * 2.0 - 1.0
        far.value = 1.0 - far.value * (n * n * 4.0 - odd * odd) / (k * z * 8.0)
    y = code.select(isFar, far.value / code.call("sqrt", z * (2.0 * math.pi)), y)
    return code.select(isOrder, code.select((x < 0.0) & isOdd(code, n), -y, y), math.nan)
