"""GridTaps: which elements along one axis a position between them reads, with which weights."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

A = -0.75  # the parameter of Keys's kernel


class GridTaps(NamedTuple):
    """Index, weight, and the weight's derivative by the coordinate, each (taps, ...); -1 is outside, and weighs 0."""

    index: np.ndarray
    weight: np.ndarray
    slope: np.ndarray

    @classmethod
    @np.errstate(invalid="ignore")  # of what is no number or endless
    def of(cls, grid: np.ndarray, size: int, mode: str, padding: str, alignCorners: bool) -> GridTaps:
        """The taps for coordinates from -1 to 1 along an axis."""
        scale = (size - 1) / 2 if alignCorners else size / 2
        position = grid * scale + (size - 1) / 2
        low, high = (0.0, size - 1.0) if alignCorners else (-0.5, size - 0.5)
        factor = np.full_like(position, scale)
        if mode != "cubic" and padding != "zeros":
            position, sign = padded(position, size, low, high, padding)
            factor *= sign
        first, weight, slope = KERNELS[mode](position)
        index = first + np.arange(len(weight)).reshape(-1, *[1] * grid.ndim)
        if mode == "cubic" and padding != "zeros":
            index, _ = padded(index, size, low, high, padding)
        outside = (index < 0) | (index > size - 1)
        index = np.where(outside, -1, np.where(np.isnan(index), 0, index)).astype(np.int64)
        return cls(index, np.where(outside, 0, weight), np.where(outside, 0, slope * factor))


def padded(position: np.ndarray, size: int, low: float, high: float, padding: str) -> tuple[np.ndarray, np.ndarray]:
    """The position inside of the axis that stands for one outside, and its derivative by that."""
    sign = np.ones_like(position)
    if padding == "reflection":
        position, sign = reflected(position, low, high)
    sign = np.where((position <= 0) | (position >= size - 1), 0, sign)
    return np.clip(position, 0, size - 1), sign


def reflected(position: np.ndarray, low: float, high: float) -> tuple[np.ndarray, np.ndarray]:
    """The position mirrored at both ends until it is between them, and its derivative."""
    span = high - low
    if span == 0:
        return np.zeros_like(position), np.zeros_like(position)
    away, sign = np.abs(position - low), np.where(position < low, -1, 1).astype(position.dtype)
    flips, rest = np.floor(away / span), np.fmod(away, span)
    isOdd = flips % 2 == 1
    return np.where(isOdd, span - rest, rest) + low, np.where(isOdd, -sign, sign)


def nearest(p: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The nearest element, of two the even one."""
    weight = np.where(np.isnan(p), p, 1)[None]
    return np.rint(p), weight, np.zeros_like(weight)


def linear(p: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The elements below and above, by their distance."""
    first = np.floor(p)
    t = p - first
    one = np.ones_like(t)
    return first, np.stack([1 - t, t]), np.stack([-one, one])


def cubic(p: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Two elements on each side by Keys's kernel: (a+2)|t|^3 - (a+3)|t|^2 + 1 within 1, a(|t|^3 - 5|t|^2 + 8|t| - 4)
    within 2.

    Source    Keys 1981, Cubic convolution interpolation for digital image processing, eq. (15)
    """
    first = np.floor(p)
    t = p - first
    weight = np.stack([far(t + 1), near(t), near(1 - t), far(2 - t)])
    slope = np.stack([farSlope(t + 1), nearSlope(t), -nearSlope(1 - t), -farSlope(2 - t)])
    return first - 1, weight, slope


def near(s: np.ndarray) -> np.ndarray:
    """Keys's kernel at a distance of at most 1."""
    return ((A + 2) * s - (A + 3)) * s * s + 1


def nearSlope(s: np.ndarray) -> np.ndarray:
    """Its derivative."""
    return (3 * (A + 2) * s - 2 * (A + 3)) * s


def far(s: np.ndarray) -> np.ndarray:
    """Keys's kernel at a distance from 1 to 2."""
    return ((A * s - 5 * A) * s + 8 * A) * s - 4 * A


def farSlope(s: np.ndarray) -> np.ndarray:
    """Its derivative."""
    return (3 * A * s - 10 * A) * s + 8 * A


KERNELS = {"nearest": nearest, "linear": linear, "cubic": cubic}
