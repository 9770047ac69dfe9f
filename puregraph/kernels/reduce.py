"""Reduce: sums along axes, taken stably; plain functions, which numpy's protocols carry to any array library."""

from __future__ import annotations

import numpy as np

from puregraph.kernels.widen import widen, widened


@widened
def softmax(x, axis=-1):
    """y = exp(x - max x) / sum exp(x - max x), along an axis or several.

    Shapes    x (any) -> y of that shape
    """
    y = np.exp(x - x.max(axis=axis, keepdims=True))
    return y / y.sum(axis=axis, keepdims=True)


@widened
def logSoftmax(x, axis=-1):
    """y = x - max x - ln sum exp(x - max x), along an axis or several.

    Shapes    x (any) -> y of that shape
    """
    z = x - x.max(axis=axis, keepdims=True)
    return z - np.log(np.exp(z).sum(axis=axis, keepdims=True))


@widened
def logSumExp(x, axis=-1, keepdims=False):
    """y = m + ln sum exp(x - m), m = max x, along an axis or several; -inf where all x are, inf where one is.

    Shapes    x (any) -> y without the axis, or of length one there
    """
    m = x.max(axis=axis, keepdims=True)
    m = np.where(np.isfinite(m), m, 0)
    with np.errstate(divide="ignore", over="ignore"):
        y = np.log(np.exp(x - m).sum(axis=axis, keepdims=True)) + m
    return y if keepdims else y.squeeze(axis=axis)


def moments(x, axes, keepdims=False):
    """mean = sum x / m and variance = sum (x - mean)^2 / m over the axes, m being their size.

    The mean of what is left after subtracting a first mean corrects both. float16 gives float32.

    Shapes    x (any) -> mean, variance without the axes, or of length one there
    Source    Chan, Golub, LeVeque 1983, Algorithms for Computing the Sample Variance, eq. 1.7
    """
    x = widen(x)
    mean = x.mean(axis=axes, keepdims=True)
    rest = x - mean
    slip = rest.mean(axis=axes, keepdims=True)
    variance = (rest * rest).mean(axis=axes, keepdims=keepdims)
    mean = mean + slip
    if not keepdims:
        mean, slip = mean.squeeze(axis=axes), slip.squeeze(axis=axes)
    return mean, variance - slip * slip


def unbroadcast(grad, shape):
    """The sum of `grad` over the axes along which an operand of this shape was repeated.

    Shapes    grad (any that `shape` broadcasts to) -> (shape)
    """
    if grad.shape == tuple(shape):
        return grad
    lead = grad.ndim - len(shape)
    axes = tuple(i for i in range(grad.ndim) if i < lead or shape[i - lead] == 1 != grad.shape[i])
    return total(grad, axes).reshape(shape)


@widened
def total(x, axes):
    """The sum over the axes."""
    return x.sum(axis=axes)
