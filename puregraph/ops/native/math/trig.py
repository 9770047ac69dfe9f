"""Trigonometric functions and their inverses as native code.

Range reduction by Cody and Waite: multiples of pi / 2, a sum of three constants, are subtracted until |r| <= pi / 4;
beyond `FAR` the C library is called, lane by lane.

Source    Cody, Waite 1980, Software Manual for the Elementary Functions
"""

from __future__ import annotations

import math

from puregraph.ops.native.llvm.instructions import IRType, IRValue
from puregraph.ops.native.llvm.irbuilder import IRBuilder
from puregraph.ops.native.math.explog import REALS, horner, rounded

QUARTER = {
    "f32": (1.57079637050628662109375, -4.37113882867379e-8, -1.71512451000634e-15),
    "f64": (1.5707963267948966, 6.123233995736766e-17, -1.4973849048591833e-33),
}
FAR = {"f32": 2.0**15, "f64": 2.0**20}
SINE = {
    "f32": (2.71734184e-6, -1.98392608e-4, 8.33332933e-3, -1.66666666e-1),
    "f64": (
        -7.5780783461048338e-13,
        1.605835882963515e-10,
        -2.5052104900097839e-8,
        2.755731921440783e-6,
        -1.9841269841256191e-4,
        8.3333333333333245e-3,
        -1.6666666666666666e-1,
    ),
}
COSINE = {
    "f32": (-2.72371038e-7, 2.4799911e-5, -1.38888855e-3, 4.16666666e-2),
    "f64": (
        4.7410800209550636e-14,
        -1.147036482019072e-11,
        2.0876755050323739e-9,
        -2.7557319218661127e-7,
        2.4801587301579712e-5,
        -1.3888888888888885e-3,
        4.1666666666666664e-2,
    ),
}
ARCTAN: tuple[float, ...] = (-1.2927608285435504e-2, 2.9571861657574954e-2, -4.0541604307323925e-2)
ARCTAN += (4.7056475804995404e-2, -5.2556360557302589e-2, 5.8816439973554804e-2, -6.6666197433706553e-2)
ARCTAN += (7.6923055497790965e-2, -9.0909090257307812e-2, 1.1111111109866356e-1, -1.4285714285700807e-1)
ARCTAN += (1.9999999999999932e-1, -3.3333333333333331e-1)
ARCSIN: tuple[float, ...] = (3.2741483896193677e-2, -2.106005804162827e-2, 2.1656878689536002e-2)
ARCSIN += (3.7700243474664071e-3, 1.0750760692927894e-2, 1.1406698302293107e-2, 1.3979523139739811e-2)
ARCSIN += (1.7351752625038297e-2, 2.2372205133791824e-2, 3.0381943138356373e-2, 4.464285716374379e-2)
ARCSIN += (7.4999999999844247e-2, 1.6666666666666702e-1)
REST = 6.123233995736766e-17  # pi / 2 minus its float64


def quarters(code: IRBuilder, x: IRValue) -> tuple[IRValue, IRValue, IRValue]:
    """Range reduction: an integer n, r and its rounding error, with x = n pi / 2 + r + rest."""
    real = REALS[x.kind]
    first, second, third = QUARTER[x.kind]
    t = code.fma(x, 2 / math.pi, real.magic)
    n = t - real.magic
    reduced = code.fma(n, -first, x)  # exact
    part = n * second
    r = reduced - part
    gone = r - reduced
    rest = (reduced - (r - gone)) - (part + gone)  # exactly the rounding error of r
    return code.bitcast(t, real.whole), r, code.fma(n, -third, rest - code.fma(n, second, -part))


def circle(code: IRBuilder, r: IRValue, rest: IRValue) -> tuple[IRValue, IRValue]:
    """Sine and cosine of r + rest, for |r| <= pi / 4 and a rest below the rounding error of r."""
    z = r * r
    sine = r + code.fma(z * r, horner(code, z, SINE[r.kind]), rest)
    half = z * 0.5
    most = 1.0 - half
    low = code.fma(r, -rest, 1.0 - most - half)
    return sine, most + code.fma(z * z, horner(code, z, COSINE[r.kind]), low)


def flipped(code: IRBuilder, x: IRValue, n: IRValue) -> IRValue:
    """x with its sign changed where bit 1 of n is set."""
    integerKind = REALS[x.kind].whole
    bits = code.bitcast(x, integerKind) ^ ((n & 2) << (REALS[x.kind].digits + {"i32": 7, "i64": 10}[integerKind]))
    return code.bitcast(bits, x.kind)


def anyOf(code: IRBuilder, condition: IRValue) -> IRValue:
    """True if the condition holds in any lane."""
    if condition.lanes == 1:
        return condition
    name = f"@llvm.vector.reduce.or.{condition.type.suffix}"
    code.declare(f"declare i1 {name}({condition.type.text})")
    return code.emit(f"call i1 {name}({condition.type.text} {condition.name})", IRType("i1"))


