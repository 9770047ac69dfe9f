"""PairDot: the dot products of each two of several vectors."""

from puregraph.base.widen import asResultType
from puregraph.core.shape import product
from puregraph.errors import need
from puregraph.kernels.pairwisedot import pairDots, pairDotsGrad
from puregraph.module import Module


class PairDot(Module):
    """y[n, p] = <x_i[n], x_j[n]> for all pairs i > j in the order (1, 0), (2, 0), (2, 1), (3, 0), ...

    Shapes    f times x_i (n, d) -> y (n, f (f - 1) / 2)
    Source    Rendle 2010, Factorization Machines, eq. 1; Naumov et al. 2019, arXiv:1906.00091, section 2.1.4
    Raises    ShapeError if there are fewer than two inputs, or their shapes are not all (n, d)
    """

    reads = ("xs",)
    keepsDtype = True

    def dataShapeFrom(self, *xs):
        need(len(xs) >= 2, "at least two inputs", list(xs))
        need(len(xs[0]) == 2 and all(x == xs[0] for x in xs), "inputs of one shape (n, d)", list(xs))
        return (xs[0][0], len(xs) * (len(xs) - 1) // 2)

    def updateData(self, *xs):
        return pairDots(*asResultType(*xs))

    def updateGrad(self, grad, *values, needs):
        *xs, _ = values
        found = pairDotsGrad(grad, *xs)
        return tuple([found[:, i] if wanted else None for i, wanted in enumerate(needs)])

    def flopsFrom(self, *xs):
        return 2 * xs[0][1] * product(self.dataShapeFrom(*xs))

    @classmethod
    def examples(cls):
        yield cls(), [(3, 2)] * 2
        yield cls(), [(2, 3)] * 4
