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


def _erfSmall(x: np.ndarray) -> np.ndarray:
    z = x * x
    return x * horner(z, *SMALL) / horner(z, *SMALL_BELOW)


def _erfcLarge(x: np.ndarray) -> np.ndarray:
    """erfc for x > 0.46875."""
    y, tail = horner(x, *MIDDLE) / horner(x, *MIDDLE_BELOW), x > 4.0
    if tail.any():
        far = x[tail]
        z = 1.0 / (far * far)
        y[tail] = (1.0 / math.sqrt(math.pi) - z * horner(z, *TAIL) / horner(z, *TAIL_BELOW)) / far
    near = np.trunc(np.minimum(x, 32.0) * 16.0) / 16.0  # exp(-x^2) in two exact steps keeps the relative accuracy
    return np.exp(-near * near) * np.exp((near - x) * (near + x)) * y


# ---- lgamma and its derivatives: the series of Abramowitz and Stegun 6.1.41, 6.3.18, 6.4.12 from x >= 10 on


@special
def lgamma(x: np.ndarray) -> np.ndarray:
    """log |gamma(x)|, inf at 0, -1, -2, ...  Source: Abramowitz and Stegun 6.1.17, 6.1.15, 6.1.41."""
    sine = np.abs(np.sin(math.pi * (x - np.rint(x))))
    z, product = np.where(x <= 0, 1.0 - x, x), np.ones_like(x)
    for _ in range(int(LARGE)):
        low = z < LARGE
        product = product * np.where(low, z, 1.0)
        z = z + low
    series = horner(1.0 / (z * z), *(b / (2 * k * (2 * k - 1)) for k, b in _series())) / z
    y = (z - 0.5) * np.log(z) - z + 0.5 * math.log(2 * math.pi) + series - np.log(product)
    y = np.where(x <= 0, np.log(math.pi / sine) - y, y)
    return np.where(np.isinf(x), np.inf, y)


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
    return np.where((x < 0) & (x == np.rint(x)), np.nan, y)


@special
def trigamma(x: np.ndarray) -> np.ndarray:
    """The derivative of digamma.  Source: Abramowitz and Stegun 6.4.7, 6.4.6, 6.4.12."""
    z, sine = np.where(x <= 0, 1.0 - x, x), np.sin(math.pi * (x - np.rint(x)))
    y = 0.0
    for _ in range(int(LARGE)):
        low = z < LARGE
        y = y + low / (z * z)
        z = z + low
    w = 1.0 / (z * z)
    y = y + (1.0 + 0.5 / z + w * horner(w, *(b for _, b in _series()))) / z
    return np.where(x <= 0, (math.pi / sine) ** 2 - y, y)


def _series() -> list[tuple[int, float]]:
    """(k, B2k), the highest first."""
    return list(enumerate(BERNOULLI, start=1))[::-1]


def _cudaSeries(weight: Callable[[int], float]) -> str:
    """The same series in C, as a polynomial in w."""
    text = ""
    for k, b in _series():
        text = f"((T){b * weight(k)!r}{text and f' + w * {text}'})"
    return text


# CUDA has erf, erfc and lgamma, but not these; T stands for the type to compute in.
CUDA = {
    "digamma": f"""
__device__ static T digamma(T x) {{
  T y = 0;
  if (x <= 0) {{
    if (x < 0 && x == rint(x)) return (T)NAN;
    y = -(T){math.pi!r} / tan((T){math.pi!r} * (x - rint(x)));
    x = 1 - x;
  }}
  for (; x < (T){LARGE!r}; x += 1) y -= 1 / x;
  const T w = 1 / (x * x);
  return y + log(x) - (T)0.5 / x - w * {_cudaSeries(lambda k: 1 / (2 * k))};
}}""",
    "trigamma": f"""
__device__ static T trigamma(T x) {{
  if (x <= 0) {{
    const T s = (T){math.pi!r} / sin((T){math.pi!r} * (x - rint(x)));
    return s * s - trigamma(1 - x);
  }}
  T y = 0;
  for (; x < (T){LARGE!r}; x += 1) y += 1 / (x * x);
  const T w = 1 / (x * x);
  return y + (1 + (T)0.5 / x + w * {_cudaSeries(lambda k: 1.0)}) / x;
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
