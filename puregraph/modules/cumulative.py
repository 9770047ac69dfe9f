"""Accumulation: cumulative sums and products along an axis."""

import numpy as np

from puregraph.core.arguments import Flag, Whole
from puregraph.core.shape import givenNumber, normalAxis, sizesOf
from puregraph.graph.module import Module
from puregraph.ops.reduction.cumulate import cumulate
from puregraph.ops.reduction.cumulategrads import cumulateRule


class _Cumulative(Module):
    """Base class: along `axis`, without the element itself if `exclusive`, from the end if `reverse`.

    If `axis` is None, `along` is a second input: the axis.
    """

    keepsDtype = True
    followsValues = True
    indices = shapeInputs = ("along",)

    def __init__(self, axis: Whole | None = 0, exclusive: Flag = False, reverse: Flag = False, name=None):
        super().__init__(name)
        self.axis, self.exclusive, self.reverse = axis, exclusive, reverse
        if axis is not None:
            self.along = None

    def dataShapeFrom(self, x, along=None):
        axis = givenNumber(along, "along", "axis") if self.axis is None else self.axis
        if axis is not None:
            normalAxis(axis, len(x))
        return x

    def axisFrom(self, along):
        """Return the axis: the one in `along`, or that of the module."""
        return self.axis if along is None else sizesOf(along)[0]

    def sample(self, rng, x, *along):
        return [rng.standard_normal(x), *[np.zeros(shape, int) for shape in along]]

    @classmethod
    def examples(cls):
        yield cls(), [(3, 2)]
        yield cls(axis=-1, exclusive=True), [(2, 3)]
        yield cls(axis=1, reverse=True), [(2, 3)]
        yield cls(axis=0, exclusive=True, reverse=True), [(4,)]
        yield cls(axis=None), [(2, 3), ()]
        yield cls(axis=None, reverse=True), [(2, 3), (1,)]


class CumSum(_Cumulative):
    """y_i = sum over j <= i of x_j along `axis`; j < i if `exclusive`; j >= i if `reverse`.

    If `axis` is None, `along` is a second input: the axis.

    Shapes    x (any with that axis), along () or (1,) -> y as x
    Source    ONNX operator CumSum
    Raises    ShapeError if x has no such axis
    """

    reads = ("along",)

    def updateData(self, x, along=None):
        return cumulate(x, self.axisFrom(along), "sum", self.exclusive, self.reverse)

    def updateGrad(self, grad, x, along, y):
        return cumulate(grad, self.axisFrom(along), "sum", self.exclusive, not self.reverse), None


class CumProd(_Cumulative):
    """y_i = product over j <= i of x_j along `axis`; j < i if `exclusive`; j >= i if `reverse`.

    If `axis` is None, `along` is a second input: the axis.

    Shapes    x (any with that axis), along () or (1,) -> y as x
    Source    ONNX operator CumProd
    Raises    ShapeError if x has no such axis
    """

    reads = ("x", "along")

    def updateData(self, x, along=None):
        return cumulate(x, self.axisFrom(along), "product", self.exclusive, self.reverse)

    def updateGrad(self, grad, x, along, y):
        return cumulateRule(grad, y, x, self.axisFrom(along), "product", self.exclusive, self.reverse), None
