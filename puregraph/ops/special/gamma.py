"""lgamma and its derivatives: from x = 10 on by the series of Abramowitz and Stegun 6.1.41, 6.3.18."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from puregraph.ops.special.flat import MAX_ORDERS, family, horner, special

BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510)  # B2, B4, ... B16
STIRLING_ARGUMENT = 10.0  # from here on, eight terms of the asymptotic series reach float64


def _series() -> list[tuple[int, float]]:
    """(k, B2k), the highest first."""
    return list(enumerate(BERNOULLI, start=1))[::-1]


@special
def lgamma(x: np.ndarray) -> np.ndarray:
    """log |gamma(x)|, inf at 0, -1, -2, ...  Source: Abramowitz and Stegun 6.1.17, 6.1.15, 6.1.33, 6.1.41."""
    z = np.where(x <= 0, 1.0 - x, x)
    y = np.where(z < STIRLING_ARGUMENT, _lgammaNear(np.where(z < STIRLING_ARGUMENT, z, 2.0)), _lgammaFar(z))
    sine = np.abs(np.sin(math.pi * (x - np.rint(x))))
    y = np.where(x <= 0, np.log(math.pi / sine) - y, y)
    return np.where(np.isinf(x), np.inf, y)


def _lgammaFar(z: np.ndarray) -> np.ndarray:
    series = horner(1.0 / (z * z), *(b / (2 * k * (2 * k - 1)) for k, b in _series())) / z
    return (z - 0.5) * np.log(z) - z + 0.5 * math.log(2 * math.pi) + series


def _lgammaNear(z: np.ndarray) -> np.ndarray:
    """The series about 1 and 2, the zeros of lgamma, where other sums cancel; other z are moved there by recurrence."""
    product = np.ones_like(z)
    for _ in range(int(STIRLING_ARGUMENT) - 2):
        high = z > 2.5
        z = z - high
        product = product * np.where(high, z, 1.0)
    tiny, low = z < 0.5, z < 1.5
    w = z - np.where(tiny, 0.0, np.where(low, 1.0, 2.0))
    y = w * horner(w, *NEAR_TWO) - np.where(low, np.log1p(w), 0.0)
    return y + np.where(tiny, -1.0, 1.0) * np.log(np.where(tiny, z, product))


@special
def digamma(x: np.ndarray) -> np.ndarray:
    """The derivative of lgamma.  Source: Abramowitz and Stegun 6.3.7, 6.3.5, 6.3.18."""
    z, y = np.where(x <= 0, 1.0 - x, x), np.where(x <= 0, -math.pi / np.tan(math.pi * (x - np.rint(x))), 0.0)
    for _ in range(int(STIRLING_ARGUMENT)):
        low = z < STIRLING_ARGUMENT
        y = y - low / z
        z = z + low
    w = 1.0 / (z * z)
    y = y + np.log(z) - 0.5 / z - w * horner(w, *(b / (2 * k) for k, b in _series()))
    return np.where(x == 0, -1.0 / x, np.where((x < 0) & (x == np.rint(x)), np.nan, y))


@family
def polygamma(n: int, x: np.ndarray) -> np.ndarray:
    """The n-th derivative of digamma: (-1)^(n+1) n! times the sum of (x + k)^-(n+1) over k = 0, 1, 2, ...

    For x < 0, with f = x - floor(x), it is the sum from f on, and that of (f - k)^-(n+1) for k = 1, ..., -floor(x).
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
    for _ in range(int(STIRLING_ARGUMENT) + s):
        low = x < STIRLING_ARGUMENT + s
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


def _cudaSeries(weight: Callable[[int], float]) -> str:
    """The same series in C, as a polynomial in w."""
    text = ""
    for k, b in _series():
        text = f"((T){b * weight(k)!r}{text and f' + w * {text}'})"
    return text


CUDA = {  # T stands for the type to compute in
    "digamma": f"""
__device__ static T digamma(T x) {{
  T y = 0;
  if (x <= 0) {{
    if (x == 0) return -1 / x;
    if (x == rint(x)) return (T)NAN;
    y = -(T){math.pi!r} / tan((T){math.pi!r} * (x - rint(x)));
    x = 1 - x;
  }}
  for (; x < (T){STIRLING_ARGUMENT!r}; x += 1) y -= 1 / x;
  const T w = 1 / (x * x);
  return y + log(x) - (T)0.5 / x - w * {_cudaSeries(lambda k: 1 / (2 * k))};
}}""",
    "hurwitz": f"""
__device__ static T hurwitz(T s, T x) {{
  const T c[] = {{{", ".join(map(repr, HURWITZ))}}};
  if (isinf(x)) return 0;
  T y = 0;
  for (; x < (T){STIRLING_ARGUMENT!r} + s; x += 1) y += pow(x, -s);
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
  if (!(n > 0 && n < {MAX_ORDERS} && n == rint(n))) return (T)NAN;
  const T sign = fmod(n, (T)2) != 0 ? 1 : -1, z = floor(x);
  if (!(x < 0)) return sign * tgamma(n + 1) * hurwitz(n + 1, fabs(x));
  const T down = hurwitz(n + 1, z + 1 - x) - hurwitz(n + 1, 1 - x);
  return sign * tgamma(n + 1) * (hurwitz(n + 1, x - z) + sign * down);
}}""",
}
