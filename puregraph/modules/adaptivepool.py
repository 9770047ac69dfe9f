"""Adaptive pools: windows by the number of them along each axis, of any sizes that this takes."""

from math import prod

import numpy as np

from puregraph.autodiff.derivatives.ruletape import derivedGrad
from puregraph.core.arguments import isWhole
from puregraph.core.base.widen import widened
from puregraph.core.errors import need
from puregraph.core.tracer import arrayLike
from puregraph.graph.module import Module


class _Adaptive(Module):
    """Base class: window i of m along an axis of length n holds x[floor(i n / m)] to x[ceil((i + 1) n / m) - 1]."""

    reads = ("x",)
    needsFloats = True

    def __init__(self, size=1, name=None):
        super().__init__(name)
        sizes = size if isinstance(size, (tuple, list)) else (size,)
        fits = sizes and all(n is None or isWhole(n, 1) for n in sizes)
        need(fits, "size as the number of windows, or a tuple of it for each axis, None for as many as elements", size)
        self.size = tuple(size) if isinstance(size, (tuple, list)) else size

    def dataShapeFrom(self, x):
        rank = len(self.size) if isinstance(self.size, tuple) else max(len(x) - 2, 1)
        need(
            len(x) == rank + 2 and all(n >= 1 for n in x[2:]), f"(n, c, *spatial), {rank} spatial axes, no length 0", x
        )
        sizes = self.size if isinstance(self.size, tuple) else (self.size,) * rank
        return (*x[:2], *(n if m is None else m for n, m in zip(x[2:], sizes)))

    def updateGrad(self, grad, *values, needs):
        return derivedGrad(self.updateData, grad, values, needs)

    @classmethod
    def examples(cls):
        yield cls(), [(2, 3, 5)]
        yield cls(3), [(2, 1, 4, 6)]
        yield cls((3, None)), [(1, 2, 5, 2)]
        yield cls((2, 1, 5)), [(1, 2, 3, 2, 3)]


def bounds(length, count):
    """(start, end) of each window."""
    return [(i * length // count, -(-(i + 1) * length // count)) for i in range(count)]


class AdaptiveAvgPool(_Adaptive):
    """y[n, c, i] = mean over a from floor(i length / size) to ceil((i + 1) length / size) - 1 of x[n, c, a]

    `size` is the number of windows, for each spatial axis or for all; None keeps the axis as it is.

    Shapes    x (n, c, *spatial) -> y (n, c, *size)
    Source    Grauman, Darrell 2005, The Pyramid Match Kernel; He, Zhang, Ren, Sun 2014, arXiv:1406.4729, section 2.2
    Raises    ShapeError if x has another rank or no elements

    >>> AdaptiveAvgPool(2)(np.array([[[1.0, 2.0, 6.0]]]))
    array([[[1.5, 4. ]]])
    """

    def updateData(self, x):
        for axis, count in enumerate(self.dataShapeFrom(x.shape)[2:], 2):
            x = averaged(x, axis, count)
        return x


@widened
def averaged(x, axis, count):
    """Return the means of the windows along an axis."""
    length = x.shape[axis]
    if length % count == 0:
        return x.reshape(*x.shape[:axis], count, length // count, *x.shape[axis + 1 :]).mean(axis=axis + 1)
    matrix = np.zeros((length, count), x.dtype)
    for i, (start, end) in enumerate(bounds(length, count)):
        matrix[start:end, i] = 1 / (end - start)
    return np.matmul(x.swapaxes(axis, -1), arrayLike(x, matrix)).swapaxes(axis, -1)


class AdaptiveMaxPool(_Adaptive):
    """y[n, c, i] = max over a from floor(i length / size) to ceil((i + 1) length / size) - 1 of x[n, c, a]

    `size` is the number of windows, for each spatial axis or for all; None keeps the axis as it is. Of equal values the
    first counts: the gradient goes there.

    Shapes    x (n, c, *spatial) -> y (n, c, *size)
    Source    He, Zhang, Ren, Sun 2014, Spatial Pyramid Pooling, arXiv:1406.4729, section 2.2
    Raises    ShapeError if x has another rank or no elements

    >>> AdaptiveMaxPool(2)(np.array([[[1.0, 2.0, 6.0]]]))
    array([[[2., 6.]]])
    """

    keepsDtype = True

    def updateData(self, x):
        shape = self.dataShapeFrom(x.shape)
        flat, at = x.reshape(*x.shape[:2], prod(x.shape[2:])), arrayLike(x, positions(x.shape[2:], shape[2:]))
        windows = np.take(flat, at, axis=2)
        best = windows.argmax(axis=3)
        return np.take_along_axis(windows, best[..., None], 3).reshape(shape)


def positions(lengths, counts):
    """The flat positions of the elements of each window (windows, elements), the last one repeated in smaller ones."""
    flat = np.zeros((1, 1), np.int64)
    for length, count in zip(lengths, counts):
        windows = bounds(length, count)
        widest = max(end - start for start, end in windows)
        at = np.array([[min(start + i, end - 1) for i in range(widest)] for start, end in windows])
        flat = flat[:, None, :, None] * length + at[:, None]
        flat = flat.reshape(flat.shape[0] * count, -1)
    return flat
