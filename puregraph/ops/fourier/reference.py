"""Fourier: the discrete Fourier transform of pairs (real part, imaginary part), which are the last axis."""

from __future__ import annotations

import numpy as np

from puregraph.core.base.widen import widened
from puregraph.core.shape import normalAxis
from puregraph.ops.kernel import kernel


@kernel
@widened
def fourierSum(x, axes, sign=-1):
    """y[k] = sum over n of x[n] exp(sign 2 pi i k n / N) along each of the axes, without a factor.

    It is linear, and its adjoint is itself with the other sign.

    Shapes    x (..., 2), real and imaginary part -> y the same
    Raises    ValueError if an axis has no elements
    Source    Cooley, Tukey 1965, An algorithm for the machine calculation of complex Fourier series
    """
    axes = [normalAxis(axis, x.ndim - 1) for axis in axes]
    z = x[..., 0] + 1j * x[..., 1]
    y = np.fft.fftn(z, axes=axes) if sign < 0 else np.fft.ifftn(z, axes=axes, norm="forward")
    return np.stack([y.real, y.imag], -1).astype(x.dtype, copy=False)


@fourierSum.shape
def fourierSum(x, axes, sign=-1):
    """y has the shape and dtype of x."""
    return x.shape, x.dtype


@fourierSum.flops
def fourierSum(y, x, axes, sign=-1):
    """5 N log2 N / 2 for each axis, of N elements with two parts."""
    return sum(5 * x.size // 2 * max(1, x.shape[:-1][axis].bit_length()) for axis in axes)


@fourierSum.adjoint
def fourierSum(g, y, x, axes, sign=-1):
    """The gradient, transformed with the other sign."""
    return fourierSum(g, axes, -sign)


@fourierSum.samples
def fourierSum(x, axes, sign=-1):
    """Along the axes that these are within a sample."""
    return fourierSum(x, [normalAxis(axis, x.ndim - 2) + 1 for axis in axes], sign)


@fourierSum.device
def fourierSum(x, axes, sign=-1):
    """By CuPy's transforms."""
    return fourierSum.reference(x, axes, sign)
