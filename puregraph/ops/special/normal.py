"""The normal quantile, and erfinv.  Source: M. J. Wichura, Algorithm AS 241, Applied Statistics 37, 1988."""

from __future__ import annotations

import math

import numpy as np

from puregraph.ops.special.flat import horner, special

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
    """The x below which a standard normal variable stays with probability p.  Source: Wichura 1988."""
    return _quantile(p - 0.5, np.minimum(p, 1.0 - p))


@special
def erfinv(x: np.ndarray) -> np.ndarray:
    """The y with erf(y) = x.  Source: Wichura 1988."""
    return _quantile(0.5 * x, 0.5 - 0.5 * np.abs(x)) * math.sqrt(0.5)
