"""Mean: over one axis, several, or all."""

import numpy as np

from puregraph.base.widen import divided
from puregraph.kernels.reduce import average
from puregraph.modules.sum import _Reduction, reduced


class Mean(_Reduction):
    """y = 1/m sum of x over `axis`, m elements: an integer, a tuple, or None for all; `keepdims` leaves length one.

    Shapes    x (any) -> y without the axes, or of length one there
    Source    the NumPy reference, numpy.mean; Lin, Chen, Yan 2014, arXiv:1312.4400, 3.2: global pooling
    Raises    ShapeError if x has no such axis, one is named twice, or there is nothing to average
    """

    reads = ()
    purpose = "to average"
    withPadding = "Sum(1) / lengths is the mean within them"

    def dataTypeFrom(self, x):
        return None if x is None else np.zeros(1, x).mean().dtype

    def updateData(self, x):
        return average(x, self.axis, self.keepdims)

    def updateGrad(self, grad, x, y):
        count = x.size // max(y.size, 1)
        return np.broadcast_to(divided(grad, count).reshape(reduced(x.shape, self.axis, True)), x.shape).copy()

    @classmethod
    def examples(cls):
        yield cls(), [(2, 3)]
        yield cls(axis=-1), [(2, 3)]
        yield cls(axis=(2, 3)), [(2, 3, 2, 2)]
        yield cls(axis=0, keepdims=True), [(2, 3)]
