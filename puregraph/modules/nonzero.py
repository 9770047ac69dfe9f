"""NonZero: where the elements of the input are not zero."""

import numpy as np

from puregraph.module import Module


class NonZero(Module):
    """y[:, k] = index of the k-th element of x that is not 0, in row-major order.

    Their number depends on the data: ahead of it a symbol stands for it, named after the node.

    Shapes    x (any) -> y (rank of x, count)
    Source    the NumPy reference, numpy.nonzero; ONNX operator NonZero
    """

    reads = ()
    isDiscrete = True
    flopsPerElement = 0

    def dataShapeFrom(self, x):
        return (len(x), None)

    def dataTypeFrom(self, x):
        return np.dtype(np.int64)

    def updateData(self, x):
        if x.ndim:
            return np.stack(np.nonzero(x))
        count = np.nonzero(x.reshape(1))[0].shape[0]
        return np.zeros_like(x, shape=(0, count), dtype=np.int64)

    def sample(self, rng, x):
        return [rng.integers(0, 2, x).astype(float)]

    @classmethod
    def examples(cls):
        yield cls(), [(2, 3)]
        yield cls(), [(5,)]
        yield cls(), [()]
