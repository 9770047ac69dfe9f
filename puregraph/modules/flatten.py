"""Flatten: the axes of a sample as one."""

from puregraph.arguments import Whole
from puregraph.core.shape import normalAxis, product
from puregraph.module import Module


class _Reshaped(Module):
    """The base of what gives the same elements, in the same order, another shape."""

    reads = ()
    views = True
    flopsPerElement = 0
    followsValues = True

    def updateData(self, x):
        return x.reshape(self.dataShapeFrom(x.shape))

    def updateGrad(self, grad, x, y):
        return grad.reshape(x.shape)


class Flatten(_Reshaped):
    """y[n, i w + j] = x[n, i, j], w being the length of j: the axes from `start` on as one, in row-major order.

    Shapes    x (n, ...) -> y (n, product of the rest)
    Source    ONNX operator Flatten; PuzzleLib's Flatten
    Raises    ShapeError if x has no axis `start`
    """

    def __init__(self, start: Whole = 1, name=None):
        super().__init__(name)
        self.start = start

    def dataShapeFrom(self, x):
        start = normalAxis(self.start, len(x), "start")
        return (*x[:start], product(x[start:]))

    @classmethod
    def examples(cls):
        yield cls(), [(2, 3, 4)]
        yield cls(), [(2, 3)]
        yield cls(start=0), [(2, 3)]
        yield cls(start=-2), [(2, 3, 4, 5)]
