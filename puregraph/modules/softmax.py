"""SoftMax, its logarithm, and the indicator of the largest element."""

import numpy as np

from puregraph.core.arguments import Whole
from puregraph.core.base.widen import widened
from puregraph.core.errors import need
from puregraph.core.shape import normalAxis
from puregraph.core.tracer import arrayLike
from puregraph.graph.module import Module
from puregraph.ops.reduction.reference import logSoftmax, softmax, total


class SoftMax(Module):
    """y = exp(x - max x) / sum exp(x - max x), maximum and sum along the axis

    Shapes    x (any with that axis) -> y as x
    Source    Bridle 1990, Probabilistic Interpretation of Feedforward Classification Network Outputs, eq. 7
    Raises    ShapeError if x does not have the axis, or it has length 0
    """

    reads = ("y",)
    needsFloats = True
    gives = "probabilities"
    flopsPerElement = 4

    def __init__(self, axis: Whole = 1, name=None):
        super().__init__(name)
        self.axis = axis

    def dataShapeFrom(self, x):
        axis = normalAxis(self.axis, len(x))
        need(x[axis] >= 1, f"at least one score along axis {self.axis}", x)
        return x

    def updateData(self, x):
        return softmax(x, self.axis)

    def updateGrad(self, grad, x, y):
        return softMaxGradient(grad, y, self.axis)

    @classmethod
    def examples(cls):
        yield cls(), [(3, 4)]
        yield cls(), [(2, 3, 2, 2)]
        yield cls(axis=-1), [(2, 3, 4)]
        yield cls(axis=0), [(5,)]


@widened
def softMaxGradient(grad, y, axis):
    """y (g - sum g y): the transposed Jacobian diag(y) - y y' times the gradient."""
    return y * (grad - total(grad * y, axis, keepdims=True))


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
        return logSoftMaxGradient(grad, y, self.axis)

    @classmethod
    def examples(cls):
        yield cls(), [(2, 3)]
        yield cls(axis=1), [(2, 3, 2)]


@widened
def logSoftMaxGradient(grad, y, axis):
    """g - softmax(x) sum g: the transposed Jacobian times the gradient."""
    return grad - np.exp(y) * total(grad, axis, keepdims=True)


class HardMax(Module):
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
