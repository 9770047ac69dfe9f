"""Sum: over one axis, several, or all."""

import numpy as np

from puregraph.arguments import Flag
from puregraph.core.shape import normalAxis
from puregraph.errors import need
from puregraph.kernels.reduce import total
from puregraph.module import Module


class _Reduction(Module):
    """The base of Sum, Mean, Max and Min; `purpose` says what needs an element along the axes."""

    purpose = ""
    flopsPerElement = 1

    def __init__(self, axis=None, keepdims: Flag = False, name=None):
        super().__init__(name)
        self.axis = tuple(axis) if isinstance(axis, list) else axis
        self.keepdims = keepdims

    def dataShapeFrom(self, x):
        return reduced(x, self.axis, self.keepdims, self.purpose)


class Sum(_Reduction):
    """y = sum of x over `axis`: an integer, a tuple, or None for all axes; `keepdims` leaves them with length one.

    Shapes    x (any) -> y without the axes, or of length one there
    Source    the NumPy reference, numpy.sum; PuzzleLib's Sum
    Raises    ShapeError if x has no such axis, or one is named twice
    """

    reads = ()
    followsValues = True

    def dataTypeFrom(self, x):
        return None if x is None else np.zeros(1, x).sum().dtype

    def updateData(self, x):
        return total(x, self.axis, self.keepdims)

    def updateGrad(self, grad, x, y):
        return np.broadcast_to(grad.reshape(reduced(x.shape, self.axis, True)), x.shape).copy()

    @classmethod
    def examples(cls):
        yield cls(), [(2, 3)]
        yield cls(axis=1), [(2, 3)]
        yield cls(axis=(0, -1), keepdims=True), [(2, 3, 4)]
        yield cls(keepdims=True), [(2, 3)]
        yield cls(axis=()), [(2, 3)]


def reduced(shape, axis, keepdims, purpose=""):
    """The shape without the axes, or of length one there; for a purpose, none of them may be empty."""
    given = range(len(shape)) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    axes = [normalAxis(a, len(shape)) for a in given]
    need(len(set(axes)) == len(axes), "every axis at most once", axis)
    need(not purpose or all(shape[i] != 0 for i in axes), f"at least one element {purpose}", shape)
    return tuple(1 if i in axes else size for i, size in enumerate(shape) if keepdims or i not in axes)
