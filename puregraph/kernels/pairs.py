"""Pairs: the products of each two of several vectors."""

import numpy as np

from puregraph.kernel import piece
from puregraph.kernels.widen import widened


@piece
@widened
def pairDots(*xs):
    """y[n, p] = <x_i[n], x_j[n]> for all pairs i > j in the order (1, 0), (2, 0), (2, 1), ...

    Shapes    f times x_i (n, d) -> y (n, f (f - 1) / 2)
    """
    x = np.stack(xs, axis=1)
    y = x @ x.swapaxes(-1, -2)
    return np.concatenate([y[:, i, :i] for i in range(1, len(xs))], axis=1)


@pairDots.shape
def pairDots(*xs):
    """y (n, f (f - 1) / 2)."""
    return (xs[0].shape[0], len(xs) * (len(xs) - 1) // 2), xs[0].dtype


@piece
@widened
def pairDotsGrad(grad, *xs):
    """The gradients of all vectors, (n, f, d): (G + G') x, G having the gradient below its diagonal."""
    x, count = np.stack(xs, axis=1), len(xs)
    rows = []
    for i in range(count):
        start = i * (i - 1) // 2
        rest = np.zeros_like(grad, shape=(grad.shape[0], count - i))
        rows.append(np.concatenate([grad[:, start : start + i], rest], axis=1))
    g = np.stack(rows, axis=1)
    return (g + g.swapaxes(-1, -2)) @ x


@pairDotsGrad.shape
def pairDotsGrad(grad, *xs):
    """dx (n, f, d)."""
    return (xs[0].shape[0], len(xs), xs[0].shape[1]), grad.dtype
