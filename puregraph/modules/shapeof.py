"""Shape and Size: the shape of an array as data."""

import numpy as np

from puregraph.core.arguments import Whole
from puregraph.core.dim import Dim
from puregraph.core.shape import product
from puregraph.core.tracer import arrayLike
from puregraph.graph.module import Module


class Shape(Module):
    """y = (sizes of the axes `start` ... `end` - 1 of x), as int64; both may count from the end.

    Known ahead of data, with symbols: computations from it take no step of a compiled program.

    Shapes    x (any) -> y (count of axes)
    Source    ONNX operator Shape
    """

    reads = ()
    isDiscrete = True
    flopsPerElement = 0

    def __init__(self, start: Whole = 0, end: Whole | None = None, name=None):
        super().__init__(name)
        self.start, self.end = start, end

    def dataShapeFrom(self, x):
        return (len(x[self.start : self.end]),)

    def dataTypeFrom(self, x):
        return np.dtype(np.int64)

    def valueFrom(self, x):
        return asValue(x[self.start : self.end])

    def updateData(self, x):
        return arrayLike(x, np.array(x.shape[self.start : self.end], np.int64))

    @classmethod
    def examples(cls):
        yield cls(), [(2, 3)]
        yield cls(start=1), [(4, 2, 3)]
        yield cls(-2, -1), [(4, 2, 3)]
        yield cls(), [()]


def asValue(sizes):
    """Return sizes as an array: int64, or objects if some are symbols."""
    hasSymbols = any(isinstance(size, Dim) for size in sizes)
    array = np.empty(len(sizes), object if hasSymbols else np.int64)
    array[:] = sizes
    return array


class Size(Module):
    """y = number of elements of x, as int64; known ahead of data.

    Shapes    x (any) -> y ()
    Source    ONNX operator Size
    """

    reads = ()
    isDiscrete = True
    flopsPerElement = 0

    def dataShapeFrom(self, x):
        return ()

    def dataTypeFrom(self, x):
        return np.dtype(np.int64)

    def valueFrom(self, x):
        return asValue([product(x)]).reshape(())

    def updateData(self, x):
        return arrayLike(x, np.array(product(x.shape), np.int64))

    @classmethod
    def examples(cls):
        yield cls(), [(2, 3)]
        yield cls(), [()]
