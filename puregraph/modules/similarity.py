"""How near two vectors are: the cosine of their angle, and the norm of their difference."""

from collections.abc import Callable
from typing import Any

import numpy as np

from puregraph.autodiff.derivatives.ruletape import derivedGrad
from puregraph.core.arguments import Flag, NotNegative, Positive, Whole
from puregraph.core.base.widen import asResultType, widen
from puregraph.core.errors import need
from puregraph.core.shape import broadcast, normalAxis
from puregraph.graph.module import Module
from puregraph.ops.reduction.reference import total


class _Similarity(Module):
    """Base class: one number, `compared`, for the vectors along an axis of two inputs that broadcast."""

    compared: Callable[..., Any]
    reads = ("x1", "x2")
    needsFloats = True
    axis, keepdims = -1, False

    def dataShapeFrom(self, x1, x2):
        x = broadcast(x1, x2)
        need(len(x) >= 1, "vectors", [x1, x2])
        axis = normalAxis(self.axis, len(x))
        return (*x[:axis], *(1,) * self.keepdims, *x[axis + 1 :])

    def updateData(self, x1, x2):
        x1, x2 = asResultType(x1, x2)
        return self.compared(widen(x1), widen(x2)).astype(x1.dtype, copy=False)

    def updateGrad(self, grad, *values, needs):
        return derivedGrad(self.updateData, grad, values, needs)


class CosineSimilarity(_Similarity):
    """y = sum x1 x2 / (max(|x1|, epsilon) max(|x2|, epsilon)), sum and norms along the axis

    Shapes    x1, x2 (any that broadcast) -> their broadcast without the axis
    Source    Salton, Wong, Yang 1975, A Vector Space Model for Automatic Indexing
    Raises    ShapeError if they do not broadcast, or have no such axis
    """

    def __init__(self, axis: Whole = 1, epsilon: Positive = 1e-8, name=None):
        super().__init__(name)
        self.axis, self.epsilon = axis, epsilon

    def compared(self, x1, x2):
        """The cosine along the axis."""
        x1, x2 = (np.broadcast_to(x, broadcast(x1.shape, x2.shape)) for x in (x1, x2))
        norms = [np.sqrt(np.maximum(total(x * x, self.axis), self.epsilon**2)) for x in (x1, x2)]
        return total(x1 * x2, self.axis) / (norms[0] * norms[1])

    @classmethod
    def examples(cls):
        yield cls(), [(4, 3), (4, 3)]
        yield cls(-1, epsilon=1e-3), [(2, 1, 3), (4, 3)]


class PairwiseDistance(_Similarity):
    """y = (sum |x1 - x2 + epsilon|^p)^(1/p) along the last axis; where y is 0, so is the gradient

    Shapes    x1, x2 (any that broadcast) -> their broadcast without the last axis, or of length one there
    Source    Minkowski 1910, Geometrie der Zahlen; epsilon as in PyTorch's PairwiseDistance
    Raises    ShapeError if they do not broadcast, or have no axis
    """

    def __init__(self, p: Positive = 2, epsilon: NotNegative = 1e-6, keepdims: Flag = False, name=None):
        super().__init__(name)
        self.p, self.epsilon, self.keepdims = p, epsilon, keepdims

    def compared(self, x1, x2):
        """The norm of the difference."""
        sums = total(np.abs(x1 - x2 + self.epsilon) ** self.p, -1, keepdims=self.keepdims)
        return np.where(sums > 0, np.where(sums > 0, sums, 1) ** (1 / self.p), 0)

    @classmethod
    def examples(cls):
        yield cls(), [(4, 3), (4, 3)]
        yield cls(3, keepdims=True), [(2, 1, 3), (4, 3)]
        yield cls(1, epsilon=0), [(2,), (2,)]
