"""ComplexPair: complex numbers as two real arrays, on which numpy's functions keep the gradients of both."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from puregraph.core.errors import AutoDiffException
from puregraph.core.tracer import Tracer, astype, method
from puregraph.ops.tangents import nameOf

PARTWISE = {  # real functions that are linear in their first argument: of the real part and of the imaginary part
    *(operator.getitem, np.negative, np.positive, np.copy, np.sum, np.mean, np.cumsum, np.trace, np.diagonal, np.diff),
    *(np.reshape, np.ravel, np.squeeze, np.expand_dims, np.transpose, np.swapaxes, np.moveaxis, np.broadcast_to),
    *(np.flip, np.roll, np.fft.fftshift, np.fft.ifftshift, np.take, np.repeat, np.tile, np.tril, np.triu),
}
JOINS = {np.concatenate, np.stack, np.vstack, np.hstack}
BILINEAR = {np.multiply, np.matmul, np.dot, np.inner, np.outer, np.convolve}


class ComplexPair(Tracer):
    """z = real + i imag, with the parts as real arrays or Variables: what numpy's fft returns where a gradient flows.

    It takes arithmetic, `abs`, `np.angle`, `np.conj`, `np.exp`, products, sums, views, joins, and all of np.fft. A
    gradient is that of each part, as of any real array.

    Shapes    real and imag of one shape
    Raises    AutoDiffException for any other function: write it with `real` and `imag`

    >>> z = ComplexPair(np.array([3.0, 0.0]), np.array([4.0, 1.0]))
    >>> abs(z), (z * z).real
    (array([5., 1.]), array([-7., -1.]))
    """

    __slots__ = ("imag", "real")
    __hash__ = None  # type: ignore[assignment]  # equality is that of arrays

    def __init__(self, real: Any, imag: Any):
        self.real, self.imag = real, imag

    @property
    def shape(self) -> Any:  # type: ignore[override]
        return self.real.shape

    @property
    def dtype(self) -> np.dtype:
        return np.result_type(self.real.dtype, np.complex64)

    @property
    def carrier(self) -> Any:
        return self.real

    def handle(self, function: Callable[..., Any], arguments: tuple, options: dict[str, Any]) -> Any:
        if "out" not in options:
            if function in PARTWISE and isinstance(arguments[0], ComplexPair):
                z, others = arguments[0], arguments[1:]
                return ComplexPair(function(z.real, *others, **options), function(z.imag, *others, **options))
            if function in JOINS:
                pairs, others = [partsOf(z) for z in arguments[0]], arguments[1:]
                return ComplexPair(*[function(list(parts), *others, **options) for parts in zip(*pairs)])
            if function in BILINEAR:
                return bilinear(function, *arguments, **options)
            if function in RULES:
                return RULES[function](*arguments, **options)
        raise AutoDiffException(
            f"{nameOf(function)} of complex numbers has no gradient here: compute it from the parts, .real and .imag"
        )

    def __repr__(self) -> str:
        return f"ComplexPair({self.real!r}, {self.imag!r})"

    conj = conjugate = method(np.conjugate)
    __eq__ = method(np.equal)
    __ne__ = method(np.not_equal)


def partsOf(z: Any) -> tuple[Any, Any]:
    """The real and the imaginary part of a pair, an array or a number."""
    if isinstance(z, ComplexPair):
        return z.real, z.imag
    isComplex = isinstance(z, complex) or getattr(getattr(z, "dtype", None), "kind", "") == "c"
    return (np.real(z), np.imag(z)) if isComplex else (z, z * 0 if hasattr(z, "dtype") else 0)


def isReal(z: Any) -> bool:
    """Whether a factor has no imaginary part, by its type."""
    kind = getattr(getattr(z, "dtype", None), "kind", "")
    return not isinstance(z, (ComplexPair, complex)) and kind != "c"


def bilinear(function: Callable[..., Any], x: Any, y: Any, *others: Any, **options: Any) -> ComplexPair:
    """(a + ib)(c + id) = ac - bd + i (ad + bc), of any product."""
    (a, b), (c, d) = partsOf(x), partsOf(y)

    def times(u: Any, v: Any) -> Any:
        return function(u, v, *others, **options)

    if isReal(x):
        return ComplexPair(times(a, c), times(a, d))
    if isReal(y):
        return ComplexPair(times(a, c), times(b, c))
    return ComplexPair(times(a, c) - times(b, d), times(a, d) + times(b, c))


def added(x: Any, y: Any) -> ComplexPair:
    """The sums of the parts."""
    (a, b), (c, d) = partsOf(x), partsOf(y)
    return ComplexPair(a + c, b + d)


def divided(x: Any, y: Any) -> ComplexPair:
    """x conj(y) / |y|^2"""
    if isReal(y):
        a, b = partsOf(x)
        return ComplexPair(a / y, b / y)
    c, d = partsOf(y)
    square = c * c + d * d
    return bilinear(np.multiply, x, ComplexPair(c / square, -d / square))


def magnitude(z: ComplexPair) -> Any:
    """sqrt(re^2 + im^2), with a gradient of 0 at 0."""
    return np.linalg.norm(np.stack([z.real, z.imag]), axis=0)


def exponential(z: ComplexPair) -> ComplexPair:
    """exp(re) (cos im + i sin im)"""
    size = np.exp(z.real)
    return ComplexPair(size * np.cos(z.imag), size * np.sin(z.imag))


def power(z: Any, exponent: Any) -> ComplexPair:
    """z^n for an integer n of at least 1, by squaring."""
    if type(exponent) is not int or exponent < 1:
        raise AutoDiffException(f"power of complex numbers: wanted an integer exponent of at least 1, got {exponent}")
    if exponent == 1:
        return z
    half = power(z, exponent // 2)
    return half * half * z if exponent % 2 else half * half


def converted(z: ComplexPair, dtype: Any, copy: bool = True) -> ComplexPair:
    """The parts in the precision of another complex dtype."""
    if np.dtype(dtype).kind != "c":
        raise AutoDiffException(f"wanted a complex dtype, got {np.dtype(dtype)}: choose .real, .imag or abs(z)")
    kind = np.zeros(0, dtype).real.dtype
    return ComplexPair(z.real.astype(kind, copy=copy), z.imag.astype(kind, copy=copy))


RULES: dict[Any, Callable[..., Any]] = {
    np.add: added,
    np.subtract: lambda x, y: added(x, -y),
    np.true_divide: divided,
    np.square: lambda z: z * z,
    np.power: power,
    np.real: lambda z: z.real,
    np.imag: lambda z: z.imag,
    np.conjugate: lambda z: ComplexPair(z.real, -z.imag),
    np.absolute: magnitude,
    np.angle: lambda z: np.arctan2(z.imag, z.real),
    np.exp: exponential,
    np.shape: lambda z: z.shape,
    np.ndim: lambda z: z.ndim,
    np.size: lambda z: z.size,
    astype: converted,
}


def complexRefusal(label: str) -> AutoDiffException:
    """Return the error for a function that makes complex numbers of a real value that is being differentiated."""
    return AutoDiffException(
        f"{label} gives complex numbers, but a value that is being differentiated is real: calculate with "
        "ComplexPair(x, 0 * x) of puregraph.autodiff in place of x, or write a Function"
    )