def withFar(code: IRBuilder, x: IRValue, y: IRValue, function: str) -> IRValue:
    """y, or the C library's result for large |x|."""
    result = code.variable(y)
    far = ~(code.call("fabs", x) <= FAR[x.kind])
    with code.when(anyOf(code, far)):
        result.value = code.select(far, code.call(function, x), y)
    return result.value


def sin(code: IRBuilder, x: IRValue) -> IRValue:
    """sin x from x = n pi / 2 + r: n modulo 4 selects sin r, cos r, -sin r or -cos r."""
    n, *r = quarters(code, x)
    sine, cosine = circle(code, *r)
    return withFar(code, x, flipped(code, code.select((n & 1) != 0, cosine, sine), n), "sin")


def cos(code: IRBuilder, x: IRValue) -> IRValue:
    """cos x = sin(x + π/2): one quarter turn further than sin."""
    n, *r = quarters(code, x)
    sine, cosine = circle(code, *r)
    return withFar(code, x, flipped(code, code.select((n & 1) != 0, sine, cosine), n + 1), "cos")


@rounded
def tan(code: IRBuilder, x: IRValue) -> IRValue:
    """tan x = sin r / cos r in even quarter turns, -cos r / sin r in odd ones."""
    n, *r = quarters(code, x)
    sine, cosine = circle(code, *r)
    odd = (n & 1) != 0
    near = code.select(odd, -cosine, sine) / code.select(odd, sine, cosine)
    result = code.variable(near)
    far = ~(code.call("fabs", x) <= FAR[x.kind])
    with code.when(anyOf(code, far)):
        result.value = code.select(far, code.call("sin", x) / code.call("cos", x), near)
    return result.value


def arctanOf(code: IRBuilder, a: IRValue) -> IRValue:
    """The angle with tangent a >= 0: about that of 0, 1 or infinity, whichever is next."""
    steep, middle = a > 1 + math.sqrt(2), a > math.sqrt(2) - 1
    above = code.select(steep, -1.0, code.select(middle, a - 1.0, a))
    below = code.select(steep, a, code.select(middle, a + 1.0, code.constant(1.0, a.type)))
    base = code.select(steep, math.pi / 2, code.select(middle, code.constant(math.pi / 4, a.type), 0.0))
    rest = code.select(steep, REST, code.select(middle, code.constant(REST / 2, a.type), 0.0))
    t = above / below
    z = t * t
    return base + (t + code.fma(z * t, horner(code, z, ARCTAN), rest))


@rounded
def arctan(code: IRBuilder, x: IRValue) -> IRValue:
    """arctan x, an odd function: that of |x| with the sign of x."""
    return code.call("copysign", arctanOf(code, code.call("fabs", x)), x)


@rounded
def atan2(code: IRBuilder, y: IRValue, x: IRValue) -> IRValue:
    """The angle of the point (x, y)."""
    a, b = code.call("fabs", y), code.call("fabs", x)
    flat = (a == 0.0) | (b == math.inf) & (a < math.inf)
    even = (a == math.inf) & (b == math.inf)
    angle = arctanOf(code, code.select(even, 1.0, code.select(flat, code.constant(0.0, a.type), a / b)))
    left = code.bitcast(x, "i64") < 0
    angle = code.select(left, (math.pi - angle) + 2 * REST, angle)
    return code.call("copysign", code.select((x == x) & (y == y), angle, math.nan), y)


def arcsinParts(code: IRBuilder, a: IRValue) -> tuple[IRValue, IRValue, IRValue, IRValue]:
    """For a in [0, 1]: (a > 1/2, s = sqrt((1 - a) / 2) if so, else a, arcsin s - s, the rounding error of s)."""
    large = a > 0.5
    half = (1.0 - a) * 0.5
    z = code.select(large, half, a * a)
    root = code.call("sqrt", half)
    s = code.select(large, root, a)
    lacks = code.select(large & (root > 0.0), code.fma(-root, root, half) / (root + root), 0.0)
    return large, s, z * s * horner(code, z, ARCSIN), lacks


@rounded
def arcsin(code: IRBuilder, x: IRValue) -> IRValue:
    """arcsin x, an odd function; for large a = |x| it is π/2 - 2 arcsin √((1 - a) / 2)."""
    a = code.call("fabs", x)
    large, s, more, lacks = arcsinParts(code, a)
    far = math.pi / 2 - (2.0 * s - (REST - 2.0 * (more + lacks)))
    return code.call("copysign", code.select(large, far, s + more), x)


@rounded
def arccos(code: IRBuilder, x: IRValue) -> IRValue:
    """arccos x = π/2 - arcsin x; for large |x| 2 arcsin √((1 - |x|) / 2), or π less that where x < 0."""
    a = code.call("fabs", x)
    large, s, more, lacks = arcsinParts(code, a)
    double = 2.0 * (s + (more + lacks))
    far = code.select(x < 0.0, math.pi - (double - 2 * REST), double)
    signed, rest = code.call("copysign", s, x), code.call("copysign", more, x)
    return code.select(large, far, math.pi / 2 - (signed - (REST - rest)))
