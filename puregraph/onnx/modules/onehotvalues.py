"""OneHotValues: one value at the class of each index, another value elsewhere."""

import numpy as np

from puregraph.core.arguments import Whole
from puregraph.core.errors import need
from puregraph.core.shape import normalAxis, sizesOf, valueOf
from puregraph.graph.module import Module


class OneHotValues(Module):
    """y[..., k, ...] = values[1] where index is k, else values[0], for k below depth, along a new `axis`.

    An index below 0 counts from the end; one out of range gives values[0] alone.

    Shapes    index (*i), depth () or (1,), values (2,) -> y (..., depth, ...)
    Source    ONNX operator OneHot
    Raises    ShapeError if y has no such axis
    """

    reads = ()
    isDiscrete = True
    shapeInputs = ("depth",)

    def __init__(self, axis: Whole = -1, name=None):
        super().__init__(name)
        self.axis = axis

    def dataShapeFrom(self, index, depth, values):
        axis = normalAxis(self.axis, len(index) + 1)
        need(depth in ((), (1,)) and values == (2,), "a lone depth, and two values", [depth, values])
        known = valueOf(depth)
        return (*index[:axis], None if known is None else sizesOf(known)[0], *index[axis:])

    def dataTypeFrom(self, index, depth, values):
        return values

    def updateData(self, index, depth, values):
        axis, count = normalAxis(self.axis, index.ndim + 1), int(depth.ravel()[0])
        labels = np.expand_dims(index, axis)
        labels = np.where(labels < 0, labels + count, labels)
        classes = np.arange(count).reshape(-1, *(1,) * (index.ndim - axis))
        return np.where(labels == classes, values[1], values[0])

    def sample(self, rng, index, depth, values):
        return [rng.integers(-1, 3, index), np.full(depth, 3), np.array([0.0, 1.0])]

    @classmethod
    def examples(cls):
        yield cls(), [(4,), (), (2,)]
        yield cls(axis=1), [(2, 3), (1,), (2,)]
