"""Modified Bessel functions: near zero by Abramowitz and Stegun 9.6.10, far away by 9.7.1."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from puregraph.ops.special.flat import family

ASYMPTOTIC_FROM = 30  # from here on the asymptotic series reaches float64
MAX_SERIES_ORDER = 30  # beyond, factors of the series leave float64


@family
def ive(n: int, x: np.ndarray) -> np.ndarray:
    """exp(-|x|) I_n(x), I_n the modified Bessel function of the first kind, for n up to 30."""
    n = abs(n)
    if n > MAX_SERIES_ORDER:
        return np.full_like(x, np.nan)
    far, z = np.abs(x) > ASYMPTOTIC_FROM + n * n / 2, np.abs(x)
    near = np.where(far, 0.0, z)
    quarter = 0.25 * near * near
    series: Any = 1.0
    for k in range(int(ASYMPTOTIC_FROM + n * n / 2) * 2, 0, -1):
        series = 1.0 + series * quarter / (k * (k + n))
    y = (0.5 * near) ** n / math.factorial(n) * series * np.exp(-near)
    series = 1.0
    for k in range(ASYMPTOTIC_FROM, 0, -1):
        series = 1.0 - series * (4 * n * n - (2 * k - 1) ** 2) / (8.0 * k * z)
    y = np.where(far, series / np.sqrt(2.0 * math.pi * z), y)
    return np.where((x < 0) & (n % 2 == 1), -y, y)


CUDA = {  # T stands for the type to compute in
    "ive": f"""
__device__ static T ive(T n, T x) {{
  n = fabs(n);
  if (!(n < {MAX_SERIES_ORDER + 1} && n == rint(n))) return (T)NAN;
  const T z = fabs(x), sign = x < 0 && fmod(n, (T)2) != 0 ? -1 : 1, q = (T)0.25 * z * z;
  T y = 1;
  if (z > {ASYMPTOTIC_FROM} + n * n / 2) {{
    for (int k = {ASYMPTOTIC_FROM}; k > 0; k--) y = 1 - y * (4 * n * n - (T)((2 * k - 1) * (2 * k - 1))) / (8 * k * z);
    return sign * y / sqrt((T){2 * math.pi!r} * z);
  }}
  for (int k = 2 * (int)({ASYMPTOTIC_FROM} + n * n / 2); k > 0; k--) y = 1 + y * q / (k * (k + n));
  return sign * pow(z / 2, n) / tgamma(n + 1) * y * exp(-z);
}}""",
}
