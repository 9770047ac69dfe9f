"""Transpose: the axes in another order."""

from puregraph.arguments import Axes, optional
from puregraph.core.shape import AXES, normalAxis
from puregraph.errors import need
from puregraph.module import Module


class Transpose(Module):
    """y[i_axes[0], i_axes[1], ...] = x[i_0, i_1, ...]: axis k of y is axis `axes[k]` of x; without `axes`, reversed.

    Shapes    x (d_0, d_1, ...) -> y (d_axes[0], d_axes[1], ...)
    Source    ONNX operator Transpose; PuzzleLib's Transpose
    Raises    ShapeError if `axes` does not name each axis of x once
    """

    reads = ()
    views = True
    flopsPerElement = 0
    followsValues = True

    def __init__(self, axes: optional(Axes) = None, name=None):
        super().__init__(name)
        need(len(axes or ()) <= AXES, f"at most {AXES} axes", len(axes or ()))
        self.axes = None if axes is None else tuple(normalAxis(axis, len(axes), "axes") for axis in axes)
        need(axes is None or len(set(self.axes)) == len(axes), "every axis once", tuple(axes or ()))

    def order(self, rank):
        """For each axis of y, the axis of x."""
        return tuple(reversed(range(rank))) if self.axes is None else self.axes

    def dataShapeFrom(self, x):
        axes = self.order(len(x))
        need(len(axes) == len(x), f"{len(axes)} axes", x, f"the axes are {axes}")
        return tuple(x[axis] for axis in axes)

    def updateData(self, x):
        return x.transpose(self.order(x.ndim))

    def updateGrad(self, grad, x, y):
        axes = self.order(x.ndim)
        return grad.transpose(tuple(sorted(range(len(axes)), key=axes.__getitem__)))

    @classmethod
    def examples(cls):
        yield cls(), [(2, 3, 4)]
        yield cls((0, 2, 3, 1)), [(2, 3, 4, 5)]
        yield cls((-1, 0, 1)), [(2, 3, 4)]
