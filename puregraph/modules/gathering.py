"""Elements taken by index: Gather, GatherElements, GatherND."""

from collections.abc import Callable
from contextlib import contextmanager
from math import prod
from typing import Any

import numpy as np

from puregraph.core.arguments import Flag, Size, Whole
from puregraph.core.dim import Dim
from puregraph.core.errors import DataError, need
from puregraph.core.shape import normalAxis, valueOf
from puregraph.core.tracer import arrayLike
from puregraph.graph.module import Module
from puregraph.ops.gather import reference as scatter
from puregraph.ops.gather.alongaxis import pointIndex, putAlong, readAlong


class Gather(Module):
    """y[..., i, ...] = x[..., index[i], ...] along `axis`

    An index of -1 gives zeros, as for padding; with `fromEnd`, negative indices count from the end, as in numpy.
    Elements that are read several times get the sum of the gradients. The index may have any rank.

    Shapes    x (*a, n, *b), index (*i) integers -> y (*a, *i, *b)
    Source    ONNX operator Gather
    Raises    DataError if an index is out of range, or not an integer; ShapeError if x has no such axis
    """

    reads = ("index",)
    keepsDtype = True
    indices = ("index",)
    flopsPerElement = 0

    def __init__(self, axis: Whole = 0, fromEnd: Flag = False, name=None):
        super().__init__(name)
        self.axis, self.fromEnd = axis, fromEnd

    def dataShapeFrom(self, x, index):
        axis = normalAxis(self.axis, len(x))
        return (*x[:axis], *index, *x[axis + 1 :])

    def valueFrom(self, x, index):
        values, positions = valueOf(x), valueOf(index)
        if values is None or positions is None or positions.dtype.kind == "O":
            return None
        if not self.fromEnd and (positions < 0).any():
            return None
        return np.asarray(values.take(positions, axis=self.axis), values.dtype)  # take of one symbol gives no array

    def updateData(self, x, index):
        if index.dtype.kind not in "iu":
            raise DataError(
                f"Gather: wanted whole numbers as indices, got {index.dtype}; convert with .astype('int64')"
            )
        axis = normalAxis(self.axis, x.ndim)
        index = fromStart(index, x.shape[axis]) if self.fromEnd else index
        try:
            y = rowsAt(np.moveaxis(x, axis, 0), index)
        except IndexError as error:
            raise DataError(f"Gather: axis {axis} has length {x.shape[axis]}: {error}") from None
        first = index.ndim
        return y.transpose((*range(first, first + axis), *range(first), *range(first + axis, y.ndim)))

    def updateGrad(self, grad, x, index, y):
        axis = normalAxis(self.axis, x.ndim)
        last = axis + index.ndim
        index = fromStart(index, x.shape[axis]) if self.fromEnd else index
        parts = grad.transpose((*range(axis, last), *range(axis), *range(last, grad.ndim)))
        return np.moveaxis(scatter.scatterAdd(parts, index, x.shape[axis]), 0, axis), None

    def sample(self, rng, x, index):
        need(x[self.axis] or not self.fromEnd, "an element to take", x)
        return [rng.standard_normal(x), rng.integers(-x[self.axis] if self.fromEnd else -1, x[self.axis], index)]

    @classmethod
    def examples(cls):
        yield cls(), [(4, 3), (5,)]
        yield cls(axis=1), [(2, 3, 4), (2, 2)]
        yield cls(axis=-1), [(2, 5), ()]
        yield cls(axis=1, fromEnd=True), [(2, 3), (4,)]


def fromStart(index, size):
    """Return the indices with negative ones, which count from the end, made positive; invalid ones stay invalid."""
    if index.dtype.kind not in "i":
        return index
    below = np.where(index < -size, index - (size == 0), index + np.int64(size))
    return np.where(index < 0, below, index)


def integers(index, what):
    """The index itself.

    Raises    DataError unless it is of integers
    """
    if index.dtype.kind not in "iu":
        raise DataError(f"{what}: wanted whole numbers as indices, got {index.dtype}; convert with .astype('int64')")
    return index


def rowsAt(table, index):
    """Rows of a table by index, zeros for -1."""
    return scatter.gather(table, index)


@contextmanager
def refusing(what):
    """Raise DataError, naming the module, for an index that a kernel refuses."""
    try:
        yield
    except IndexError as error:
        raise DataError(f"{what}: {error}") from None


def pointRows(x, index, batch):
    """x as (first axes, elements that points name, others), and the index of points as one along its axis 1."""
    count = batch + index.shape[-1]
    flat = pointIndex(index, x.shape[batch:count])
    before, rows, after = (prod(x.shape[:batch]), prod(x.shape[batch:count]), prod(x.shape[count:]))
    points = prod(index.shape[batch:-1])
    spread = np.broadcast_to(flat.reshape(before, points, 1), (before, points, after))
    return x.reshape(before, rows, after), spread, 1


