"""SoftMax: scores as probabilities."""

from puregraph.arguments import Whole
from puregraph.base.widen import widened
from puregraph.core.shape import normalAxis
from puregraph.errors import need
from puregraph.kernels.reduce import softmax, total
from puregraph.module import Module


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
        return pull(grad, y, self.axis)

    @classmethod
    def examples(cls):
        yield cls(), [(3, 4)]
        yield cls(), [(2, 3, 2, 2)]
        yield cls(axis=-1), [(2, 3, 4)]
        yield cls(axis=0), [(5,)]


@widened
def pull(grad, y, axis):
    """y (g - sum g y): the transposed Jacobian diag(y) - y y' times the gradient."""
    return y * (grad - total(grad * y, axis, keepdims=True))
