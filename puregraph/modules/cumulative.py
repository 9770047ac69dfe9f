"""Accumulation: cumulative sums and products along an axis."""

from puregraph.core.arguments import Flag, Whole
from puregraph.core.shape import normalAxis
from puregraph.graph.module import Module
from puregraph.ops.reduction.cumulate import cumulate
from puregraph.ops.reduction.cumulategrads import cumulateRule


class _Cumulative(Module):
    """Base class: along `axis`, without the element itself if `exclusive`, from the end if `reverse`."""

    keepsDtype = True
    followsValues = True

    def __init__(self, axis: Whole = 0, exclusive: Flag = False, reverse: Flag = False, name=None):
        super().__init__(name)
        self.axis, self.exclusive, self.reverse = axis, exclusive, reverse

    def dataShapeFrom(self, x):
        normalAxis(self.axis, len(x))
        return x

    @classmethod
    def examples(cls):
        yield cls(), [(3, 2)]
        yield cls(axis=-1, exclusive=True), [(2, 3)]
        yield cls(axis=1, reverse=True), [(2, 3)]
        yield cls(axis=0, exclusive=True, reverse=True), [(4,)]


class CumSum(_Cumulative):
    """y_i = sum over j <= i of x_j along `axis`; j < i if `exclusive`; j >= i if `reverse`.

    Shapes    x (any with that axis) -> y as x
    Source    ONNX operator CumSum
    Raises    ShapeError if x has no such axis
    """

    reads = ()

    def updateData(self, x):
        return cumulate(x, self.axis, "sum", self.exclusive, self.reverse)

    def updateGrad(self, grad, x, y):
        return cumulate(grad, self.axis, "sum", self.exclusive, not self.reverse)


class CumProd(_Cumulative):
    """y_i = product over j <= i of x_j along `axis`; j < i if `exclusive`; j >= i if `reverse`.

    Shapes    x (any with that axis) -> y as x
    Source    ONNX operator CumProd
    Raises    ShapeError if x has no such axis
    """

    reads = ("x",)

    def updateData(self, x):
        return cumulate(x, self.axis, "product", self.exclusive, self.reverse)

    def updateGrad(self, grad, x, y):
        return cumulateRule(grad, y, x, self.axis, "product", self.exclusive, self.reverse)
