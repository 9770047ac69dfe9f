"""_ResizeTaps: the elements and weights that a resized axis reads."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from math import ceil, floor
from typing import Any, NamedTuple

import numpy as np

HALF = Fraction(1, 2)
MAX_NUMERATOR = 1 << 60  # numerators below fit int64
ROUNDINGS: dict[str, Callable[..., Any]] = {  # of positions n / d: an array of integers by an integer
    "round_prefer_floor": lambda n, d, scale: -((d - 2 * n) // (2 * d)),
    "round_prefer_ceil": lambda n, d, scale: (2 * n + d) // (2 * d),
    "floor": lambda n, d, scale: n // d,
    "ceil": lambda n, d, scale: -(-n // d),
    "simple": lambda n, d, scale: -(-n // d) if scale < 1 else n // d,
}


class _ResizeTaps(NamedTuple):
    """y[i] = sum over t of weight[i, t] x[index[i, t]]; `outside[i]` is True for positions beyond x, of weight 0."""

    index: Any
    weight: Any
    outside: Any

    @classmethod
    def of(cls, size: int, length: int, scale: Fraction, region: Any, options: Any) -> _ResizeTaps:
        """The taps for `length` elements out of `size`, with the options of a Resize; positions are exact."""
        n, d = positions(COORDINATES[options.coordinates], size, length, scale, region)
        isCrop = options.coordinates == "tf_crop_and_resize"
        outside = np.asarray(((n < 0) | (n > (size - 1) * d)) & isCrop, bool)
        if options.mode == "nearest":
            index = ROUNDINGS[options.rounding](n, d, scale)[:, None]
            weight = np.ones(index.shape)
        else:
            shrink = min(scale, Fraction(1)) if options.antialias else Fraction(1)
            reach = ceil((2 if options.mode == "cubic" else 1) / shrink)
            index = (n // d)[:, None] + np.arange(1 - reach, reach + 1)
            distance = (np.abs(index * d - n[:, None]) / d).astype(np.float64) * float(shrink)
            weight = cubic(distance, options.cubicA) if options.mode == "cubic" else np.maximum(0, 1 - distance)
            if options.excludeOutside:
                weight = np.where((index < 0) | (index >= size), 0, weight)
            weight = weight / weight.sum(axis=1, keepdims=True)
        weight = np.where(outside[:, None], 0, weight)
        return cls(np.clip(index, 0, size - 1).astype(np.int64), weight, outside)

    def matrix(self, size: int, dtype: Any) -> Any:
        """The matrix M of y = M x."""
        dense = np.zeros((len(self.index), size), dtype)
        np.add.at(dense, (np.arange(len(self.index))[:, None], self.index), self.weight.astype(dtype))
        return dense


def positions(coordinates: Callable, size: int, length: int, scale: Fraction, region: Any) -> tuple[Any, int]:
    """The positions of all elements in x, as integers and their common denominator."""
    if length == 0:
        return np.zeros(0, np.int64), 1
    start, step = (Fraction(v) for v in coordinates(size, length, scale, region))
    d = start.denominator * step.denominator
    first, stride = int(start * d), int(step * d)
    isSmall = 4 * (abs(first) + abs(stride) * length + (size + length) * d) < MAX_NUMERATOR
    return first + stride * np.arange(length, dtype=np.int64 if isSmall else object), d


def simplest(number: Any) -> Fraction:
    """The fraction of the smallest denominator that rounds to this float32: 1/3 for 0.33333334."""
    exact = float(np.float32(number))
    if exact == 0 or not np.isfinite(exact):
        return Fraction(exact)
    ends = [np.nextafter(np.float32(exact), np.float32(way)) for way in (-np.inf, np.inf)]
    reach = min(abs(Fraction(float(end)) - Fraction(exact)) for end in ends if np.isfinite(end)) / 2
    most = 1
    while abs(Fraction(exact).limit_denominator(most) - Fraction(exact)) >= reach:
        most *= 2
    low = most // 2
    while low + 1 < most:
        middle = (low + most) // 2
        isNear = abs(Fraction(exact).limit_denominator(middle) - Fraction(exact)) < reach
        low, most = (low, middle) if isNear else (middle, most)
    return Fraction(exact).limit_denominator(most)


def cubic(distance: Any, a: float) -> Any:
    """The kernel of cubic convolution, of R. Keys, Cubic convolution interpolation for digital images, 1981."""
    near = ((a + 2) * distance - (a + 3)) * distance**2 + 1
    far = ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
    return np.where(distance <= 1, near, np.where(distance < 2, far, 0))


def halfPixel(size: int, length: int, scale: Fraction, region: Any) -> tuple[Any, Any]:
    """Positions are the centres of pixels."""
    return HALF / scale - HALF, 1 / scale


def halfPixelSymmetric(size: int, length: int, scale: Fraction, region: Any) -> tuple[Any, Any]:
    """As halfPixel, moved so that the centres of both axes agree even if the length was rounded."""
    start, step = halfPixel(size, length, scale, region)
    return start + HALF * size * (1 - length / (scale * size)), step


def pytorchHalfPixel(size: int, length: int, scale: Fraction, region: Any) -> tuple[Any, Any]:
    """As halfPixel, but a single element is at the first."""
    return halfPixel(size, length, scale, region) if length > 1 else (0, 0)


def alignCorners(size: int, length: int, scale: Fraction, region: Any) -> tuple[Any, Any]:
    """The first and the last elements of both axes agree, except for the rounding of the length."""
    return (0, (size - 1) / span(size, length, scale)) if length > 1 else (0, 0)


def asymmetric(size: int, length: int, scale: Fraction, region: Any) -> tuple[Any, Any]:
    """Positions are the left edges of pixels."""
    return 0, 1 / scale


def halfPixelOfNearest(size: int, length: int, scale: Fraction, region: Any) -> tuple[Any, Any]:
    """Centres of pixels, without moving by half a pixel of x, as TensorFlow does for the nearest element."""
    return HALF / scale, 1 / scale


def cropAndResize(size: int, length: int, scale: Fraction, region: Any) -> tuple[Any, Any]:
    """Evenly spaced between two positions, where 0 is the first element and 1 the last."""
    start, end = map(simplest, region)
    if length == 1:
        return HALF * (start + end) * (size - 1), 0
    return start * (size - 1), (end - start) * (size - 1) / span(size, length, scale)


def span(size: int, length: int, scale: Fraction) -> Fraction:
    """Return the length before it was rounded, less one."""
    exact = scale * size
    return exact - 1 if floor(exact) == length else Fraction(length - 1)


COORDINATES = {
    "half_pixel": halfPixel,
    "half_pixel_symmetric": halfPixelSymmetric,
    "pytorch_half_pixel": pytorchHalfPixel,
    "align_corners": alignCorners,
    "asymmetric": asymmetric,
    "tf_half_pixel_for_nn": halfPixelOfNearest,
    "tf_crop_and_resize": cropAndResize,
}
