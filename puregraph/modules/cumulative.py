"""Accumulation: cumulative sums and products along an axis."""

import numpy as np

from puregraph.core.arguments import Flag, Whole
from puregraph.core.base.widen import widened
from puregraph.core.shape import normalAxis
from puregraph.core.tracer import arrayLike
from puregraph.graph.module import Module


class _Cumulative(Module):
    """Base class: along `axis`, without the element itself if `exclusive`, from the end if `reverse`."""

    keepsDtype = True
    followsValues = True

    def __init__(self, axis: Whole = 0, exclusive: Flag = False, reverse: Flag = False, name=None):
        super().__init__(name)
        self.axis, self.exclusive, self.reverse = axis, exclusive, reverse

    def dataShapeFrom(self, x):
        normalAxis(self.axis, len(x))
        return x

    @classmethod
    def examples(cls):
        yield cls(), [(3, 2)]
        yield cls(axis=-1, exclusive=True), [(2, 3)]
        yield cls(axis=1, reverse=True), [(2, 3)]
        yield cls(axis=0, exclusive=True, reverse=True), [(4,)]


class CumSum(_Cumulative):
    """y_i = sum over j <= i of x_j along `axis`; j < i if `exclusive`; j >= i if `reverse`.

    Shapes    x (any with that axis) -> y as x
    Source    ONNX operator CumSum
    Raises    ShapeError if x has no such axis
    """

    reads = ()

    def updateData(self, x):
        return accumulated(np.cumsum, x, self.axis, self.exclusive, self.reverse, 0)

    def updateGrad(self, grad, x, y):
        return accumulated(np.cumsum, grad, self.axis, self.exclusive, not self.reverse, 0)


class CumProd(_Cumulative):
    """y_i = product over j <= i of x_j along `axis`; j < i if `exclusive`; j >= i if `reverse`.

    Shapes    x (any with that axis) -> y as x
    Source    ONNX operator CumProd
    Raises    ShapeError if x has no such axis
    """

    reads = ("x",)

    def updateData(self, x):
        return accumulated(np.cumprod, x, self.axis, self.exclusive, self.reverse, 1)

    def updateGrad(self, grad, x, y):
        return productBack(grad, x, normalAxis(self.axis, x.ndim), self.exclusive, self.reverse)


@widened
def accumulated(function, x, axis, exclusive, reverse, first):
    """Return a cumulative function of x along an axis; with `exclusive`, it begins with `first`."""
    axis = normalAxis(axis, x.ndim)
    x = np.flip(x, axis) if reverse else x
    if exclusive:
        lead = (slice(None),) * axis
        start = np.full_like(x[(*lead, slice(0, 1))], first)
        x = np.concatenate([start, x[(*lead, slice(0, -1))]], axis=axis)[(*lead, slice(0, x.shape[axis]))]
    y = function(x, axis=axis, dtype=x.dtype)
    return np.flip(y, axis) if reverse else y


@widened
def productBack(grad, x, axis, exclusive, reverse):
    """g_j sum over i of the product of all x up to i without x_j: exact even if an x is 0."""
    grads = []
    x, grad = np.moveaxis(x, axis, -1), np.moveaxis(grad, axis, -1)
    for j in range(x.shape[-1]):
        isFactor = arrayLike(x, np.arange(x.shape[-1]) == j)
        products = accumulated(np.cumprod, np.where(isFactor, 1, x), -1, exclusive, reverse, 1)
        order = np.arange(x.shape[-1]) * (-1 if reverse else 1)
        inside = order > order[j] if exclusive else order >= order[j]
        grads.append((grad * np.where(arrayLike(x, inside), products, 0)).sum(axis=-1))
    return np.moveaxis(np.stack(grads, axis=-1) if grads else grad, -1, axis)
