"""Filled: arrays computed from a shape or a few numbers."""

import numpy as np

from puregraph.core.arguments import Dtype, Whole
from puregraph.core.base.dtype import nativeType
from puregraph.core.errors import need
from puregraph.core.shape import valueOf
from puregraph.core.tracer import arrayLike
from puregraph.graph.module import Module


class Identical(Module):
    """y[i, j] = 1 where j = i + diagonal, else 0, in the shape of x.

    Shapes    x (n, m) -> y (n, m)
    Source    ONNX operator EyeLike
    Raises    ShapeError if x is not a matrix
    """

    namesFloats = True
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

    If the inputs are known ahead of data, the number of elements is known, too.

    Shapes    start (), stop (), step () -> y (max(0, ceil((stop - start) / step)))
    Source    ONNX operator Range
    Raises    ShapeError if an input is not one number
    """

    reads = ()
    isDiscrete = True
    needsFloats = needsOneFloat = True
    flopsPerElement = 0

    def dataShapeFrom(self, start, stop, step):
        need(start == stop == step == (), "one number for each input", [start, stop, step])
        values = [valueOf(s) for s in (start, stop, step)]
        isKnown = all(v is not None and v.dtype.kind != "O" for v in values)
        return (countOf(*values) if isKnown else None,)

    def updateData(self, start, stop, step):
        count = countOf(start, stop, step)
        return (start + np.arange(count).astype(start.dtype) * step).astype(start.dtype)

    def sample(self, rng, *shapes):
        return [np.array(0.5), np.array(3.0), np.array(1.0)]

    @classmethod
    def examples(cls):
        yield cls(), [(), (), ()]


def countOf(start, stop, step):
    """The number of elements from start to stop."""
    need(step != 0, "a step other than 0", step)
    count = np.ceil((stop - start) / step)
    need(np.isfinite(count), "a finite start, stop and step", [start, stop, step])
    return max(0, int(count))
