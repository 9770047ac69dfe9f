"""numpy's Fourier transforms of real arrays and ComplexPairs, by the kernel: derivatives in both modes."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from puregraph.core.errors import need
from puregraph.core.tracer import arrayLike
from puregraph.ops.fourier.complexpair import RULES, ComplexPair, partsOf
from puregraph.ops.fourier.reference import fourierSum
from puregraph.ops.operation import declared, op


def transformed(z, counts, axes, norm, sign):
    """The transform of z along axes, cut or padded to these counts."""
    need(min(counts, default=1) >= 1, "at least one element to transform", counts)
    parts = [resized(part, counts, axes) for part in partsOf(z)]
    if parts[0].dtype.itemsize < 4:
        parts = [part.astype(np.float32) for part in parts]
    y = fourierSum(np.stack(parts, -1), tuple(axes), sign)
    factor = scale(prod(counts), norm, sign)
    y = y if factor == 1 else y * factor
    return ComplexPair(y[..., 0], y[..., 1])


def scale(count, norm, sign):
    """The factor of a transform of `count` elements: 1 / n for one direction, or 1 / sqrt n for both."""
    need(norm in (None, "backward", "ortho", "forward"), 'norm "backward", "ortho" or "forward"', norm)
    if norm == "ortho":
        return count**-0.5
    return 1 / count if (norm == "forward") == (sign < 0) else 1


def resized(x, counts, axes):
    """x cut, or padded with zeros at its end, to these counts along axes."""
    for axis, count in zip(axes, counts):
        if x.shape[axis] > count:
            x = x[(slice(None),) * (axis % x.ndim) + (slice(count),)]
        elif x.shape[axis] < count:
            widths = [(0, 0)] * x.ndim
            widths[axis] = (0, count - x.shape[axis])
            x = np.pad(x, widths)
    return x


def extents(a, s, axes, isHalf=False):
    """(counts, axes) that numpy's s and axes mean; a half spectrum has 2 (m - 1) elements along its last axis."""
    axes = range(a.ndim - (a.ndim if s is None else len(s)), a.ndim) if axes is None else axes
    axes = [int(axis) % a.ndim for axis in axes]
    sizes = [a.shape[axis] for axis in axes]
    last = 2 * (sizes[-1] - 1) if isHalf else None
    counts = sizes if s is None else [n if count == -1 else int(count) for n, count in zip(sizes, s, strict=True)]
    return counts if last is None or s is not None else [*counts[:-1], last], axes


@op(np.fft.fftn).composed
def fftn(a, s=None, axes=None, norm=None):
    """The transform along several axes."""
    counts, axes = extents(a, s, axes)
    return transformed(a, counts, axes, norm, -1)


@op(np.fft.ifftn).composed
def ifftn(a, s=None, axes=None, norm=None):
    """The inverse transform along several axes."""
    counts, axes = extents(a, s, axes)
    return transformed(a, counts, axes, norm, 1)


@op(np.fft.rfftn).composed
def rfftn(a, s=None, axes=None, norm=None):
    """The transform of real values: along the last of the axes the first n // 2 + 1 elements."""
    counts, axes = extents(a, s, axes)
    y = transformed(a, counts, axes, norm, -1)
    return y[(slice(None),) * axes[-1] + (slice(counts[-1] // 2 + 1),)]


@op(np.fft.irfftn).composed
def irfftn(a, s=None, axes=None, norm=None):
    """The real values of a half spectrum: the real part of the inverse, with all but the first and middle twice."""
    counts, axes = extents(a, s, axes, isHalf=True)
    n, axis = counts[-1], axes[-1]
    a = a if len(axes) == 1 else transformed(a, counts[:-1], axes[:-1], norm, 1)
    kept = min(n // 2 + 1, a.shape[axis])
    a = a[(slice(None),) * axis + (slice(kept),)]
    twice: Any = np.full(kept, 2.0, partsOf(a)[0].dtype)
    twice[0] = 1
    if n % 2 == 0 and kept == n // 2 + 1:
        twice[-1] = 1
    twice = arrayLike(partsOf(a)[0], twice.reshape(-1, *[1] * (a.ndim - 1 - axis)))
    return transformed(a * twice, [n], [axis], norm, 1).real


def swapped(norm: Any) -> Any:
    """The norm that divides the opposite transform by the same number."""
    return {None: "forward", "backward": "forward", "forward": "backward"}.get(norm, norm)


@op(np.fft.hfft).composed
def hfft(a, n=None, axis=-1, norm=None):
    """The transform of a half spectrum of time, which is real."""
    return np.fft.irfft(np.conjugate(a), n, axis, swapped(norm))


@op(np.fft.ihfft).composed
def ihfft(a, n=None, axis=-1, norm=None):
    """The inverse of hfft."""
    return np.conjugate(np.fft.rfft(a, n, axis, swapped(norm)))


for name, several in (("fft", fftn), ("ifft", ifftn), ("rfft", rfftn), ("irfft", irfftn)):
    op(getattr(np.fft, name)).composed(
        lambda a, n=None, axis=-1, norm=None, several=several: several(a, None if n is None else (n,), (axis,), norm)
    )
    op(getattr(np.fft, f"{name}2")).composed(
        lambda a, s=None, axes=(-2, -1), norm=None, several=several: several(a, s, axes, norm)
    )
names = "fft ifft fft2 ifft2 fftn ifftn irfft irfft2 irfftn hfft"
RULES.update({f: declared(f, "composed") for f in (getattr(np.fft, name) for name in names.split())})
