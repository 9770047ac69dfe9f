"""Full: one number in a shape that is an input."""

import numpy as np

from puregraph.arguments import Dtype, Scalar
from puregraph.base.dtype import inferredType, nativeType
from puregraph.core.shape import givenSizes, sizesOf, valueOf
from puregraph.errors import need
from puregraph.module import Module


class Full(Module):
    """y[i, j, ...] = value, for a shape that is an input.

    Shapes    sizes (rank) integers -> y (sizes)
    Source    the NumPy reference, numpy.full; ONNX operator ConstantOfShape
    Raises    ShapeError if a size is negative; DtypeError if the sizes are no integers
    """

    reads = ()
    isDiscrete = True
    indices = shapeInputs = ("sizes",)
    followsValues = True
    flopsPerElement = 0

    def __init__(self, value: Scalar = 0.0, dtype: Dtype = "float32", name=None):
        super().__init__(name)
        self.value, self.dtype = value, nativeType(dtype)

    def dataShapeFrom(self, sizes):
        wanted = givenSizes(sizes, "sizes")
        return (None,) * sizes[0] if wanted is None else positive(wanted)

    def dataTypeFrom(self, sizes):
        inferredType(self, (sizes,))
        return self.dtype

    def valueFrom(self, sizes):
        value = valueOf(sizes)
        isKnown = value is not None and value.dtype.kind != "O" and self.dtype.kind in "iub"
        return self.updateData(value) if isKnown else None

    def updateData(self, sizes):
        shape = positive(sizesOf(sizes))  # which CuPy, where it is empty, takes for that of `sizes`
        return np.full_like(sizes, self.value, shape=(1, *shape), dtype=self.dtype).reshape(shape)

    def sample(self, rng, sizes):
        return [np.full(sizes, 2)]

    def flopsFrom(self, *shapes):
        return 0

    @classmethod
    def examples(cls):
        yield cls(), [(2,)]
        yield cls(7, "int64"), [(1,)]
        yield cls(1, "bool"), [(0,)]


def positive(sizes):
    """Sizes as a shape."""
    need(not any(size < 0 for size in sizes), "sizes of at least 0", tuple(sizes))
    return tuple(sizes)
