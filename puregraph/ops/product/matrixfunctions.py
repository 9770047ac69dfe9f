"""Functions of matrices, vectors and polynomials, written by functions whose derivatives are known."""

from __future__ import annotations

import operator
from functools import reduce
from math import prod
from typing import Any

import numpy as np

from puregraph.core.tracer import Tracer
from puregraph.ops.operation import op
from puregraph.ops.product.derivatives import arrayOf
from puregraph.ops.reduction.derivatives import listOf
from puregraph.ops.reduction.statistics import valuesOf


@op(np.kron).composed
def kronecker(a, b):
    """The products of all pairs of elements, block by block."""
    a, b = arrayOf(a), arrayOf(b)
    rank = max(a.ndim, b.ndim)
    first, second = ((1,) * (rank - x.ndim) + tuple(x.shape) for x in (a, b))
    y = a.reshape([n for size in first for n in (size, 1)]) * b.reshape([n for size in second for n in (1, size)])
    return y.reshape([n * m for n, m in zip(first, second)])


@op(np.cross).composed
def crossed(a, b, axisa=-1, axisb=-1, axisc=-1, axis=None):
    """(a2 b3 - a3 b2, a3 b1 - a1 b3, a1 b2 - a2 b1)"""
    axisa, axisb, axisc = (axisa, axisb, axisc) if axis is None else (axis, axis, axis)
    left: Any = arrayOf(a)
    right: Any = arrayOf(b)
    a, b = np.moveaxis(left, axisa, -1), np.moveaxis(right, axisb, -1)
    if a.shape[-1] != 3 or b.shape[-1] != 3:
        return NotImplemented
    (a1, a2, a3), (b1, b2, b3) = ([x[..., i] for i in range(3)] for x in (a, b))
    return np.moveaxis(np.stack([a2 * b3 - a3 * b2, a3 * b1 - a1 * b3, a1 * b2 - a2 * b1], -1), -1, axisc)


@op(np.linalg.cross).composed
def crossAlong(x1, x2, axis=-1):
    """The cross product along an axis."""
    return np.cross(x1, x2, axis=axis)


