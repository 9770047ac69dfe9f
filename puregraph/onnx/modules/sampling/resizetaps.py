"""ResizeTaps: which elements of an axis a resized axis reads, and with which weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

ROUNDINGS: dict[str, Callable[..., Any]] = {
    "round_prefer_floor": lambda c, scale: np.ceil(c - np.float32(0.5)),
    "round_prefer_ceil": lambda c, scale: np.floor(c + np.float32(0.5)),
    "floor": lambda c, scale: np.floor(c),
    "ceil": lambda c, scale: np.ceil(c),
    "simple": lambda c, scale: np.ceil(c) if scale < 1 else np.floor(c),
}


class ResizeTaps(NamedTuple):
    """y[i] = sum over t of weight[i, t] x[index[i, t]]; `outside` are the i that are beyond x, and get no weight."""

    index: Any
    weight: Any
    outside: Any

    @classmethod
    def of(cls, size: int, length: int, scale: float, region: Any, options: Any) -> ResizeTaps:
        """The taps for `length` elements out of `size`, with the options of a ResizeAxes."""
        at = COORDINATES[options.coordinates](
            np.arange(length, dtype=np.float32), size, length, np.float32(scale), region
        )
        isCrop = options.coordinates == "tf_crop_and_resize"
        outside = ((at < 0) | (at > size - 1)) & isCrop
        if options.mode == "nearest":
            index = ROUNDINGS[options.rounding](at, scale).astype(np.int64)[:, None]
            weight = np.ones(index.shape)
        else:
            shrink = min(float(scale), 1.0) if options.antialias else 1.0
            reach = int(np.ceil((2 if options.mode == "cubic" else 1) / shrink))
            index = np.floor(at).astype(np.int64)[:, None] + np.arange(1 - reach, reach + 1)
            distance = np.abs(index - at[:, None].astype(np.float64)) * shrink
            weight = cubic(distance, options.cubicA) if options.mode == "cubic" else np.maximum(0, 1 - distance)
            if options.excludeOutside:
                weight = np.where((index < 0) | (index >= size), 0, weight)
            weight = weight / weight.sum(axis=1, keepdims=True)
        weight = np.where(outside[:, None], 0, weight)
        return cls(np.clip(index, 0, size - 1), weight, outside)

    def matrix(self, size: int, dtype: Any) -> Any:
        """M of y = M x."""
        found = np.zeros((len(self.index), size), dtype)
        np.add.at(found, (np.arange(len(self.index))[:, None], self.index), self.weight.astype(dtype))
        return found


def cubic(distance: Any, a: float) -> Any:
    """The kernel of cubic convolution, of R. Keys, Cubic convolution interpolation for digital images, 1981."""
    near = ((a + 2) * distance - (a + 3)) * distance**2 + 1
    far = ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
    return np.where(distance <= 1, near, np.where(distance < 2, far, 0))


def halfPixel(i: Any, size: int, length: int, scale: Any, region: Any) -> Any:
    """Positions are the centres of pixels."""
    return (i + np.float32(0.5)) / scale - np.float32(0.5)


def halfPixelSymmetric(i: Any, size: int, length: int, scale: Any, region: Any) -> Any:
    """The centres of both axes agree, where the length was rounded too."""
    offset = np.float32(size / 2 * (1 - length / (float(scale) * size)))
    return offset + halfPixel(i, size, length, scale, region)


def pytorchHalfPixel(i: Any, size: int, length: int, scale: Any, region: Any) -> Any:
    """As halfPixel, but a single element is the first."""
    return halfPixel(i, size, length, scale, region) if length > 1 else 0 * i


def alignCorners(i: Any, size: int, length: int, scale: Any, region: Any) -> Any:
    """The first and the last elements of both axes agree, as far as the length was not rounded."""
    return i * np.float32((size - 1) / span(size, length, scale)) if length > 1 else 0 * i


def asymmetric(i: Any, size: int, length: int, scale: Any, region: Any) -> Any:
    """Positions are the left edges of pixels."""
    return i / scale


def halfPixelOfNearest(i: Any, size: int, length: int, scale: Any, region: Any) -> Any:
    """Centres of pixels, as TensorFlow counts them for the nearest."""
    return (i + np.float32(0.5)) / scale


def cropAndResize(i: Any, size: int, length: int, scale: Any, region: Any) -> Any:
    """Between two positions, of which 0 is the first element and 1 the last."""
    start, end = np.float32(region[0]), np.float32(region[1])
    if length == 1:
        return 0 * i + np.float32(0.5) * (start + end) * (size - 1)
    return start * (size - 1) + i * ((end - start) * np.float32((size - 1) / span(size, length, scale)))


def span(size: int, length: int, scale: Any) -> float:
    """The length before it was rounded, less one."""
    exact = float(scale) * size
    return exact - 1 if int(exact * (1 + 1e-6)) == length and exact - length > 1e-5 * length else length - 1


COORDINATES = {
    "half_pixel": halfPixel,
    "half_pixel_symmetric": halfPixelSymmetric,
    "pytorch_half_pixel": pytorchHalfPixel,
    "align_corners": alignCorners,
    "asymmetric": asymmetric,
    "tf_half_pixel_for_nn": halfPixelOfNearest,
    "tf_crop_and_resize": cropAndResize,
}
