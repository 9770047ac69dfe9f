"""Determinant: of each matrix."""

import numpy as np

from puregraph.base.widen import widened
from puregraph.errors import need
from puregraph.module import Module


class Determinant(Module):
    """y = det x; its gradient is the matrix of cofactors, also where x is singular.

    Shapes    x (..., n, n) -> y (...)
    Source    ONNX operator Det; the gradient: Giles 2008, section 2.2.4
    Raises    ShapeError if x is no square matrix
    """

    reads = ("x",)
    needsFloats = True

    def dataShapeFrom(self, x):
        need(len(x) >= 2 and x[-1] == x[-2], "square matrices", x)
        return x[:-2]

    def updateData(self, x):
        return determinants(x)

    def updateGrad(self, grad, x, y):
        return grad[..., None, None] * cofactors(x)

    @classmethod
    def examples(cls):
        yield cls(), [(3, 3)]
        yield cls(), [(2, 2, 2)]


@widened
def determinants(x):
    """The determinant of each matrix."""
    return np.asarray(np.linalg.det(x), x.dtype)


@widened
def cofactors(x):
    """The cofactors of each matrix U S V: det(U V) U T V, T the products of all singular values but one."""
    u, s, v = np.linalg.svd(x)
    others = np.where(np.eye(s.shape[-1], dtype=bool), s.dtype.type(1), s[..., None, :]).prod(-1)
    sign = np.linalg.det(u) * np.linalg.det(v)
    return np.asarray(sign[..., None, None] * ((u * others[..., None, :]) @ v), x.dtype)
