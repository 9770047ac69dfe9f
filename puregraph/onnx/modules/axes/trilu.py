"""Trilu: a triangle of each matrix."""

import numpy as np

from puregraph.arguments import Flag, Whole
from puregraph.core.tracer import arrayLike
from puregraph.errors import need
from puregraph.module import Module


class Trilu(Module):
    """y[..., i, j] = x[..., i, j] where j >= i + diagonal, or j <= i + diagonal if not `upper`; else 0.

    Shapes    x (..., n, m) -> y as x
    Source    ONNX operator Trilu
    Raises    ShapeError if x is no matrix
    """

    reads = ()
    keepsDtype = True

    def __init__(self, upper: Flag = True, diagonal: Whole = 0, name=None):
        super().__init__(name)
        self.upper, self.diagonal = upper, diagonal

    def dataShapeFrom(self, x):
        need(len(x) >= 2, "a matrix", x)
        return x

    def kept(self, x):
        """Where the elements are that are kept."""
        rows, columns = np.arange(x.shape[-2])[:, None], np.arange(x.shape[-1])
        far = columns - rows
        return arrayLike(x, far >= self.diagonal if self.upper else far <= self.diagonal)

    def updateData(self, x):
        return np.where(self.kept(x), x, np.zeros_like(x))

    def updateGrad(self, grad, x, y):
        return np.where(self.kept(grad), grad, np.zeros_like(grad))

    @classmethod
    def examples(cls):
        yield cls(), [(3, 2)]
        yield cls(upper=False, diagonal=-1), [(2, 3, 3)]
