"""Gathering: elements read by index; an index below 0 counts from the end."""

import numpy as np

from puregraph.arguments import Size, Whole
from puregraph.core.dim import Dim
from puregraph.core.shape import normalAxis, product, valueOf
from puregraph.errors import DataError, need
from puregraph.module import Module


def positive(index, size, what):
    """Indices counted from the first.

    Raises    DataError for one that is out of range
    """
    if index.dtype.kind not in "iu":
        raise DataError(f"{what}: wanted indices, integers, got {index.dtype}; convert with .astype('int64')")
    if index.size and ((index < -size).any() or (index >= size).any()):
        raise DataError(f"{what}: wanted indices from {-size} to {size - 1}, got {index.min()} to {index.max()}")
    return np.where(index < 0, index + size, index)


class GatherAxis(Module):
    """y[..., i, ...] = x[..., index[i], ...] along `axis`; an index below 0 counts from the end.

    Elements that are read several times get the sum of the gradients.

    Shapes    x (*a, n, *b), index (*i) integers -> y (*a, *i, *b)
    Source    ONNX operator Gather
    Raises    DataError if an index is out of range; ShapeError if x has no such axis
    """

    reads = ("index",)
    keepsDtype = True
    indices = ("index",)
    flopsPerElement = 0

    def __init__(self, axis: Whole = 0, name=None):
        super().__init__(name)
        self.axis = axis

    def dataShapeFrom(self, x, index):
        axis = normalAxis(self.axis, len(x))
        return (*x[:axis], *index, *x[axis + 1 :])

    def valueFrom(self, x, index):
        values, positions = valueOf(x), valueOf(index)
        if values is None or positions is None or positions.dtype.kind == "O":
            return None
        return np.asarray(values.take(positions, axis=self.axis), values.dtype)

    def updateData(self, x, index):
        axis = normalAxis(self.axis, x.ndim)
        found = positive(index, x.shape[axis], "GatherAxis")
        return np.take(x, found, axis=axis)

    def updateGrad(self, grad, x, index, y):
        axis = normalAxis(self.axis, x.ndim)
        found = positive(index, x.shape[axis], "GatherAxis").ravel()
        parts = grad.reshape(*x.shape[:axis], found.size, *x.shape[axis + 1 :])
        gx = np.zeros_like(grad, shape=(x.shape[axis], *x.shape[:axis], *x.shape[axis + 1 :]))
        np.add.at(gx, found, np.moveaxis(parts, axis, 0))
        return np.moveaxis(gx, 0, axis), None

    def sample(self, rng, x, index):
        return [rng.standard_normal(x), rng.integers(-x[self.axis], x[self.axis], index)]

    @classmethod
    def examples(cls):
        yield cls(), [(4, 3), (5,)]
        yield cls(axis=1), [(2, 3, 4), (2, 2)]
        yield cls(axis=-1), [(2, 5), ()]


class GatherElements(Module):
    """y[i, j, ...] = x[..., index[i, j, ...], ...], the index in place of that along `axis`.

    Shapes    x (any), index (as x, no longer along other axes) -> y as index
    Source    ONNX operator GatherElements
    Raises    DataError if an index is out of range; ShapeError if the ranks differ
    """

    reads = ("index",)
    keepsDtype = True
    indices = ("index",)
    flopsPerElement = 0

    def __init__(self, axis: Whole = 0, name=None):
        super().__init__(name)
        self.axis = axis

    def dataShapeFrom(self, x, index):
        axis = normalAxis(self.axis, len(x))
        fits = len(x) == len(index) and all(i == axis or not m > n for i, (n, m) in enumerate(zip(x, index)))
        need(fits, f"an index of rank {len(x)}, no longer than x but along axis {axis}", [x, index])
        return index

    def key(self, x, index):
        """What x is indexed with."""
        return elementKey(x, index, self.axis, "GatherElements")

    def updateData(self, x, index):
        return x[self.key(x, index)]

    def updateGrad(self, grad, x, index, y):
        gx = np.zeros_like(grad, shape=x.shape)
        np.add.at(gx, self.key(x, index), grad)
        return gx, None

    def sample(self, rng, x, index):
        return [rng.standard_normal(x), rng.integers(-x[self.axis], x[self.axis], index)]

    @classmethod
    def examples(cls):
        yield cls(), [(3, 2), (4, 2)]
        yield cls(axis=1), [(2, 3), (2, 2)]


def elementKey(x, index, axis, what):
    """The index of x that takes one element for each of `index` along an axis."""
    axis = normalAxis(axis, x.ndim)
    grid = np.ogrid[tuple(slice(n) for n in index.shape)] if index.ndim else []
    return tuple(positive(index, x.shape[i], what) if i == axis else grid[i] for i in range(x.ndim))


class GatherPoints(Module):
    """y[b, i] = x[b, index[b, i, 0], index[b, i, 1], ...], b being the first `batch` axes of both.

    Shapes    x (*b, *n), index (*b, *i, k) -> y (*b, *i, what is left of n after k axes)
    Source    ONNX operator GatherND
    Raises    DataError if an index is out of range; ShapeError if the first axes differ, or k is too large
    """

    reads = ("index",)
    keepsDtype = True
    indices = ("index",)
    flopsPerElement = 0

    def __init__(self, batch: Size = 0, name=None):
        super().__init__(name)
        self.batch = batch

    def dataShapeFrom(self, x, index):
        b = self.batch
        need(len(index) > b and not isinstance(index[-1], Dim), "an index whose last axis has a known length", index)
        need(
            index[-1] + b <= len(x) and x[:b] == index[:b],
            f"{b} first axes alike, and {index[-1]} more of x",
            [x, index],
        )
        return (*index[:-1], *x[b + index[-1] :])

    def key(self, x, index):
        """What x is indexed with."""
        return pointKey(x, index, self.batch, "GatherPoints")

    def updateData(self, x, index):
        return x[self.key(x, index)]

    def updateGrad(self, grad, x, index, y):
        gx = np.zeros_like(grad, shape=x.shape)
        np.add.at(gx, self.key(x, index), grad)
        return gx, None

    def sample(self, rng, x, index):
        most = min(x[self.batch : self.batch + index[-1]], default=1)
        return [rng.standard_normal(x), rng.integers(-most, most, index)]

    @classmethod
    def examples(cls):
        yield cls(), [(3, 2), (4, 1)]
        yield cls(), [(3, 2, 2), (2, 3, 2)]
        yield cls(batch=1), [(2, 3, 2), (2, 2, 1)]


def pointKey(x, index, batch, what):
    """The index of x that takes what each row of `index` names, behind the first `batch` axes."""
    count, around = index.shape[-1], index.shape[:-1]
    grid = [np.arange(around[i]).reshape(tuple(-1 if j == i else 1 for j in range(len(around)))) for i in range(batch)]
    parts = [positive(index[..., k], x.shape[batch + k], what) for k in range(count)]
    if not grid and not parts:
        return (np.zeros(around, np.intp)[(...,)] * 0, ...)[1:] if product(around) == 1 else (None,) * len(around)
    return (*grid, *parts)
