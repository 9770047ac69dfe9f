"""The error functions.  Source: W. J. Cody, Rational Chebyshev approximations for the error function, 1969."""

from __future__ import annotations

import math

import numpy as np

from puregraph.ops.special.flat import horner, special

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


# of least maximal relative error: erf(x) / x - 1 by x^2, and log erfc(x); for float32
NEAR = (-6.09036014e-4, 5.01196283e-3, -2.67789089e-2, 1.12821408e-1, -3.76125233e-1, 1.28379154e-1)
FAR: tuple[float, ...] = (-1.63622899e-5, 3.68881083e-4, -3.7950161e-3, 2.39645925e-2, -1.06231394e-1)
FAR += (-6.35444922e-1, -1.12836637, -8.49064296e-5)


def _erfSingle(x: np.ndarray) -> np.ndarray:
    """x + x times a polynomial of x^2 below 0.9, 1 - exp(a polynomial of |x|) above; from 4 on it is 1."""
    a, z = np.abs(x), x * x
    large = 1.0 - np.exp(horner(np.minimum(a, 4.0), *FAR))
    return np.where(a >= 0.9, np.copysign(large, x), x + x * horner(np.minimum(z, 1.0), *NEAR))


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
    """exp(x^2), or exp(-x^2): computed in two steps, the first of them exact, to keep the relative accuracy."""
    x = np.clip(x, -32.0, 32.0)
    near = np.trunc(x * 16.0) / 16.0
    return np.exp(sign * near * near) * np.exp(sign * (x - near) * (x + near))
