"""ArgMax: the index of the largest element along an axis."""

from puregraph.modules.argextremum import _ArgExtremum


class ArgMax(_ArgExtremum):
    """y = the first index along `axis` at which x is largest, as int64; `keepdims` leaves the axis with length one.

    Shapes    x (..., n, ...) -> y without the axis, or of length one there
    Source    the NumPy reference, numpy.argmax; ONNX operator ArgMax
    Raises    ShapeError if x has no such axis, or it is empty
    """

    def updateData(self, x):
        return x.argmax(axis=self.axis, keepdims=self.keepdims)
