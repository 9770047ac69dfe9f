"""Unique: each value once, in order."""

import numpy as np

from puregraph.core.shape import product
from puregraph.module import Module


class Unique(Module):
    """values = the different elements of x, sorted; first, where each comes first; inverse, which one each element is;
    counts, how often each comes: x.ravel() = values[inverse].

    The number of values depends on the data: ahead of it a symbol stands for it, named after the node.

    Shapes    x (any) -> values (count), first (count), inverse (size of x), counts (count)
    Source    the NumPy reference, numpy.unique; ONNX operator Unique
    """

    reads = ()
    isDiscrete = True
    sharesSize = True
    flopsPerElement = 0

    @property
    def outputNames(self):
        return ("values", "first", "inverse", "counts")

    def dataShapeFrom(self, x):
        return [(None,), (None,), (product(x),), (None,)]

    def dataTypeFrom(self, x):
        index = np.dtype(np.int64)
        return [x, index, index, index]

    def updateData(self, x):
        return np.unique(x.ravel(), return_index=True, return_inverse=True, return_counts=True)

    def sample(self, rng, x):
        return [rng.integers(0, 3, x).astype(float)]

    @classmethod
    def examples(cls):
        yield cls(), [(2, 3)]
        yield cls(), [(5,)]
