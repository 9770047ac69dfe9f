"""Special functions that numpy lacks, to about 1e-15 in float64, with CUDA twins where CUDA lacks them too.

The results have the dtype of the argument; the work is done in float64, in blocks that stay in the cache.
"""

from __future__ import annotations

import functools
import importlib
import math
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from puregraph.device import isDeviceArray, toHost

BLOCK = 8192
BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510)  # B2, B4, ... B16
LARGE = 10.0  # from here on, eight terms of the asymptotic series reach float64
ORDERS = 150  # of polygamma and ive; n! leaves float64 soon after


Rule = Callable[[np.ndarray], np.ndarray]


def special(rule: Rule, single: Rule | None = None) -> Callable[[Any], Any]:
    """A function of flat float64 arrays (and its `single` precision twin), made to take any shape and float type."""

    @functools.wraps(rule)
    def function(x: Any) -> Any:
        if isDeviceArray(x):
            return onDevice(function, x)
        x = np.asarray(x)
        y = np.empty(x.shape, x.dtype if x.dtype.kind == "f" else np.float64)
        work, compute = (np.float32, single) if single and y.itemsize <= 4 else (np.float64, rule)
        source, target = x.reshape(-1), y.reshape(-1)
        with np.errstate(all="ignore"):
            for start in range(0, x.size, BLOCK):
                target[start : start + BLOCK] = compute(source[start : start + BLOCK].astype(work))
        return y[()]

    return function


def family(rule: Callable[[int, np.ndarray], np.ndarray]) -> Callable[[Any, Any], Any]:
    """A function of a whole number n and of flat float64 arrays, made to take any shapes; nan for another n."""

    def one(n: float, x: Any) -> Any:
        return special(functools.partial(rule, int(n)))(x) if abs(n) < ORDERS and n == int(n) else x * np.nan

    @functools.wraps(rule)
    def function(n: Any, x: Any) -> Any:
        if isDeviceArray(x) or isDeviceArray(n):
            return sys.modules["cupy"].asarray(function(toHost(n), toHost(x)))
        if np.ndim(n) == 0:
            return one(float(n), x)
        y = np.full(np.broadcast_shapes(np.shape(n), np.shape(x)), np.nan, np.result_type(x, np.float16))
        for order in np.unique(n):
            np.copyto(y, one(float(order), x), where=n == order)
        return y

    return function


def onDevice(function: Callable[[Any], Any], x: Any) -> Any:
    """CuPy's own function of a CuPy array; where it has none, ours of a copy on the host."""
    try:
        library = importlib.import_module("cupyx.scipy.special")  # comes with CuPy, and takes a while to load
    except ImportError:
        library = None
    name = function.__name__
    twin = getattr(library, "gammaln" if name == "lgamma" else name, None)
    return twin(x) if twin else sys.modules["cupy"].asarray(function(toHost(x)))


def horner(x: Any, *coefficients: float) -> Any:
    """A polynomial, its highest coefficient first."""
    y = x * coefficients[0]
    for c in coefficients[1:-1]:
        y += c
        y *= x
    y += coefficients[-1]
    return y


# ---- erf, erfc: W. J. Cody, Rational Chebyshev approximations for the error function, Math. Comp. 23, 1969

SMALL = (
    1.85777706184603153e-1,
    3.16112374387056560,
    1.13864154151050156e2,
    3.77485237685302021e2,
    3.20937758913846947e3,
)
SMALL_BELOW = (
    1.0,
    2.36012909523441209e1,
    2.44024637934444173e2,
    1.28261652607737228e3,
    2.84423683343917062e3,
)
MIDDLE: tuple[float, ...] = (
    2.15311535474403846e-8,
    5.64188496988670089e-1,
    8.88314979438837594,
    6.61191906371416295e1,
    2.98635138197400131e2,
)
MIDDLE += (8.81952221241769090e2, 1.71204761263407058e3, 2.05107837782607147e3, 1.23033935479799725e3)
MIDDLE_BELOW: tuple[float, ...] = (
    1.0,
    1.57449261107098347e1,
    1.17693950891312499e2,
    5.37181101862009858e2,
    1.62138957456669019e3,
)
MIDDLE_BELOW += (3.29079923573345963e3, 4.36261909014324716e3, 3.43936767414372164e3, 1.23033935480374942e3)
TAIL: tuple[float, ...] = (1.63153871373020978e-2, 3.05326634961232344e-1, 3.60344899949804439e-1)
TAIL += (1.25781726111229246e-1, 1.60837851487422766e-2, 6.58749161529837803e-4)
TAIL_BELOW: tuple[float, ...] = (1.0, 2.56852019228982242, 1.87295284992346725)
TAIL_BELOW += (5.27905102951428412e-1, 6.05183413124413191e-2, 2.33520497626869185e-3)


