"""Expand: the input repeated along axes of length one, and new ones in front."""

import numpy as np

from puregraph.core.shape import asShape, broadcast, givenSizes, sizesOf
from puregraph.kernels.reduce import unbroadcast
from puregraph.module import Module


class Expand(Module):
    """y = x, repeated to the shape that x and `shape` broadcast to; a size of 1 keeps what x has.

    Without `shape`, `sizes` are a second input, integers.

    Shapes    x (any), sizes (rank) -> y (the broadcast of both)
    Source    ONNX operator Expand
    Raises    ShapeError if they do not broadcast
    """

    reads = ()
    keepsDtype = True
    indices = shapeInputs = ("sizes",)
    followsValues = True
    flopsPerElement = 0

    def __init__(self, shape=None, name=None):
        super().__init__(name)
        self.shape = None
        if shape is not None:
            self.shape, self.sizes = asShape(shape), None

    def dataShapeFrom(self, x, sizes=None):
        wanted = givenSizes(sizes, "sizes") if self.shape is None else self.shape
        return (None,) * max(len(x), sizes[0]) if wanted is None else broadcast(x, wanted)

    def updateData(self, x, sizes=None):
        wanted = self.shape if sizes is None else sizesOf(sizes)
        return np.broadcast_to(x, broadcast(x.shape, wanted)).copy()

    def updateGrad(self, grad, x, sizes, y):
        return unbroadcast(grad, x.shape), None

    def sample(self, rng, x, *sizes):
        return [rng.standard_normal(x), *[np.ones(shape, int) for shape in sizes]]

    @classmethod
    def examples(cls):
        yield cls((2, 3)), [(3,)]
        yield cls((4, 1, 3)), [(2, 1)]
        yield cls((1,)), [(2, 3)]
        yield cls(), [(2, 3), (3,)]
