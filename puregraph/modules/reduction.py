"""Reductions along axes: Sum, Mean, Max, Min, and where the largest and smallest elements are."""

from collections.abc import Callable
from typing import Any

import numpy as np

from puregraph.core.arguments import Flag, Whole
from puregraph.core.base.widen import divided, widened
from puregraph.core.dim import Dim
from puregraph.core.errors import need
from puregraph.core.shape import asValue, normalAxis, valueOf
from puregraph.graph.module import Module
from puregraph.ops.reduction.reference import average, total


class _Reduction(Module):
    """Base class of Sum, Mean, Max and Min; `purpose` names the operation that needs an element along the axes."""

    purpose = ""
    flopsPerElement = 1

    def __init__(self, axis=None, keepdims: Flag = False, name=None):
        super().__init__(name)
        self.axis = tuple(axis) if isinstance(axis, list) else axis
        self.keepdims = keepdims

    def dataShapeFrom(self, x):
        return reduced(x, self.axis, self.keepdims, self.purpose)


class _MayBeEmpty(_Reduction):
    """Base class of reductions that need an element, unless `mayBeEmpty` says what stands for none."""

    neutral: Callable[..., Any]
    reduce: Callable[..., Any]

    def __init__(self, axis=None, keepdims: Flag = False, name=None, mayBeEmpty: Flag = False):
        super().__init__(axis, keepdims, name)
        self.mayBeEmpty = mayBeEmpty
        if mayBeEmpty:
            self.purpose = ""

    def updateData(self, x):
        if self.mayBeEmpty and x.size == 0:
            shape = reduced(x.shape, self.axis, self.keepdims)
            return np.full_like(x, self.neutral(x.dtype), shape=shape, dtype=self.dataTypeFrom(x.dtype))
        return self.reduce(x)


class Sum(_Reduction):
    """y = sum of x over `axis`: an integer, a tuple, or None for all axes; `keepdims` leaves them with length one.

    Shapes    x (any) -> y without the axes, or of length one there
    Source    the NumPy reference, numpy.sum; PuzzleLib's Sum
    Raises    ShapeError if x has no such axis, or one is named twice
    """

    reads = ()
    followsValues = True

    def dataTypeFrom(self, x):
        return None if x is None else np.zeros(1, x).sum().dtype

    def updateData(self, x):
        return total(x, self.axis, self.keepdims)

    def updateGrad(self, grad, x, y):
        return np.broadcast_to(grad.reshape(reduced(x.shape, self.axis, True)), x.shape).copy()

    @classmethod
    def examples(cls):
        yield cls(), [(2, 3)]
        yield cls(axis=1), [(2, 3)]
        yield cls(axis=(0, -1), keepdims=True), [(2, 3, 4)]
        yield cls(keepdims=True), [(2, 3)]
        yield cls(axis=()), [(2, 3)]


def reduced(shape, axis, keepdims, purpose=""):
    """Return the shape without the axes, or of length one there. With a `purpose`, none of them may be empty."""
    listed = range(len(shape)) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    axes = [normalAxis(a, len(shape)) for a in listed]
    need(len(set(axes)) == len(axes), "every axis at most once", axis)
    need(not purpose or all(shape[i] != 0 for i in axes), f"at least one element {purpose}", shape)
    return tuple(1 if i in axes else size for i, size in enumerate(shape) if keepdims or i not in axes)