# erf(x) / x as a rational function of x^2 for |x| < 3.92, beyond which erf is 1 in float32: fitted to least maximal
# relative error, 2e-8; with the rounding of float32, 4e-7 is measured
SINGLE = (2.050058896e-6, 2.848648569e-4, 3.765164411e-3, 5.274729290e-2, 0.1903970191, 1.1283791463)
SINGLE_BELOW = (3.809048584e-5, 1.162411565e-3, 1.496831324e-2, 0.1141050440, 0.5020677082, 1.0)


def _erfSingle(x: np.ndarray) -> np.ndarray:
    x = np.clip(x, -3.92, 3.92)
    z = x * x
    return np.clip(x * horner(z, *SINGLE) / horner(z, *SINGLE_BELOW), -1.0, 1.0)


def _erfDouble(x: np.ndarray) -> np.ndarray:
    y, small = np.copysign(1.0, x), np.abs(x) <= 0.46875
    y[small] = _erfSmall(x[small])
    y[~small] -= y[~small] * _erfcLarge(np.abs(x[~small]))
    return y


erf = special(_erfDouble, _erfSingle)
erf.__doc__ = "erf(x) = 2 / sqrt(pi) * integral of exp(-t^2) from 0 to x.  Source: Cody 1969."


@special
def erfc(x: np.ndarray) -> np.ndarray:
    """erfc(x) = 1 - erf(x), with full relative accuracy where it is tiny.  Source: Cody 1969."""
    y, small = np.empty_like(x), np.abs(x) <= 0.46875
    y[small] = 1.0 - _erfSmall(x[small])
    large = x[~small]
    tail = _erfcLarge(np.abs(large))
    y[~small] = np.where(large < 0, 2.0 - tail, tail)
    return y


@special
def erfcx(x: np.ndarray) -> np.ndarray:
    """exp(x^2) erfc(x), which decays as 1 / x where erfc underflows.  Source: Cody 1969."""
    y, small = np.empty_like(x), np.abs(x) <= 0.46875
    y[small] = np.exp(x[small] ** 2) * (1.0 - _erfSmall(x[small]))
    large = x[~small]
    tail = _scaledTail(np.abs(large))
    y[~small] = np.where(large < 0, 2.0 * _expSquare(large, 1.0) - tail, tail)
    return y


def _erfSmall(x: np.ndarray) -> np.ndarray:
    z = x * x
    return x * horner(z, *SMALL) / horner(z, *SMALL_BELOW)


def _erfcLarge(x: np.ndarray) -> np.ndarray:
    """erfc for x > 0.46875."""
    return _scaledTail(x) * _expSquare(x, -1.0)


def _scaledTail(x: np.ndarray) -> np.ndarray:
    """exp(x^2) erfc(x) for x > 0.46875."""
    y, tail = horner(x, *MIDDLE) / horner(x, *MIDDLE_BELOW), x > 4.0
    if tail.any():
        far = x[tail]
        z = 1.0 / (far * far)
        y[tail] = (1.0 / math.sqrt(math.pi) - z * horner(z, *TAIL) / horner(z, *TAIL_BELOW)) / far
    return y


def _expSquare(x: np.ndarray, sign: float) -> np.ndarray:
    """exp(x^2), or with a minus: in two steps, of which the first is exact, it keeps the relative accuracy."""
    x = np.clip(x, -32.0, 32.0)
    near = np.trunc(x * 16.0) / 16.0
    return np.exp(sign * near * near) * np.exp(sign * (x - near) * (x + near))


# ---- the normal quantile: M. J. Wichura, Algorithm AS 241, Applied Statistics 37, 1988

