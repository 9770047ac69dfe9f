"""Gather: elements of an array, read by index along an axis."""

import numpy as np

from puregraph.arguments import Whole
from puregraph.core.shape import normalAxis, valueOf
from puregraph.errors import DataError
from puregraph.kernels import scatter
from puregraph.module import Module


class Gather(Module):
    """y[..., i, ...] = x[..., index[i], ...] along `axis`, and zero where the index is -1

    Elements that are read several times get the sum of the gradients. The index may have any rank.

    Shapes    x (*a, n, *b), index (*i) integers -> y (*a, *i, *b)
    Source    ONNX operator Gather
    Raises    DataError if an index is below -1 or not below n, or no integer; ShapeError if x has no such axis
    """

    reads = ("index",)
    keepsDtype = True
    indices = ("index",)
    flopsPerElement = 0

    def __init__(self, axis: Whole = 0, name=None):
        super().__init__(name)
        self.axis = axis

    def dataShapeFrom(self, x, index):
        axis = normalAxis(self.axis, len(x))
        return (*x[:axis], *index, *x[axis + 1 :])

    def valueFrom(self, x, index):
        values, positions = valueOf(x), valueOf(index)
        if values is None or positions is None or positions.dtype.kind == "O" or (positions < 0).any():
            return None
        return np.asarray(values.take(positions, axis=self.axis), values.dtype)  # of a lone symbol too

    def updateData(self, x, index):
        if index.dtype.kind not in "iu":
            raise DataError(
                f"Gather: wanted whole numbers as indices, got {index.dtype}; convert with .astype('int64')"
            )
        axis = normalAxis(self.axis, x.ndim)
        try:
            y = scatter.gather(np.moveaxis(x, axis, 0), index)
        except IndexError as error:
            raise DataError(f"Gather: axis {axis} has length {x.shape[axis]}: {error}") from None
        first = index.ndim
        return y.transpose((*range(first, first + axis), *range(first), *range(first + axis, y.ndim)))

    def updateGrad(self, grad, x, index, y):
        axis = normalAxis(self.axis, x.ndim)
        last = axis + index.ndim
        parts = grad.transpose((*range(axis, last), *range(axis), *range(last, grad.ndim)))
        return np.moveaxis(scatter.scatterAdd(parts, index, x.shape[axis]), 0, axis), None

    def sample(self, rng, x, index):
        return [rng.standard_normal(x), rng.integers(-1, x[self.axis], index)]

    @classmethod
    def examples(cls):
        yield cls(), [(4, 3), (5,)]
        yield cls(axis=1), [(2, 3, 4), (2, 2)]
        yield cls(axis=-1), [(2, 5), ()]