class Mean(_MayBeEmpty):
    """y = 1/m sum of x over `axis`, m elements: an integer, a tuple, or None for all; `keepdims` leaves length one.

    With `mayBeEmpty`, the mean of no elements is 0.

    Shapes    x (any) -> y without the axes, or of length one there
    Source    the NumPy reference, numpy.mean; Lin, Chen, Yan 2014, arXiv:1312.4400, 3.2: global pooling
    Raises    ShapeError if x has no such axis, one is named twice, or there is nothing to average
    """

    reads = ()
    purpose = "to average"
    withPadding = "Sum(1) / lengths is the mean within them"

    def dataTypeFrom(self, x):
        return None if x is None else np.zeros(1, x).mean().dtype

    def neutral(self, dtype):
        """The mean of no elements."""
        return 0

    def reduce(self, x):
        """The mean over the axes."""
        return average(x, self.axis, self.keepdims)

    def updateGrad(self, grad, x, y):
        count = max(1, x.size // max(y.size, 1))
        return np.broadcast_to(divided(grad, count).reshape(reduced(x.shape, self.axis, True)), x.shape).copy()

    @classmethod
    def examples(cls):
        yield cls(), [(2, 3)]
        yield cls(axis=-1), [(2, 3)]
        yield cls(axis=(2, 3)), [(2, 3, 2, 2)]
        yield cls(axis=0, keepdims=True), [(2, 3)]
        yield cls(axis=1, mayBeEmpty=True), [(2, 3)]


class _Extremum(_MayBeEmpty):
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
        yield cls(axis=1, mayBeEmpty=True), [(2, 3)]


@widened
def shared(grad, x, y, axis):
    """Return the gradient in equal parts where x equals y or both are NaN, and zero elsewhere."""
    if x.size == 0:
        return np.zeros_like(x)
    chosen = (x == y) | (x != x) & (y != y)
    return np.where(chosen, grad / chosen.sum(axis=axis, keepdims=True).astype(grad.dtype), 0)


class Max(_Extremum):
    """y = max of x over `axis`: an integer, a tuple, or None for all axes; `keepdims` leaves them with length one.

    Where several are the largest, each gets an equal part of the gradient. NaN is greater than any other value. With
    `mayBeEmpty`, the maximum of no elements is the least value of the dtype, -inf for floats.

    Shapes    x (any) -> y without the axes, or of length one there
    Source    ONNX operator ReduceMax; the even split is torch.amax's
    Raises    ShapeError if x has no such axis, one is named twice, or there is nothing to choose from
    """

    def neutral(self, dtype):
        """The least value of a dtype."""
        return bounds(dtype)[0]

    def reduce(self, x):
        """The maximum over the axes."""
        return x.max(axis=self.axis, keepdims=self.keepdims)


class Min(_Extremum):
    """y = min of x over `axis`: an integer, a tuple, or None for all axes; `keepdims` leaves them with length one.

    Where several are the smallest, each gets an equal part of the gradient. NaN is less than any other value. With
    `mayBeEmpty`, the minimum of no elements is the largest value of the dtype, inf for floats.

    Shapes    x (any) -> y without the axes, or of length one there
    Source    ONNX operator ReduceMin; the even split is torch.amin's
    Raises    ShapeError if x has no such axis, one is named twice, or there is nothing to choose from
    """

    def neutral(self, dtype):
        """The largest value of a dtype."""
        return bounds(dtype)[1]

    def reduce(self, x):
        """The minimum over the axes."""
        return x.min(axis=self.axis, keepdims=self.keepdims)


def bounds(dtype):
    """The least and the largest value of a dtype."""
    if dtype.kind == "b":
        return False, True
    return (np.iinfo(dtype).min, np.iinfo(dtype).max) if dtype.kind in "iu" else (-np.inf, np.inf)


class _ArgExtremum(Module):
    first: Callable[..., Any]
    reads = ()
    isDiscrete = True

    def __init__(self, axis: Whole = -1, keepdims: Flag = False, name=None, last: Flag = False):
        super().__init__(name)
        self.axis, self.keepdims, self.last = axis, keepdims, last

    def dataShapeFrom(self, x):
        axis = normalAxis(self.axis, len(x))
        need(x[axis] != 0, "at least one element to choose from", x)
        return (*x[:axis], *((1,) if self.keepdims else ()), *x[axis + 1 :])

    def dataTypeFrom(self, x):
        return np.dtype(np.int64)

    def updateData(self, x):
        if not self.last:
            return self.first(x)
        axis = normalAxis(self.axis, x.ndim)
        return x.shape[axis] - 1 - self.first(np.flip(x, axis))

    @classmethod
    def examples(cls):
        yield cls(), [(2, 3)]
        yield cls(axis=0), [(4,)]
        yield cls(axis=1, keepdims=True), [(2, 3, 2)]
        yield cls(axis=0, last=True), [(3, 2)]


class ArgMax(_ArgExtremum):
    """y = the first index along `axis` at which x is largest, as int64, or the last one with `last`.

    `keepdims` leaves the axis with length one.

    Shapes    x (..., n, ...) -> y without the axis, or of length one there
    Source    the NumPy reference, numpy.argmax; ONNX operator ArgMax
    Raises    ShapeError if x has no such axis, or it is empty
    """

    def first(self, x):
        """The first index of the largest element."""
        return x.argmax(axis=self.axis, keepdims=self.keepdims)


class ArgMin(_ArgExtremum):
    """y = the first index along `axis` at which x is smallest, as int64, or the last one with `last`.

    `keepdims` leaves the axis with length one.

    Shapes    x (..., n, ...) -> y without the axis, or of length one there
    Source    the NumPy reference, numpy.argmin; ONNX operator ArgMin
    Raises    ShapeError if x has no such axis, or it is empty
    """

    def first(self, x):
        """The first index of the smallest element."""
        return x.argmin(axis=self.axis, keepdims=self.keepdims)