CENTRE: tuple[float, ...] = (2.5090809287301226727e3, 3.3430575583588128105e4, 6.7265770927008700853e4)
CENTRE += (4.5921953931549871457e4, 1.3731693765509461125e4, 1.9715909503065514427e3)
CENTRE += (1.3314166789178437745e2, 3.3871328727963666080)
CENTRE_BELOW: tuple[float, ...] = (5.2264952788528545610e3, 2.8729085735721942674e4, 3.9307895800092710610e4)
CENTRE_BELOW += (
    2.1213794301586595867e4,
    5.3941960214247511077e3,
    6.8718700749205790830e2,
    4.2313330701600911252e1,
    1.0,
)
SIDE: tuple[float, ...] = (7.74545014278341407640e-4, 2.27238449892691845833e-2, 2.41780725177450611770e-1)
SIDE += (1.27045825245236838258, 3.64784832476320460504, 5.76949722146069140550)
SIDE += (4.63033784615654529590, 1.42343711074968357734)
SIDE_BELOW: tuple[float, ...] = (1.05075007164441684324e-9, 5.47593808499534494600e-4, 1.51986665636164571966e-2)
SIDE_BELOW += (
    1.48103976427480074590e-1,
    6.89767334985100004550e-1,
    1.67638483018380384940,
    2.05319162663775882187,
    1.0,
)
END: tuple[float, ...] = (2.01033439929228813265e-7, 2.71155556874348757815e-5, 1.24266094738807843860e-3)
END += (2.65321895265761230930e-2, 2.96560571828504891230e-1, 1.78482653991729133580)
END += (5.46378491116411436990, 6.65790464350110377720)
END_BELOW: tuple[float, ...] = (2.04426310338993978564e-15, 1.42151175831644588870e-7, 1.84631831751005468180e-5)
END_BELOW += (7.86869131145613259100e-4, 1.48753612908506148525e-2, 1.36929880922735805310e-1)
END_BELOW += (5.99832206555887937690e-1, 1.0)


def _quantile(q: np.ndarray, tail: np.ndarray) -> np.ndarray:
    """The normal quantile at 0.5 + q, with `tail` = 0.5 - |q| given to full relative accuracy."""
    r = np.sqrt(-np.log(tail))
    y = np.where(r > 5.0, _ratio(r - 5.0, END, END_BELOW), _ratio(r - 1.6, SIDE, SIDE_BELOW))
    y = np.where(tail == 0, np.inf, y)
    return np.where(np.abs(q) <= 0.425, q * _ratio(0.180625 - q * q, CENTRE, CENTRE_BELOW), np.copysign(y, q))


def _ratio(x: np.ndarray, above: tuple[float, ...], below: tuple[float, ...]) -> np.ndarray:
    return horner(x, *above) / horner(x, *below)


@special
def ndtri(p: np.ndarray) -> np.ndarray:
    """The x below which a standard normal number stays with probability p.  Source: Wichura 1988."""
    return _quantile(p - 0.5, np.minimum(p, 1.0 - p))


@special
def erfinv(x: np.ndarray) -> np.ndarray:
    """The y with erf(y) = x.  Source: Wichura 1988."""
    return _quantile(0.5 * x, 0.5 - 0.5 * np.abs(x)) * math.sqrt(0.5)


# ---- lgamma and its derivatives: the series of Abramowitz and Stegun 6.1.41, 6.3.18 from x >= 10 on


def _series() -> list[tuple[int, float]]:
    """(k, B2k), the highest first."""
    return list(enumerate(BERNOULLI, start=1))[::-1]


@special
def lgamma(x: np.ndarray) -> np.ndarray:
    """log |gamma(x)|, inf at 0, -1, -2, ...  Source: Abramowitz and Stegun 6.1.17, 6.1.15, 6.1.33, 6.1.41."""
    z = np.where(x <= 0, 1.0 - x, x)
    y = np.where(z < LARGE, _lgammaNear(np.where(z < LARGE, z, 2.0)), _lgammaFar(z))
    sine = np.abs(np.sin(math.pi * (x - np.rint(x))))
    y = np.where(x <= 0, np.log(math.pi / sine) - y, y)
    return np.where(np.isinf(x), np.inf, y)


