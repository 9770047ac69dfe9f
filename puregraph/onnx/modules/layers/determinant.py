"""Determinant: of each matrix."""

import numpy as np

from puregraph.base.widen import widened
from puregraph.errors import need
from puregraph.module import Module


class Determinant(Module):
    """y = det x

    Shapes    x (..., n, n) -> y (...)
    Source    ONNX operator Det; the gradient: Giles 2008, section 2.2.4
    Raises    ShapeError if x is no square matrix
    """

    reads = ("x", "y")
    needsFloats = True

    def dataShapeFrom(self, x):
        need(len(x) >= 2 and x[-1] == x[-2], "square matrices", x)
        return x[:-2]

    def updateData(self, x):
        return determinants(x)

    def updateGrad(self, grad, x, y):
        return inverses(grad, x, y)

    @classmethod
    def examples(cls):
        yield cls(), [(3, 3)]
        yield cls(), [(2, 2, 2)]


@widened
def determinants(x):
    """The determinant of each matrix."""
    return np.asarray(np.linalg.det(x), x.dtype)


@widened
def inverses(grad, x, y):
    """The transposed inverse of each matrix, times a number."""
    return (grad * y)[..., None, None] * np.linalg.inv(x).swapaxes(-1, -2)
