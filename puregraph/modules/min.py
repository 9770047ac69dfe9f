"""Min: the smallest along one axis, several, or all."""

from puregraph.modules.extremum import _Extremum


class Min(_Extremum):
    """y = min of x over `axis`: an integer, a tuple, or None for all axes; `keepdims` leaves them with length one.

    Where several are the smallest, each gets an equal part of the gradient. NaN is less than any other value.

    Shapes    x (any) -> y without the axes, or of length one there
    Source    ONNX operator ReduceMin; the even split is torch.amin's
    Raises    ShapeError if x has no such axis, one is named twice, or there is nothing to choose from
    """

    def updateData(self, x):
        return x.min(axis=self.axis, keepdims=self.keepdims)
