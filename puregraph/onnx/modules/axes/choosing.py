"""Choosing: slices by a condition, different elements, sequences in reverse."""

import numpy as np

from puregraph.arguments import Flag, Size, Whole, optional
from puregraph.core.shape import normalAxis
from puregraph.errors import need
from puregraph.module import Module


class CompressAxis(Module):
    """y = the slices of x along `axis` at which the condition is true; without an axis, of the elements of x in order.

    The condition may be shorter than the axis. How many there are depends on the data.

    Shapes    x (*a, n, *b), condition (m) booleans -> y (*a, count, *b)
    Source    ONNX operator Compress
    Raises    ShapeError if x has no such axis, or the condition is longer
    """

    reads = ("condition",)
    keepsDtype = True
    masks = ("condition",)
    flopsPerElement = 0

    def __init__(self, axis: optional(Whole) = None, name=None):
        super().__init__(name)
        self.axis = axis

    def dataShapeFrom(self, x, condition):
        need(len(condition) == 1, "a condition of one axis", condition)
        if self.axis is None:
            return (None,)
        axis = normalAxis(self.axis, len(x))
        return (*x[:axis], None, *x[axis + 1 :])

    def chosen(self, condition):
        """The positions that are chosen."""
        return np.flatnonzero(condition)

    def updateData(self, x, condition):
        return (x.ravel() if self.axis is None else x).take(self.chosen(condition), axis=self.axis or 0)

    def updateGrad(self, grad, x, condition, y):
        gx = np.zeros_like(grad, shape=(x.size,) if self.axis is None else x.shape)
        axis = 0 if self.axis is None else normalAxis(self.axis, x.ndim)
        gx[(slice(None),) * axis + (self.chosen(condition),)] = grad
        return gx.reshape(x.shape), None

    def sample(self, rng, x, condition):
        return [rng.standard_normal(x), rng.random(condition) < 0.5]

    @classmethod
    def examples(cls):
        yield cls(0), [(4, 3), (4,)]
        yield cls(-1), [(2, 5), (3,)]
        yield cls(), [(2, 3), (6,)]


class UniqueAlong(Module):
    """values = the different slices of x along `axis`, or elements without one; first, where each comes first; inverse,
    which one each is; counts, how often each comes. In order if `isSorted`, else as they come first.

    How many there are depends on the data.

    Shapes    x (*a, n, *b) -> values (*a, count, *b), first (count), inverse (n), counts (count)
    Source    ONNX operator Unique
    Raises    ShapeError if x has no such axis
    """

    reads = ()
    isDiscrete = True
    sharesSize = True
    flopsPerElement = 0

    def __init__(self, axis: optional(Whole) = None, isSorted: Flag = True, name=None):
        super().__init__(name)
        self.axis, self.isSorted = axis, isSorted

    @property
    def outputNames(self):
        return ("values", "first", "inverse", "counts")

    def dataShapeFrom(self, x):
        if self.axis is None:
            count = 1
            for size in x:
                count = count * size
            return [(None,), (None,), (count,), (None,)]
        axis = normalAxis(self.axis, len(x))
        return [(*x[:axis], None, *x[axis + 1 :]), (None,), (x[axis],), (None,)]

    def dataTypeFrom(self, x):
        return [x, *[np.dtype(np.int64)] * 3]

    def updateData(self, x):
        values, first, inverse, counts = np.unique(
            x, return_index=True, return_inverse=True, return_counts=True, axis=self.axis
        )
        inverse = inverse.ravel()
        if not self.isSorted:
            order = np.argsort(first, kind="stable")
            rank = np.empty_like(order)
            rank[order] = np.arange(len(order))
            values = values.take(order, axis=self.axis or 0)
            first, counts, inverse = first[order], counts[order], rank[inverse]
        return values, *[y.astype(np.int64) for y in (first, inverse, counts)]

    def sample(self, rng, x):
        return [rng.integers(0, 3, x).astype(float)]

    @classmethod
    def examples(cls):
        yield cls(), [(2, 3)]
        yield cls(0, isSorted=False), [(4, 2)]


class ReverseLengths(Module):
    """y = x with the first lengths[n] elements along `time` of each sample n along `batch` in reverse.

    Shapes    x (any), lengths (count of samples) -> y as x
    Source    ONNX operator ReverseSequence
    Raises    ShapeError if the axes are the same or others than the first two, or there are other lengths
    """

    reads = ("lengths",)
    keepsDtype = True
    indices = ("lengths",)
    flopsPerElement = 0

    def __init__(self, time: Size = 0, batch: Size = 1, name=None):
        super().__init__(name)
        self.time, self.batch = time, batch

    def dataShapeFrom(self, x, lengths):
        need({self.time, self.batch} == {0, 1} and len(x) >= 2, "the first two axes", (self.time, self.batch))
        need(lengths == (x[self.batch],), f"lengths of shape ({x[self.batch]},)", lengths)
        return x

    def reversed(self, x, lengths):
        """x or its gradient, in reverse."""
        t = np.arange(x.shape[self.time])[:, None]
        order = np.where(t < lengths, lengths - 1 - t, t)
        columns = np.arange(x.shape[self.batch])[None]
        return x[order, columns] if self.time == 0 else x[columns.T, order.T]

    def updateData(self, x, lengths):
        return self.reversed(x, lengths)

    def updateGrad(self, grad, x, lengths, y):
        return self.reversed(grad, lengths), None

    def sample(self, rng, x, lengths):
        return [rng.standard_normal(x), rng.integers(1, x[self.time] + 1, lengths)]

    @classmethod
    def examples(cls):
        yield cls(), [(3, 2), (2,)]
        yield cls(1, 0), [(2, 3, 2), (2,)]
