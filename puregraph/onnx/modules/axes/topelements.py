"""TopElements: the largest or smallest elements along an axis, in order."""

import numpy as np

from puregraph.arguments import Flag, Size, Whole
from puregraph.core.shape import normalAxis
from puregraph.errors import need
from puregraph.module import Module


class TopElements(Module):
    """values, indices = the `count` largest (or smallest) elements of x along `axis`, in order; of equals the first.

    Shapes    x (..., n, ...) -> values, indices (..., count, ...)
    Source    ONNX operator TopK
    Raises    ShapeError if there are fewer elements
    """

    reads = ("indices",)
    keepsDtype = True

    def __init__(self, count: Size, axis: Whole = -1, largest: Flag = True, name=None):
        super().__init__(name)
        self.count, self.axis, self.largest = count, axis, largest

    @property
    def outputNames(self):
        return ("values", "indices")

    def dataShapeFrom(self, x):
        axis = normalAxis(self.axis, len(x))
        need(x[axis] >= self.count, f"at least {self.count} elements along axis {axis}", x)
        return [(*x[:axis], self.count, *x[axis + 1 :])] * 2

    def dataTypeFrom(self, x):
        return [x, np.dtype(np.int64)]

    def updateData(self, x):
        axis = normalAxis(self.axis, x.ndim)
        flipped = np.flip(x, axis) if self.largest else x
        order = np.argsort(flipped, axis=axis, kind="stable")
        if self.largest:
            order = x.shape[axis] - 1 - np.flip(order, axis)
        order = order[(slice(None),) * axis + (slice(0, self.count),)]
        return np.take_along_axis(x, order, axis), order

    def updateGrad(self, grad, x, values, indices):
        g = grad[0]
        if g is None:
            return np.zeros_like(values, shape=x.shape)
        gx = np.zeros_like(g, shape=x.shape)
        np.put_along_axis(gx, indices, g, normalAxis(self.axis, x.ndim))
        return gx

    def sample(self, rng, x):
        return [rng.permutation(int(np.prod(x))).reshape(x) * 0.5]

    @classmethod
    def examples(cls):
        yield cls(2), [(2, 3)]
        yield cls(2, axis=0, largest=False), [(3, 2)]
