"""Size: the number of elements of the input."""

import numpy as np

from puregraph.core.shape import product
from puregraph.core.tracer import arrayLike
from puregraph.module import Module
from puregraph.modules.shapeof import asValue


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
