"""Weight: a parameter as a value of its own."""

from puregraph.core.arguments import Dtype
from puregraph.core.base.dtype import nativeType
from puregraph.core.param import Param
from puregraph.core.shape import asShape
from puregraph.graph.module import Module


class Weight(Module):
    """y = W: a trainable array that other nodes read.

    Shapes    W (shape) -> y (shape)
    Source    an initializer of ONNX that a float operator reads
    """

    reads = ()
    flopsPerElement = 0

    def __init__(self, shape, dtype: Dtype = "float32", name=None):
        super().__init__(name)
        self.W = Param(asShape(shape), dtype=nativeType(dtype))

    def dataShapeFrom(self):
        return self.W.shape

    def dataTypeFrom(self):
        return self.W.dtype

    def updateData(self, W):
        return W.copy()

    def updateGrad(self, grad, W, y):
        return (grad,)

    def flopsFrom(self):
        return 0

    @classmethod
    def examples(cls):
        yield cls((2, 3)), []
