"""ArgMin: the index of the smallest element along an axis."""

from puregraph.modules.argextremum import _ArgExtremum


class ArgMin(_ArgExtremum):
    """y = the first index along `axis` at which x is smallest, as int64; `keepdims` leaves the axis with length one.

    Shapes    x (..., n, ...) -> y without the axis, or of length one there
    Source    the NumPy reference, numpy.argmin; ONNX operator ArgMin
    Raises    ShapeError if x has no such axis, or it is empty
    """

    def updateData(self, x):
        return x.argmin(axis=self.axis, keepdims=self.keepdims)
