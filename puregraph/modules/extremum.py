"""The base of Max and Min: the largest or smallest along axes, with the gradient split among equals."""

import numpy as np

from puregraph.base.widen import widened
from puregraph.core.dim import Dim
from puregraph.core.shape import asValue, valueOf
from puregraph.modules.sum import _Reduction, reduced


class _Extremum(_Reduction):
    reads = ("x", "y")
    purpose = "to choose from"
    withPadding = "Where() fills them"
    keepsDtype = True

    def valueFrom(self, x):
        value = valueOf(x)
        if value is None or any(isinstance(size, Dim) for size in value.ravel().tolist()):
            return None  # which of two symbols is larger is not known
        return asValue(self.updateData(value))

    def updateGrad(self, grad, x, y):
        kept = reduced(x.shape, self.axis, True)
        return shared(grad.reshape(kept), x, y.reshape(kept), self.axis)

    @classmethod
    def examples(cls):
        yield cls(), [(2, 3)]
        yield cls(axis=1), [(2, 3)]
        yield cls(axis=(0, -1), keepdims=True), [(2, 3, 4)]
        yield cls(keepdims=True), [(2, 3)]


@widened
def shared(grad, x, y, axis):
    """The gradient in equal parts where x is y, both perhaps NaN, and zero elsewhere."""
    if x.size == 0:
        return np.zeros_like(x)
    chosen = (x == y) | (x != x) & (y != y)
    return np.where(chosen, grad / chosen.sum(axis=axis, keepdims=True).astype(grad.dtype), 0)