@op(np.convolve).composed
def convolved(a, v, mode="full"):
    """y[i] = sum over j of a[i - j] v[j], over indices that both have."""
    a, v = (np.ravel(arrayOf(x)) for x in (a, v))
    if v.shape[0] > a.shape[0]:
        a, v = v, a
    n, m = a.shape[0], v.shape[0]
    first, count = {"full": (0, n + m - 1), "same": ((m - 1) // 2, n), "valid": (m - 1, n - m + 1)}[mode]
    at = np.arange(first, first + count)[:, None] - np.arange(m)
    return np.where((at >= 0) & (at < n), a[np.clip(at, 0, n - 1)], 0) @ v


@op(np.correlate).composed
def correlated(a, v, mode="valid"):
    """The convolution with v from its end."""
    if np.size(valuesOf(v)) > np.size(valuesOf(a)) and mode != "full":
        return NotImplemented
    return np.convolve(a, np.flip(arrayOf(v)), mode)


@op(np.vecdot).composed
def vectorDots(x1, x2, axis=-1):
    """The sum of products along an axis."""
    return (arrayOf(x1) * arrayOf(x2)).sum(axis=axis)


@op(np.matvec).composed
def timesVector(x1, x2):
    """A v"""
    return np.matmul(x1, np.expand_dims(x2, -1))[..., 0]


@op(np.vecmat).composed
def vectorTimes(x1, x2):
    """v^T A"""
    return np.matmul(np.expand_dims(x1, -2), x2)[..., 0, :]


for alias, function in (
    (np.linalg.matmul, np.matmul),
    (np.linalg.outer, np.outer),
    (np.linalg.tensordot, np.tensordot),
):
    op(alias).composed(lambda x1, x2, function=function, **options: function(x1, x2, **options))
op(np.linalg.vecdot).composed(lambda x1, x2, axis=-1: np.vecdot(x1, x2, axis=axis))  # type: ignore[call-overload]  # without axis in numpy's types
op(np.linalg.trace).composed(lambda x, offset=0: np.trace(x, offset, -2, -1))
op(np.linalg.multi_dot).composed(lambda arrays: reduce(np.matmul, arrays))
op(np.conjugate).composed(np.positive)  # of real numbers
op(np.imag).composed(lambda val: val * 0)
op(np.fix).composed(np.trunc)
op(np.modf).composed(lambda x: (x - np.trunc(x), np.trunc(x)))
op(np.divmod).composed(lambda x1, x2: (np.floor_divide(x1, x2), np.remainder(x1, x2)))
op(np.ldexp).composed(lambda x1, x2: x1 * np.exp2(np.asarray(x2, valuesOf(x1).dtype)))


@op(np.linalg.matrix_power).composed
def power(a, n):
    """A^n by squaring; of a negative n that of the inverse."""
    if n <= 0:
        return a * 0 + np.eye(a.shape[-1], dtype=a.dtype) if n == 0 else power(np.linalg.inv(a), -n)
    half = power(a, n // 2) if n > 1 else None
    return a if half is None else half @ half @ a if n % 2 else half @ half


@op(np.linalg.norm).composed
def norm(x, ord=None, axis=None, keepdims=False):
    """Of vectors (sum |x|^p)^(1 / p); of matrices the largest sum of a column or row, or of singular values."""
    axes = tuple(range(x.ndim)) if axis is None else tuple([a % x.ndim for a in listOf(axis)])
    if ord is None or ord == "fro" or (ord == 2 and len(axes) == 1):
        return NotImplemented
    if len(axes) == 1:
        return vectorNorm(x, ord, axes[0], keepdims)
    if len(axes) != 2:
        return NotImplemented
    x, shape = np.moveaxis(x, axes, (-2, -1)), [1 if a in axes else n for a, n in enumerate(x.shape)]
    y = MATRIXNORMS[ord](x)
    return y.reshape(shape) if keepdims else y


def vectorNorm(x, p, axis, keepdims):
    """The norm along one axis; the largest or smallest for infinite p, the count of what is not 0 for p of 0."""
    if p == 0:
        return (x * 0 + (valuesOf(x) != 0)).sum(axis=axis, keepdims=keepdims)
    if abs(p) == np.inf:
        return (np.max if p > 0 else np.min)(np.abs(x), axis=axis, keepdims=keepdims)
    total = (np.abs(x) ** p).sum(axis=axis, keepdims=keepdims)
    return total if p == 1 else total ** (1 / p)


def singular(x):
    """Singular values."""
    return np.linalg.svd(x, compute_uv=False)


MATRIXNORMS = {
    1: lambda x: np.abs(x).sum(axis=-2).max(axis=-1),
    -1: lambda x: np.abs(x).sum(axis=-2).min(axis=-1),
    2: lambda x: singular(x).max(axis=-1),
    -2: lambda x: singular(x).min(axis=-1),
    np.inf: lambda x: np.abs(x).sum(axis=-1).max(axis=-1),
    -np.inf: lambda x: np.abs(x).sum(axis=-1).min(axis=-1),
    "nuc": lambda x: singular(x).sum(axis=-1),
}


@op(np.linalg.vector_norm).composed
def lengthOf(x, axis=None, keepdims=False, ord=2):
    """The norm along an axis, or of all elements."""
    if axis is None and not keepdims:
        return np.linalg.norm(x.reshape(-1), ord, 0)
    return NotImplemented if type(axis) is not int else np.linalg.norm(x, ord, axis, keepdims=keepdims)


@op(np.linalg.matrix_norm).composed
def matrixNorm(x, keepdims=False, ord="fro"):
    """The norm of the last two axes."""
    return np.linalg.norm(x, ord, (-2, -1), keepdims=keepdims)


@op(np.linalg.cond).composed
def condition(x, p=None):
    """The norm of a matrix times that of its inverse."""
    if p is None or p in (2, -2):
        s = singular(x)
        return s[..., -1] / s[..., 0] if p == -2 else s[..., 0] / s[..., -1]
    return np.linalg.norm(x, p, (-2, -1)) * np.linalg.norm(np.linalg.inv(x), p, (-2, -1))


@op(np.linalg.lstsq).composed
def leastSquares(a, b, rcond=None):
    """x = A^+ b, the squares of what is left, the rank, the singular values."""
    pinned: Any = a if isinstance(a, Tracer) else np.asarray(a)
    _, squares, rank, s = np.linalg.lstsq(valuesOf(a), valuesOf(b), rcond)
    x = np.linalg.pinv(pinned) @ b
    rest = b - pinned @ x
    rest = (rest * rest).sum(axis=0)
    return x, rest.reshape(squares.shape) if squares.size else squares, rank, singular(pinned) if pinned is a else s


@op(np.linalg.tensorinv).composed
def tensorInverse(a, ind=2):
    """The inverse of the matrix of the first `ind` axes and the others."""
    rows = prod(a.shape[:ind])
    return np.linalg.inv(a.reshape(rows, -1)).reshape(*a.shape[ind:], *a.shape[:ind])


@op(np.linalg.tensorsolve).composed
def tensorSolution(a, b, axes=None):
    """The solution of the system of the matrix of all axes of b and the others."""
    if axes is not None:
        return NotImplemented
    a, b = arrayOf(a), arrayOf(b)
    return np.linalg.solve(a.reshape(b.size, -1), b.reshape(-1)).reshape(a.shape[b.ndim :])


# Polynomials, from the highest power to the constant ------------------------------------------------------------------


@op(np.polyval).composed
def horner(p, x):
    """(p0 x + p1) x + ..."""
    x = arrayOf(x)
    return reduce(lambda y, i: y * x + p[i], range(len(p)), x * 0)


def padded(a, n):
    """A polynomial with zeros for powers that it lacks."""
    a = np.ravel(arrayOf(a))
    return np.concatenate([np.zeros(n - a.size, valuesOf(a).dtype), a])


for polynomials, join in ((np.polyadd, operator.add), (np.polysub, operator.sub)):
    op(polynomials).composed(
        lambda a1, a2, join=join: join(*[padded(a, max(np.size(valuesOf(x)) for x in (a1, a2))) for a in (a1, a2)])
    )
op(np.polymul).composed(lambda a1, a2: np.convolve(a1, a2))


@op(np.polyder).composed
def derivative(p, m=1):
    """Each coefficient times its power, m times."""
    for _ in range(m):
        p = p[:-1] * np.arange(len(p) - 1, 0, -1)
    return p


@op(np.polyint).composed
def antiderivative(p, m=1, k=None):
    """Each coefficient over its next power, m times, with the constants k."""
    constants = np.zeros(m) if k is None else np.resize(np.asarray(k, float), m)
    for i in range(m):
        p = np.concatenate([p / np.arange(len(p), 0, -1), constants[i : i + 1]])
    return p


@op(np.vander).composed
def powers(x, N=None, increasing=False):
    """The powers of each element in a row."""
    n = len(x) if N is None else N
    ones = x * 0 + 1
    columns = reduce(lambda known, _: [*known, known[-1] * x], range(n - 1), [ones])
    return np.stack(columns if increasing else columns[::-1], 1)


@op(np.linspace).composed
def evenly(start, stop, num=50, endpoint=True, axis=0):
    """start + (stop - start) i / (n - 1)"""
    start, stop = np.broadcast_arrays(arrayOf(start), arrayOf(stop))
    share = (np.arange(num) / max(1, num - bool(endpoint))).reshape(-1, *[1] * start.ndim)
    return np.moveaxis(start + (stop - start) * share, 0, axis)


@op(np.logspace).composed
def byPowers(start, stop, num=50, endpoint=True, base=10.0, axis=0):
    """base ** exponents that are spaced evenly"""
    return base ** np.linspace(start, stop, num, endpoint, axis=axis)
