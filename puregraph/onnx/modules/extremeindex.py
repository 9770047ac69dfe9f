"""LastExtreme: the last index of the largest or smallest element along an axis."""

import numpy as np

from puregraph.core.arguments import Flag, Whole
from puregraph.core.shape import normalAxis
from puregraph.modules.reduction import _ArgExtremum


class LastExtreme(_ArgExtremum):
    """y = the last index along `axis` at which x is largest, or smallest, as int64; `keepdims` leaves length one.

    Shapes    x (..., n, ...) -> y without the axis, or of length one there
    Source    ONNX operators ArgMax and ArgMin with select_last_index
    Raises    ShapeError if x has no such axis, or it is empty
    """

    def __init__(self, axis: Whole = -1, keepdims: Flag = False, largest: Flag = True, name=None):
        super().__init__(axis, keepdims, name)
        self.largest = largest

    def updateData(self, x):
        axis = normalAxis(self.axis, x.ndim)
        backward = np.flip(x, axis)
        fromEnd = (backward.argmax if self.largest else backward.argmin)(axis=axis, keepdims=self.keepdims)
        return x.shape[axis] - 1 - fromEnd
