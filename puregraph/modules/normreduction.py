"""Reductions along axes: products, norms, and logarithms of sums."""

from math import prod

import numpy as np

from puregraph.core.arguments import Count, Flag
from puregraph.core.base.widen import widened
from puregraph.core.shape import normalAxis
from puregraph.modules.reduction import Sum, _Reduction, reduced
from puregraph.ops.reduction.reference import logSumExp, total


class Prod(_Reduction):
    """y = product of x over `axis`: an integer, a tuple, or None for all axes; `keepdims` leaves length one.

    Shapes    x (any) -> y without the axes, or of length one there
    Source    ONNX operator ReduceProd
    Raises    ShapeError if x has no such axis, or one is named twice
    """

    reads = ("x",)
    keepsDtype = True
    followsValues = True

    def updateData(self, x):
        return x.prod(axis=self.axis, keepdims=self.keepdims, dtype=x.dtype)

    def updateGrad(self, grad, x, y):
        return productGrad(grad, x, self.axis)

    @classmethod
    def examples(cls):
        yield cls(), [(2, 3)]
        yield cls(axis=1), [(2, 3)]
        yield cls(axis=(0, -1), keepdims=True), [(2, 3, 2)]
        yield cls(axis=()), [(2,)]


@widened
def productGrad(grad, x, axis):
    """Return grad times the product of all other elements, computed from both ends without dividing by a zero."""
    axes = tuple(range(x.ndim)) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    axes = tuple(normalAxis(a, x.ndim) for a in axes)
    keptAxes = tuple(a for a in range(x.ndim) if a not in axes)
    moved = x.transpose(*keptAxes, *axes)
    rows = moved.reshape(*[x.shape[a] for a in keptAxes], prod(x.shape[a] for a in axes))
    ones = np.ones_like(rows[..., :1])
    before = np.concatenate([ones, np.cumprod(rows[..., :-1], axis=-1)], axis=-1)
    after = np.concatenate([ones, np.cumprod(rows[..., :0:-1], axis=-1)], axis=-1)[..., ::-1]
    order = [*keptAxes, *axes]
    others = (before * after).reshape(moved.shape).transpose([order.index(axis) for axis in range(x.ndim)])
    return grad.reshape(reduced(x.shape, axis, True)) * others


class LogSumExp(_Reduction):
    """y = m + ln sum exp(x - m), m = max x, over `axis`.

    Shapes    x (any) -> y without the axes, or of length one there
    Source    ONNX operator ReduceLogSumExp
    Raises    ShapeError if x has no such axis, or one is named twice
    """

    reads = ("x", "y")
    needsFloats = True

    def updateData(self, x):
        axes = tuple(range(x.ndim)) if self.axis is None else self.axis
        if x.size == 0:
            return np.full_like(x, -np.inf, shape=self.dataShapeFrom(x.shape))
        return logSumExp(x, axes, self.keepdims)

    def updateGrad(self, grad, x, y):
        kept = reduced(x.shape, self.axis, True)
        return grad.reshape(kept) * np.exp(x - y.reshape(kept))

    @classmethod
    def examples(cls):
        yield cls(), [(2, 3)]
        yield cls(axis=1), [(2, 3)]
        yield cls(axis=(0, -1), keepdims=True), [(2, 3, 2)]


class _SumOf(_Reduction):
    """Base class of y = g(sum of f(x)) over `axis`."""

    reads = ("x", "y")
    needsFloats = True

    def summed(self, x):
        return total(x, self.axis, self.keepdims)

    def back(self, grad, x):
        """Return the gradient of the sum, broadcast to every element of x."""
        return np.broadcast_to(grad.reshape(reduced(x.shape, self.axis, True)), x.shape)

    @classmethod
    def examples(cls):
        yield cls(), [(2, 3)]
        yield cls(axis=1), [(2, 3)]
        yield cls(axis=(0, -1), keepdims=True), [(2, 3, 2)]


class L1Norm(_SumOf):
    """y = sum |x| over `axis`.

    Shapes    x (any) -> y without the axes, or of length one there
    Source    ONNX operator ReduceL1
    Raises    ShapeError if x has no such axis, or one is named twice
    """

    needsFloats = False
    dataTypeFrom = Sum.dataTypeFrom

    def updateData(self, x):
        return self.summed(np.abs(x))

    def updateGrad(self, grad, x, y):
        return self.back(grad, x) * np.sign(x)


class SumSquares(_SumOf):
    """y = sum x^2 over `axis`.

    Shapes    x (any) -> y without the axes, or of length one there
    Source    ONNX operator ReduceSumSquare
    Raises    ShapeError if x has no such axis, or one is named twice
    """

    needsFloats = False
    dataTypeFrom = Sum.dataTypeFrom

    def updateData(self, x):
        return self.summed(x * x)

    def updateGrad(self, grad, x, y):
        return self.back(grad, x) * (2 * x)


class L2Norm(_SumOf):
    """y = sqrt(sum x^2) over `axis`; its gradient is 0 where y is.

    Shapes    x (any) -> y without the axes, or of length one there
    Source    ONNX operator ReduceL2
    Raises    ShapeError if x has no such axis, or one is named twice
    """

    def updateData(self, x):
        return norm(x, self.axis, self.keepdims)

    def updateGrad(self, grad, x, y):
        below = np.broadcast_to(y.reshape(reduced(x.shape, self.axis, True)), x.shape)
        return np.where(below == 0, 0, self.back(grad, x) * x / np.where(below == 0, 1, below)).astype(
            x.dtype, copy=False
        )


@widened
def norm(x, axis, keepdims):
    """The square root of the sum of squares."""
    return np.sqrt(total(x * x, axis, keepdims))


class LogSum(_SumOf):
    """y = ln(sum x) over `axis`.

    Shapes    x (any) -> y without the axes, or of length one there
    Source    ONNX operator ReduceLogSum
    Raises    ShapeError if x has no such axis, or one is named twice
    """

    def updateData(self, x):
        with np.errstate(divide="ignore"):  # the sum of no elements is 0
            return np.log(self.summed(x))

    def updateGrad(self, grad, x, y):
        return (self.back(grad, x) * np.exp(-y.reshape(reduced(x.shape, self.axis, True)))).astype(x.dtype, copy=False)

    def sample(self, rng, x):
        return [1 + rng.random(x)]


class LpNorm(_SumOf):
    """y = (sum |x|^p)^(1/p) over `axis`.

    Shapes    x (any) -> y without the axes, or of length one there
    Source    ONNX operators GlobalLpPool and LpNormalization
    Raises    ShapeError if x has no such axis, or one is named twice
    """

    def __init__(self, p: Count = 2, axis=None, keepdims: Flag = False, name=None):
        super().__init__(axis, keepdims, name)
        self.p = p

    def updateData(self, x):
        return (self.summed(np.abs(x) ** self.p) ** (1 / self.p)).astype(x.dtype, copy=False)

    def updateGrad(self, grad, x, y):
        below = y.reshape(reduced(x.shape, self.axis, True))
        share = np.where(below == 0, 0, np.where(below == 0, 1, below) ** (1 - self.p))
        return (self.back(grad, x) * share * np.abs(x) ** (self.p - 1) * np.sign(x)).astype(x.dtype, copy=False)

    @classmethod
    def examples(cls):
        yield cls(2, 1, True), [(2, 3)]
        yield cls(3), [(2, 3)]
