"""LogSoftMax and Hardmax: the logarithm of probabilities, and a one at the largest score."""

import numpy as np

from puregraph.arguments import Whole
from puregraph.base.widen import widened
from puregraph.core.shape import normalAxis
from puregraph.core.tracer import arrayLike
from puregraph.errors import need
from puregraph.kernels.reduce import logSoftmax, total
from puregraph.module import Module


class LogSoftMax(Module):
    """y = x - max x - ln sum exp(x - max x), maximum and sum along the axis

    Shapes    x (any with that axis) -> y as x
    Source    ONNX operator LogSoftmax
    Raises    ShapeError if x does not have the axis, or it has length 0
    """

    reads = ("y",)
    needsFloats = True
    flopsPerElement = 5

    def __init__(self, axis: Whole = -1, name=None):
        super().__init__(name)
        self.axis = axis

    def dataShapeFrom(self, x):
        need(x[normalAxis(self.axis, len(x))] >= 1, f"at least one score along axis {self.axis}", x)
        return x

    def updateData(self, x):
        return logSoftmax(x, self.axis)

    def updateGrad(self, grad, x, y):
        return pull(grad, y, self.axis)

    @classmethod
    def examples(cls):
        yield cls(), [(2, 3)]
        yield cls(axis=1), [(2, 3, 2)]


@widened
def pull(grad, y, axis):
    """g - softmax(x) sum g: the transposed Jacobian times the gradient."""
    return grad - np.exp(y) * total(grad, axis, keepdims=True)


class Hardmax(Module):
    """y = 1 where x is first the largest along the axis, else 0; without a gradient.

    Shapes    x (any with that axis) -> y as x
    Source    ONNX operator Hardmax
    Raises    ShapeError if x does not have the axis, or it has length 0
    """

    reads = ()
    isDiscrete = True
    keepsDtype = True

    def __init__(self, axis: Whole = -1, name=None):
        super().__init__(name)
        self.axis = axis

    def dataShapeFrom(self, x):
        need(x[normalAxis(self.axis, len(x))] >= 1, f"at least one score along axis {self.axis}", x)
        return x

    def updateData(self, x):
        axis = normalAxis(self.axis, x.ndim)
        positions = np.arange(x.shape[axis]).reshape(-1, *(1,) * (x.ndim - axis - 1))
        return (x.argmax(axis=axis, keepdims=True) == arrayLike(x, positions)).astype(x.dtype)

    @classmethod
    def examples(cls):
        yield cls(), [(2, 3)]
        yield cls(axis=1), [(2, 3, 2)]
