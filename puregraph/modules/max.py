"""Max: the largest along one axis, several, or all."""

from puregraph.modules.extremum import _Extremum


class Max(_Extremum):
    """y = max of x over `axis`: an integer, a tuple, or None for all axes; `keepdims` leaves them with length one.

    Where several are the largest, each gets an equal part of the gradient. NaN is greater than any other value.

    Shapes    x (any) -> y without the axes, or of length one there
    Source    ONNX operator ReduceMax; the even split is torch.amax's
    Raises    ShapeError if x has no such axis, one is named twice, or there is nothing to choose from
    """

    def updateData(self, x):
        return x.max(axis=self.axis, keepdims=self.keepdims)
