"""The base of ArgMax and ArgMin: where along an axis the largest or smallest element is."""

import numpy as np

from puregraph.arguments import Flag, Whole
from puregraph.core.shape import normalAxis
from puregraph.errors import need
from puregraph.module import Module


class _ArgExtremum(Module):
    reads = ()
    isDiscrete = True

    def __init__(self, axis: Whole = -1, keepdims: Flag = False, name=None):
        super().__init__(name)
        self.axis, self.keepdims = axis, keepdims

    def dataShapeFrom(self, x):
        axis = normalAxis(self.axis, len(x))
        need(x[axis] != 0, "at least one element to choose from", x)
        return (*x[:axis], *((1,) if self.keepdims else ()), *x[axis + 1 :])

    def dataTypeFrom(self, x):
        return np.dtype(np.int64)

    @classmethod
    def examples(cls):
        yield cls(), [(2, 3)]
        yield cls(axis=0), [(4,)]
        yield cls(axis=1, keepdims=True), [(2, 3, 2)]
