"""Normalization by a norm along an axis, and by neighbouring channels."""

import numpy as np

from puregraph.autodiff.derivatives.ruletape import derivedGrad
from puregraph.core.arguments import Count, Flag, Number, Whole
from puregraph.core.base.widen import widened
from puregraph.core.errors import need
from puregraph.core.shape import normalAxis
from puregraph.graph.module import Module
from puregraph.ops.pooling.reference import meanPool
from puregraph.ops.reduction.reference import total


class LpNormalize(Module):
    """y = x / (sum |x|^p)^(1/p) along the axis; 0 where the sum is 0

    Shapes    x (any with that axis) -> y as x
    Source    ONNX operator LpNormalization
    Raises    ShapeError if x has no such axis
    """

    reads = ("x",)
    needsFloats = True
    flopsPerElement = 4

    def __init__(self, p: Count = 2, axis: Whole = -1, name=None):
        super().__init__(name)
        self.p, self.axis = p, axis

    def dataShapeFrom(self, x):
        normalAxis(self.axis, len(x))
        return x

    def norm(self, x):
        """The norm along the axis, 1 where it is 0."""
        norms = total(np.abs(x) ** self.p, self.axis, keepdims=True) ** (1 / self.p)
        return np.where(norms == 0, 1, norms).astype(x.dtype, copy=False)

    def updateData(self, x):
        return x / self.norm(x)

    def updateGrad(self, grad, x, y):
        n = self.norm(x)
        along = total(grad * x, self.axis, keepdims=True)
        slope = np.abs(x) ** (self.p - 1) * np.sign(x) * n ** (1 - self.p)
        return (grad / n - along * slope / (n * n)).astype(x.dtype, copy=False)

    @classmethod
    def examples(cls):
        yield cls(), [(2, 3)]
        yield cls(1, axis=0), [(3, 2)]


class LocalResponseNorm(Module):
    """y_c = x_c / (bias + alpha / size sum over `size` channels around c of x^2)^beta

    Shapes    x (n, maps, *spatial) -> y as x
    Source    Krizhevsky, Sutskever, Hinton 2012, section 3.3; ONNX operator LRN
    Raises    ShapeError if x has no channels
    """

    reads = ("x",)
    needsFloats = True

    def __init__(self, size: Count, alpha: Number = 1e-4, beta: Number = 0.75, bias: Number = 1.0, name=None):
        super().__init__(name)
        self.size, self.alpha, self.beta, self.bias = size, alpha, beta, bias

    def dataShapeFrom(self, x):
        need(len(x) >= 2, "(n, maps, *spatial)", x)
        return x

    def around(self, x, before):
        """Return the sum over `size` neighbouring channels, `before` of them before each one."""
        after = self.size - 1 - before
        paddedX = np.pad(x, [(0, 0), (before, after), *[(0, 0)] * (x.ndim - 2)])
        return sum(paddedX[:, i : i + x.shape[1]] for i in range(self.size))

    def scale(self, x):
        """The base of the divisor of x, before the power beta."""
        return self.bias + self.alpha / self.size * self.around(x * x, (self.size - 1) // 2)

    def updateData(self, x):
        return response(x, self)

    def updateGrad(self, grad, x, y):
        return responseBack(grad, x, self)

    def flopsFrom(self, x):
        flops = self.size + 4
        for n in x:
            flops = flops * n
        return flops

    @classmethod
    def examples(cls):
        yield cls(3, alpha=0.5), [(2, 4, 2)]
        yield cls(2, alpha=0.3, bias=2.0), [(1, 3, 2, 2)]


class _OfWindows(Module):
    """Base class of modules that compare each element with the means of windows of `size` around it, of odd length."""

    reads = ("x",)
    needsFloats = True

    def __init__(self, size, includePad=True, name=None):
        super().__init__(name)
        need(size % 2 == 1, "an odd size", size)
        self.size, self.includePad = size, includePad

    def dataShapeFrom(self, x):
        need(len(x) > 2, "(n, maps, *spatial)", x)
        return x

    def means(self, x):
        """The mean of each window; padding counts as zeros, or not at all."""
        rank, half = x.ndim - 2, self.size // 2
        return meanPool(x, (self.size,) * rank, (1,) * rank, ((half, half),) * rank, self.includePad)

    def updateGrad(self, grad, *values, needs):
        return derivedGrad(self.updateData, grad, values, needs)

    @classmethod
    def examples(cls):
        yield cls(3), [(2, 2, 4, 3)]
        yield cls(5, includePad=False), [(1, 2, 6)]


class SubtractMean(_OfWindows):
    """y = x - mean of the window of `size` elements along each axis around x, of the same map

    Shapes    x (n, maps, *spatial) -> y as x
    Source    Jarrett, Kavukcuoglu, Ranzato, LeCun 2009, What is the Best Multi-Stage Architecture, section 2.2;
              PuzzleLib's SubtractMean
    Raises    ShapeError if x has no spatial axis, or the size is even
    """

    def __init__(self, size: Count = 5, includePad: Flag = True, name=None):
        super().__init__(size, includePad, name)

    def updateData(self, x):
        return x - self.means(x)


class MapLRN(_OfWindows):
    """y = x / (K + alpha mean of x^2 over N elements along each axis around x, of the same map)^beta

    Shapes    x (n, maps, *spatial) -> y as x
    Source    Krizhevsky 2012, cuda-convnet, local response normalization in a map; PuzzleLib's MapLRN
    Raises    ShapeError if x has no spatial axis, or N is even
    """

    def __init__(
        self,
        N: Count = 5,
        alpha: Number = 1e-4,
        beta: Number = 0.75,
        K: Number = 2.0,
        includePad: Flag = True,
        name=None,
    ):
        super().__init__(N, includePad, name)
        self.alpha, self.beta, self.K = alpha, beta, K

    def updateData(self, x):
        return x * (self.K + self.alpha * self.means(x * x)) ** -self.beta


class LCN(MapLRN):
    """y = d / (K + alpha mean of d^2)^beta, d = x - mean of x: MapLRN behind SubtractMean, of the same windows

    Shapes    x (n, maps, *spatial) -> y as x
    Source    Jarrett, Kavukcuoglu, Ranzato, LeCun 2009, section 2.2; PuzzleLib's LCN
    Raises    ShapeError if x has no spatial axis, or N is even
    """

    def updateData(self, x):
        return super().updateData(x - self.means(x))


@widened
def response(x, module):
    """Return x / scale(x)^beta."""
    return x * module.scale(x) ** -module.beta


@widened
def responseBack(grad, x, module):
    """Return the gradient of x: through the numerator, and through each denominator that x is part of."""
    s = module.scale(x)
    size, beta = module.size, module.beta
    through = module.around(grad * x * s ** (-beta - 1), size - 1 - (size - 1) // 2)
    return grad * s**-beta - 2 * module.alpha * beta / size * x * through