def _lgammaFar(z: np.ndarray) -> np.ndarray:
    series = horner(1.0 / (z * z), *(b / (2 * k * (2 * k - 1)) for k, b in _series())) / z
    return (z - 0.5) * np.log(z) - z + 0.5 * math.log(2 * math.pi) + series


def _lgammaNear(z: np.ndarray) -> np.ndarray:
    """The series about 1 and 2, where lgamma is 0, which no other sum would hit; from further away by recurrence."""
    product = np.ones_like(z)
    for _ in range(int(LARGE) - 2):
        high = z > 2.5
        z = z - high
        product = product * np.where(high, z, 1.0)
    tiny, low = z < 0.5, z < 1.5
    w = z - np.where(tiny, 0.0, np.where(low, 1.0, 2.0))
    y = w * horner(w, *NEAR_TWO) - np.where(low, np.log1p(w), 0.0)
    return y + np.log(np.where(tiny, 1.0 / z, product))


@special
def digamma(x: np.ndarray) -> np.ndarray:
    """The derivative of lgamma.  Source: Abramowitz and Stegun 6.3.7, 6.3.5, 6.3.18."""
    z, y = np.where(x <= 0, 1.0 - x, x), np.where(x <= 0, -math.pi / np.tan(math.pi * (x - np.rint(x))), 0.0)
    for _ in range(int(LARGE)):
        low = z < LARGE
        y = y - low / z
        z = z + low
    w = 1.0 / (z * z)
    y = y + np.log(z) - 0.5 / z - w * horner(w, *(b / (2 * k) for k, b in _series()))
    return np.where(x == 0, -1.0 / x, np.where((x < 0) & (x == np.rint(x)), np.nan, y))


@family
def polygamma(n: int, x: np.ndarray) -> np.ndarray:
    """The n-th derivative of digamma: (-1)^(n+1) n! times the sum of (x + k)^-(n+1) over k = 0, 1, 2, ...

    Below zero the sum is that from x's fraction f up, and that of (f - k)^-(n+1) from 1 to where x is.
    """
    if n <= 0:
        return np.full_like(x, np.nan) if n else digamma(x)
    y, sign, low = hurwitz(n + 1, np.abs(x)), -((-1.0) ** n), x < 0
    z, floor = x[low], np.floor(x[low])
    up, down = hurwitz(n + 1, z - floor), hurwitz(n + 1, floor + 1.0 - z) - hurwitz(n + 1, 1.0 - z)
    y[low] = up + sign * down
    return sign * math.factorial(n) * y


def hurwitz(s: int, x: np.ndarray) -> np.ndarray:
    """The sum of (x + k)^-s over k = 0, 1, 2, ..., for x >= 0, s > 1.  Source: Abramowitz and Stegun 23.1.30."""
    y = np.zeros_like(x)
    for _ in range(int(LARGE) + s):
        low = x < LARGE + s
        y = y + np.where(low, x**-s, 0.0)
        x = x + low
    tail, term, w = x / (s - 1) + 0.5, s / x, 1.0 / (x * x)
    for k, c in enumerate(HURWITZ, start=1):
        tail = tail + c * term
        term = term * ((s + 2 * k - 1) * (s + 2 * k)) * w
    return y + np.where(np.isinf(x), 0.0, x**-s * tail)


HURWITZ = [b / math.factorial(2 * k) for k, b in enumerate(BERNOULLI, start=1)]
NEAR_TWO = [(-1.0) ** k / k * float(hurwitz(k, np.float64(2.0))) for k in range(28, 1, -1)]
NEAR_TWO += [float(digamma(2.0))]


# ---- modified Bessel functions: Abramowitz and Stegun 9.6.10 near zero, 9.7.1 far away


