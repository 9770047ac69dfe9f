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

    def key(self, x, condition):
        """What x is indexed with: positions, as CuPy stores no array where a condition holds."""
        return (slice(None),) * normalAxis(self.axis, x.ndim) + (np.flatnonzero(condition),)

    def updateData(self, x, condition):
        return x[self.key(x, condition)]

    def updateGrad(self, grad, x, condition, y):
        gx = np.zeros_like(grad, shape=x.shape)
        gx[self.key(x, condition)] = grad
        return gx, None

    def sample(self, rng, x, condition):
        return [rng.standard_normal(x), rng.random(condition) < 0.5]

    @classmethod
    def examples(cls):
        yield cls(), [(4, 3), (4,)]
        yield cls(axis=-1), [(2, 5), (5,)]
