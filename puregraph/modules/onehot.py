"""OneHot: a one in the channel that an index names."""

import numpy as np

from puregraph.arguments import Count, Dtype
from puregraph.base.dtype import nativeType
from puregraph.core.tracer import arrayLike
from puregraph.module import Module


class OneHot(Module):
    """y[..., k] = 1 where x is k, else 0, for k below `classes`; an index that is no class gives zeros alone.

    Shapes    x (...) integers -> y (..., classes)
    Source    ONNX operator OneHot
    Raises    DtypeError if x holds no integers
    """

    reads = ()
    indices = ("x",)
    isDiscrete = True

    def __init__(self, classes: Count, dtype: Dtype = "float32", name=None):
        super().__init__(name)
        self.classes, self.dtype = classes, nativeType(dtype)

    def dataShapeFrom(self, x):
        return (*x, self.classes)

    def dataTypeFrom(self, x):
        super().dataTypeFrom(x)
        return self.dtype

    def updateData(self, x):
        return (x[..., None] == arrayLike(x, np.arange(self.classes))).astype(self.dtype)

    def sample(self, rng, x):
        return [rng.integers(-1, self.classes, x)]

    @classmethod
    def examples(cls):
        yield cls(3), [(4,)]
        yield cls(2, dtype="int64"), [(2, 3)]
        yield cls(4, dtype="bool"), [()]