class _Gathered(Module):
    """Base class of modules that read x along an axis; elements read several times get the sum of the gradients."""

    arranged: Callable[..., Any]
    reads = ("index",)
    keepsDtype = True
    indices = ("index",)
    flopsPerElement = 0

    def updateData(self, x, index):
        with refusing(type(self).__name__):
            rows, along, axis = self.arranged(x, integers(index, type(self).__name__))
            return readAlong(rows, along, axis).reshape(self.dataShapeFrom(x.shape, index.shape))

    def updateGrad(self, grad, x, index, y):
        rows, along, axis = self.arranged(np.zeros_like(grad, shape=x.shape), index)
        return putAlong(rows, along, grad.reshape(along.shape), axis, "add").reshape(x.shape), None


class GatherElements(_Gathered):
    """y[i, j, ...] = x[..., index[i, j, ...], ...]: the index replaces the coordinate along `axis`.

    Shapes    x (any), index (as x, at most as long along other axes) -> y as index
    Source    ONNX operator GatherElements
    Raises    DataError if an index is out of range; ShapeError if the ranks differ
    """

    def __init__(self, axis: Whole = 0, name=None):
        super().__init__(name)
        self.axis = axis

    def dataShapeFrom(self, x, index):
        axis = normalAxis(self.axis, len(x))
        fits = len(x) == len(index) and all(i == axis or not m > n for i, (n, m) in enumerate(zip(x, index)))
        need(fits, f"an index of rank {len(x)}, no longer than x but along axis {axis}", [x, index])
        return index

    def arranged(self, x, index):
        return x, index, self.axis

    def sample(self, rng, x, index):
        need(x[self.axis], "an element to take", x)
        return [rng.standard_normal(x), rng.integers(-x[self.axis], x[self.axis], index)]

    @classmethod
    def examples(cls):
        yield cls(), [(3, 2), (4, 2)]
        yield cls(axis=1), [(2, 3), (2, 2)]


class GatherND(_Gathered):
    """y[b, i] = x[b, index[b, i, 0], index[b, i, 1], ...], where b are the first `batch` axes of both.

    Shapes    x (*b, *n), index (*b, *i, k) -> y (*b, *i, *n without its first k axes)
    Source    ONNX operator GatherND
    Raises    DataError if an index is out of range; ShapeError if the first axes differ, or k is too large
    """

    def __init__(self, batch: Size = 0, name=None):
        super().__init__(name)
        self.batch = batch

    def dataShapeFrom(self, x, index):
        b = self.batch
        isKnown = len(index) > b and not isinstance(index[-1], Dim) and index[-1] > 0
        need(isKnown, "an index whose last axis has a known length of at least 1", index)
        need(
            index[-1] + b <= len(x) and x[:b] == index[:b],
            f"{b} first axes alike, and {index[-1]} more of x",
            [x, index],
        )
        return (*index[:-1], *x[b + index[-1] :])

    def arranged(self, x, index):
        return pointRows(x, index, self.batch)

    def sample(self, rng, x, index):
        most = min(x[self.batch : self.batch + index[-1]])
        need(most, "an element to take", x)
        return [rng.standard_normal(x), rng.integers(-most, most, index)]

    @classmethod
    def examples(cls):
        yield cls(), [(3, 2), (4, 1)]
        yield cls(), [(3, 2, 2), (2, 3, 2)]
        yield cls(batch=1), [(2, 3, 2), (2, 2, 1)]


class ReverseSequence(Module):
    """y = x with the first lengths[n] elements along `time` of each sample n along `batch` in reverse.

    Shapes    x (any), lengths (count of samples) -> y as x
    Source    ONNX operator ReverseSequence
    Raises    ShapeError if the two axes are not the first two, or lengths are not one for each sample
    """

    reads = ("lengths",)
    keepsDtype = True
    indices = ("lengths",)
    flopsPerElement = 0

    def __init__(self, time: Size = 0, batch: Size = 1, name=None):
        super().__init__(name)
        self.time, self.batch = time, batch

    def dataShapeFrom(self, x, lengths):
        need(
            {self.time, self.batch} == {0, 1} and len(x) >= 2, "time and batch as axes 0 and 1", (self.time, self.batch)
        )
        need(
            lengths == (x[self.batch],),
            f"lengths of shape ({x[self.batch]},), one for each sample along batch",
            lengths,
        )
        return x

    def reversed(self, x, lengths):
        """Return x or its gradient, with the first elements of each sample reversed."""
        t = arrayLike(x, np.arange(x.shape[self.time])[:, None])
        order = np.where(t < lengths, lengths - 1 - t, t)
        columns = arrayLike(x, np.arange(x.shape[self.batch])[None])
        return x[order, columns] if self.time == 0 else x[columns.T, order.T]

    def updateData(self, x, lengths):
        return self.reversed(x, lengths)

    def updateGrad(self, grad, x, lengths, y):
        return self.reversed(grad, lengths), None

    def sample(self, rng, x, lengths):
        return [rng.standard_normal(x), rng.integers(min(1, x[self.time]), x[self.time] + 1, lengths)]

    @classmethod
    def examples(cls):
        yield cls(), [(3, 2), (2,)]
        yield cls(1, 0), [(2, 3, 2), (2,)]
