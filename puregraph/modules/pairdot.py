"""PairDot: how well each two of several vectors agree."""

import numpy as np

from puregraph.errors import need
from puregraph.kernels.widen import widened
from puregraph.module import Module
from puregraph.shape import product


class PairDot(Module):
    """y[n, p] = <x_i[n], x_j[n]> for all pairs i > j in the order (1, 0), (2, 0), (2, 1), (3, 0), ...

    Shapes    f times x_i (n, d) -> y (n, f (f - 1) / 2)
    Source    Rendle 2010, Factorization Machines, eq. 1; Naumov et al. 2019, arXiv:1906.00091, section 2.1.4
    Raises    ShapeError if there are fewer than two inputs, or their shapes are not all (n, d)
    """

    reads = ("xs",)

    def dataShapeFrom(self, *xs):
        need(len(xs) >= 2, "at least two inputs", list(xs))
        need(len(xs[0]) == 2 and all(x == xs[0] for x in xs), "inputs of one shape (n, d)", list(xs))
        return (xs[0][0], len(xs) * (len(xs) - 1) // 2)

    def updateData(self, *xs):
        return dots(*xs)

    def updateGrad(self, grad, *values, needs):
        *xs, _ = values
        found = pulled(grad, *xs)
        return tuple([found[:, i] if wanted else None for i, wanted in enumerate(needs)])

    def flopsFrom(self, *xs):
        return 2 * xs[0][1] * product(self.dataShapeFrom(*xs))

    @classmethod
    def examples(cls):
        yield cls(), [(3, 2)] * 2
        yield cls(), [(2, 3)] * 4


@widened
def dots(*xs):
    """The products below the diagonal, row by row."""
    x = np.stack(xs, axis=1)
    y = x @ x.swapaxes(-1, -2)
    return np.concatenate([y[:, i, :i] for i in range(1, len(xs))], axis=1)


@widened
def pulled(grad, *xs):
    """The gradients of all inputs, (n, f, d): (G + G') x, G having the gradient below its diagonal."""
    x, count = np.stack(xs, axis=1), len(xs)
    rows = []
    for i in range(count):
        start = i * (i - 1) // 2
        rest = np.zeros_like(grad, shape=(grad.shape[0], count - i))
        rows.append(np.concatenate([grad[:, start : start + i], rest], axis=1))
    g = np.stack(rows, axis=1)
    return (g + g.swapaxes(-1, -2)) @ x
