"""Filled: arrays that follow from a shape or a few numbers."""

import numpy as np

from puregraph.arguments import Dtype, Whole
from puregraph.base.dtype import nativeType
from puregraph.core.tracer import arrayLike
from puregraph.errors import need
from puregraph.module import Module


class Identical(Module):
    """y[i, j] = 1 where j = i + diagonal, else 0, in the shape of x.

    Shapes    x (n, m) -> y (n, m)
    Source    ONNX operator EyeLike
    Raises    ShapeError if x is no matrix
    """

    reads = ()
    isDiscrete = True
    flopsPerElement = 0

    def __init__(self, diagonal: Whole = 0, dtype: Dtype = "float32", name=None):
        super().__init__(name)
        self.diagonal, self.dtype = diagonal, nativeType(dtype)

    def dataShapeFrom(self, x):
        need(len(x) == 2, "a matrix", x)
        return x

    def dataTypeFrom(self, x):
        return self.dtype

    def updateData(self, x):
        return arrayLike(x, np.eye(*x.shape, k=self.diagonal, dtype=self.dtype))

    @classmethod
    def examples(cls):
        yield cls(), [(2, 3)]
        yield cls(1, "int64"), [(3, 3)]


class ConstantRange(Module):
    """y = start, start + step, start + 2 step, ..., up to but without stop, of floats.

    Their number depends on the data.

    Shapes    start (), stop (), step () -> y (count)
    Source    ONNX operator Range
    Raises    ShapeError if an input is not one number
    """

    reads = ()
    isDiscrete = True
    needsFloats = needsOneFloat = True
    flopsPerElement = 0

    def dataShapeFrom(self, start, stop, step):
        need(start == stop == step == (), "one number for each input", [start, stop, step])
        return (None,)

    def updateData(self, start, stop, step):
        count = max(0, int(np.ceil((stop - start) / step)))
        return (start + np.arange(count).astype(start.dtype) * step).astype(start.dtype)

    def sample(self, rng, *shapes):
        return [np.array(0.5), np.array(3.0), np.array(1.0)]

    @classmethod
    def examples(cls):
        yield cls(), [(), (), ()]
