"""Compress: the slices of the input for which a condition holds."""

import numpy as np

from puregraph.arguments import Whole
from puregraph.core.shape import normalAxis
from puregraph.errors import need
from puregraph.module import Module


class Compress(Module):
    """y = the slices of x along `axis` at which the condition is true, in their order.

    Their number depends on the data: ahead of it a symbol stands for it, named after the node. The gradient goes to the
    slices that were chosen.

    Shapes    x (*a, n, *b), condition (n) booleans -> y (*a, count, *b)
    Source    the NumPy reference, numpy.compress; ONNX operator Compress
    Raises    ShapeError if the condition has another length
    """

    reads = ("condition",)
    keepsDtype = True
    masks = ("condition",)
    flopsPerElement = 0

    def __init__(self, axis: Whole = 0, name=None):
        super().__init__(name)
        self.axis = axis

    def dataShapeFrom(self, x, condition):
        axis = normalAxis(self.axis, len(x))
        need(condition == (x[axis],), f"a condition of shape ({x[axis]},)", condition)
        return (*x[:axis], None, *x[axis + 1 :])

    def updateData(self, x, condition):
        return x[(slice(None),) * normalAxis(self.axis, x.ndim) + (condition,)]

    def updateGrad(self, grad, x, condition, y):
        axis = normalAxis(self.axis, x.ndim)
        if y.shape[axis] == 0:
            return np.zeros_like(grad, shape=x.shape), None
        chosen = grad.take(np.maximum(np.cumsum(condition) - 1, 0), axis=axis)  # CuPy stores nothing where a mask holds
        isChosen = condition.reshape(-1, *(1,) * (x.ndim - axis - 1))
        return np.where(isChosen, chosen, grad.dtype.type(0)), None

    def sample(self, rng, x, condition):
        return [rng.standard_normal(x), rng.random(condition) < 0.5]

    @classmethod
    def examples(cls):
        yield cls(), [(4, 3), (4,)]
        yield cls(axis=-1), [(2, 5), (5,)]
