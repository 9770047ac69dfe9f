"""Concat: inputs one after the other along an axis."""

from itertools import accumulate

import numpy as np

from puregraph.arguments import Whole
from puregraph.base.widen import asResultType
from puregraph.core.shape import normalAxis
from puregraph.errors import need, show
from puregraph.module import Module


class Concat(Module):
    """y = [x1, x2, ...] along `axis`, which may count from the end; any number of inputs.

    Shapes    xi (..., ni, ...) -> y (..., n1 + n2 + ..., ...)
    Source    Huang, Liu, van der Maaten, Weinberger 2017, arXiv:1608.06993, eq. 2; PuzzleLib's Concat
    Raises    ShapeError if two inputs differ in another axis, or in rank
    """

    reads = ()
    flopsPerElement = 0
    followsValues = True
    keepsDtype = True

    def __init__(self, axis: Whole, name=None):
        super().__init__(name)
        self.axis = axis

    def dataShapeFrom(self, *xs):
        need(xs, "at least one input", "none")
        axis = normalAxis(self.axis, len(xs[0]))
        rests = [x[:axis] + x[axis + 1 :] for x in xs]
        fits = all(len(x) == len(xs[0]) and rest == rests[0] for x, rest in zip(xs, rests))
        wanted = show((*xs[0][:axis], "*", *xs[0][axis + 1 :]))
        need(fits, f"inputs like the first, {wanted}", list(xs), f"they may differ only in axis {axis}")
        return (*xs[0][:axis], sum(x[axis] for x in xs), *xs[0][axis + 1 :])

    def updateData(self, *xs, out=None):
        return np.concatenate(asResultType(*xs), axis=self.axis, out=out)

    def updateGrad(self, grad, *values, needs):
        *xs, _ = values
        axis = normalAxis(self.axis, grad.ndim)
        ends = list(accumulate(x.shape[axis] for x in xs))
        parts = zip([0, *ends], ends)
        lead = (slice(None),) * axis
        return tuple([grad[(*lead, slice(*part))] if wanted else None for part, wanted in zip(parts, needs)])

    @classmethod
    def examples(cls):
        yield cls(axis=1), [(2, 3), (2, 4)]
        yield cls(axis=-1), [(2, 2, 3), (2, 2, 1), (2, 2, 2)]
        yield cls(axis=0), [(3,)]
        yield cls(axis=-3), [(2, 3, 2), (1, 3, 2)]
