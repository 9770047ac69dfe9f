"""Reductions along axes, numerically stable: plain functions, which numpy's protocols carry to any array library."""

from __future__ import annotations

import math

import numpy as np

from puregraph.core.accumulate import shapeOf
from puregraph.core.base.widen import widen, widened
from puregraph.ops.kernel import kernel

SUM_CHAIN_ELEMENTS = 32  # elements that are added one after the other


@widened
def softmax(x, axis=-1):
    """y = exp(x - max x) / sum exp(x - max x), along an axis or several.

    Shapes    x (any) -> y of that shape
    """
    y = np.exp(x - x.max(axis=axis, keepdims=True))
    return y / total(y, axis, keepdims=True)


@widened
def logSoftmax(x, axis=-1):
    """y = x - max x - ln sum exp(x - max x), along an axis or several.

    Shapes    x (any) -> y of that shape
    """
    z = x - x.max(axis=axis, keepdims=True)
    return z - np.log(total(np.exp(z), axis, keepdims=True))


@widened
def logSumExp(x, axis=-1, keepdims=False):
    """y = m + ln sum exp(x - m), m = max x, along an axis or several; -inf where all x are, inf where one is.

    Shapes    x (any) -> y without the axis, or of length one there
    """
    m = x.max(axis=axis, keepdims=True)
    m = np.where(np.isfinite(m), m, 0)
    with np.errstate(divide="ignore", over="ignore"):
        y = np.log(total(np.exp(x - m), axis, keepdims=True)) + m
    return y if keepdims else y.squeeze(axis=axis)


@kernel
def firstIndex(x, value, axis):
    """y = the first index along `axis` at which x is `value`, or both are nan.

    Shapes    x (any), value (the same, of length one along the axis) -> y without the axis
    """
    return ((x == value) | (x != x)).argmax(axis)


@firstIndex.shape
def firstIndex(x, value, axis):
    """y without the axis."""
    return (*x.shape[:axis], *x.shape[axis + 1 :]), np.dtype(np.int64)


def moments(x, axes, keepdims=False):
    """mean = sum x / m and variance = sum (x - mean)^2 / m over the axes, m being their size.

    The mean of the rest after subtracting a first mean corrects both. float16 gives float32.

    Shapes    x (any) -> mean, variance without the axes, or of length one there
    Source    Chan, Golub, LeVeque 1983, Algorithms for Computing the Sample Variance, eq. 1.7
    """
    x = widen(x)
    mean = average(x, axes, keepdims=True)
    centered = x - mean
    slip = average(centered, axes, keepdims=True)
    variance = average(centered * centered, axes, keepdims=keepdims)
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


def fit(g, a):
    """A gradient summed back to the shape of an operand that was repeated."""
    return g if g.shape == shapeOf(a) else unbroadcast(g, shapeOf(a))


@widened
def total(x, axis=None, keepdims=False):
    """The sum over the axes; of a numpy array in short chains (blocked summation), as every kernel computes it.

    numpy adds contiguous elements pairwise, but all others in one chain, whose rounding error grows with its
    length. Here such an axis is reduced to no more than SUM_CHAIN_ELEMENTS rows, repeatedly.

    Shapes    x (any) -> y without the axes, or of length one there
    Source    Higham 1993, The accuracy of floating point summation
    """
    chained = chains(x, axis)
    if not chained:
        return x.sum(axis=axis, keepdims=keepdims)
    axes = normalized(axis, x.ndim)
    beside = tuple(a for a in axes if a not in chained)
    y = x.sum(axis=beside, keepdims=True) if beside else x
    for a in chained:
        y = blockedSum(y, a)
    return y if keepdims else y.squeeze(axis=axes)[()]


@widened
def average(x, axis=None, keepdims=False):
    """The mean over the axes, of a sum in short chains.

    Shapes    x (any) -> y without the axes, or of length one there
    """
    if not chains(x, axis):
        return x.mean(axis=axis, keepdims=keepdims)
    y = total(x, axis, keepdims)
    return y / y.dtype.type(x.size // y.size)


def chains(x, axis):
    """The axes that numpy would sum sequentially, outermost first, if they have more than SUM_CHAIN_ELEMENTS elements.

    An axis is not among them if all axes further inside are summed as well. Only numpy arrays in float32
    have any: float64 has digits to spare, and keeps the order in which a program without native code adds.
    """
    if (
        type(x) is not np.ndarray
        or x.dtype != np.float32
        or max(x.shape, default=0) <= SUM_CHAIN_ELEMENTS
        or x.size == 0
    ):
        return []
    axes = normalized(axis, x.ndim)
    order = sorted((a for a in range(x.ndim) if x.shape[a] > 1), key=lambda a: -abs(x.strides[a]) or -math.inf)
    while order and order[-1] in axes:
        order.pop()
    long = [a for a in order if a in axes]
    return long if math.prod(x.shape[a] for a in long) > SUM_CHAIN_ELEMENTS else []


def normalized(axis, ndim):
    """The axes of a reduction as non-negative integers."""
    if axis is None:
        return tuple(range(ndim))
    return tuple(a % ndim for a in axis) if isinstance(axis, (tuple, list)) else (axis % ndim,)


def blockedSum(x, axis):
    """The sum over an axis, which stays, of length one, in blocks."""
    while x.shape[axis] > SUM_CHAIN_ELEMENTS:
        n = x.shape[axis]
        rows = -(-n // SUM_CHAIN_ELEMENTS)
        blocked = n // rows * rows
        first, tail = (x[(slice(None),) * axis + (piece,)] for piece in (slice(blocked), slice(blocked, None)))
        x = first.reshape(*x.shape[:axis], -1, rows, *x.shape[axis + 1 :]).sum(axis=axis)
        if blocked < n:
            x[(slice(None),) * axis + (slice(n - blocked),)] += tail
    return x.sum(axis=axis, keepdims=True)