@family
def ive(n: int, x: np.ndarray) -> np.ndarray:
    """exp(-|x|) I_n(x), I_n the modified Bessel function of the first kind."""
    n = abs(n)
    far, z = np.abs(x) > FAR + n * n / 2, np.abs(x)
    near = np.where(far, 0.0, z)
    quarter = 0.25 * near * near
    series: Any = 1.0
    for k in range(int(FAR + n * n / 2) * 2, 0, -1):
        series = 1.0 + series * quarter / (k * (k + n))
    y = (0.5 * near) ** n / math.factorial(n) * series * np.exp(-near)
    series = 1.0
    for k in range(FAR, 0, -1):
        series = 1.0 - series * (4 * n * n - (2 * k - 1) ** 2) / (8.0 * k * z)
    y = np.where(far, series / np.sqrt(2.0 * math.pi * z), y)
    return np.where((x < 0) & (n % 2 == 1), -y, y)


FAR = 30  # from here on the asymptotic series reaches float64


def _cudaSeries(weight: Callable[[int], float]) -> str:
    """The same series in C, as a polynomial in w."""
    text = ""
    for k, b in _series():
        text = f"((T){b * weight(k)!r}{text and f' + w * {text}'})"
    return text


# CUDA has erf, erfc, erfcx, erfinv, normcdfinv and lgamma, but not these; T stands for the type to compute in.
CUDA = {
    "digamma": f"""
__device__ static T digamma(T x) {{
  T y = 0;
  if (x <= 0) {{
    if (x == 0) return -1 / x;
    if (x == rint(x)) return (T)NAN;
    y = -(T){math.pi!r} / tan((T){math.pi!r} * (x - rint(x)));
    x = 1 - x;
  }}
  for (; x < (T){LARGE!r}; x += 1) y -= 1 / x;
  const T w = 1 / (x * x);
  return y + log(x) - (T)0.5 / x - w * {_cudaSeries(lambda k: 1 / (2 * k))};
}}""",
    "hurwitz": f"""
__device__ static T hurwitz(T s, T x) {{
  const T c[] = {{{", ".join(map(repr, HURWITZ))}}};
  if (isinf(x)) return 0;
  T y = 0;
  for (; x < (T){LARGE!r} + s; x += 1) y += pow(x, -s);
  T tail = x / (s - 1) + (T)0.5, term = s / x;
  for (int k = 1; k <= {len(HURWITZ)}; k++) {{
    tail += c[k - 1] * term;
    term *= (s + 2 * k - 1) * (s + 2 * k) / (x * x);
  }}
  return y + pow(x, -s) * tail;
}}""",
    "polygamma": f"""
__device__ static T polygamma(T n, T x) {{
  if (n == 0) return digamma(x);
  if (!(n > 0 && n < {ORDERS} && n == rint(n))) return (T)NAN;
  const T sign = fmod(n, (T)2) != 0 ? 1 : -1, z = floor(x);
  if (!(x < 0)) return sign * tgamma(n + 1) * hurwitz(n + 1, fabs(x));
  const T down = hurwitz(n + 1, z + 1 - x) - hurwitz(n + 1, 1 - x);
  return sign * tgamma(n + 1) * (hurwitz(n + 1, x - z) + sign * down);
}}""",
    "ive": f"""
__device__ static T ive(T n, T x) {{
  n = fabs(n);
  if (!(n < {ORDERS} && n == rint(n))) return (T)NAN;
  const T z = fabs(x), sign = x < 0 && fmod(n, (T)2) != 0 ? -1 : 1, q = (T)0.25 * z * z;
  T y = 1;
  if (z > {FAR} + n * n / 2) {{
    for (int k = {FAR}; k > 0; k--) y = 1 - y * (4 * n * n - (T)((2 * k - 1) * (2 * k - 1))) / (8 * k * z);
    return sign * y / sqrt((T){2 * math.pi!r} * z);
  }}
  for (int k = 2 * (int)({FAR} + n * n / 2); k > 0; k--) y = 1 + y * q / (k * (k + n));
  return sign * pow(z / 2, n) / tgamma(n + 1) * y * exp(-z);
}}""",
    "modulo": """
__device__ static T modulo(T a, T b) {  // the sign of b, as Python and numpy have it
  const T m = fmod(a, b);
  return m != 0 ? ((m < 0) != (b < 0) ? m + b : m) : copysign((T)0, b);
}""",
}
CUDA_LIMITS = """
#ifndef INFINITY
#define INFINITY __int_as_float(0x7f800000)
#endif
#ifndef NAN
#define NAN __int_as_float(0x7fffffff)
#endif
"""
