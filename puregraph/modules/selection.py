"""Elements chosen by a condition or by their values: Compress, NonZero, Unique, TopKValues, Trilu, OneHot."""

from typing import Any

import numpy as np

from puregraph.autodiff.derivatives.ruletape import derivedGrad
from puregraph.core.arguments import Count, Dtype, Flag, Size, Whole
from puregraph.core.base.dtype import inferredType, nativeType
from puregraph.core.errors import need
from puregraph.core.shape import givenNumber, normalAxis, product, sizesOf
from puregraph.core.tracer import arrayLike
from puregraph.graph.module import Module
from puregraph.ops.gather.alongaxis import addAlong
from puregraph.ops.order.reference import sortAlong


class Compress(Module):
    """y = the slices of x along `axis` at which the condition is true, in their order; axis=None: of the flattened x.

    Their number depends on the data; ahead of data it is a symbol named after the node. The gradient goes to the chosen
    slices. With `mayBeShorter`, the condition may be shorter than the axis; nothing beyond its end is chosen.

    Shapes    x (*a, n, *b), condition (n) booleans -> y (*a, count, *b)
    Source    the NumPy reference, numpy.compress; ONNX operator Compress
    Raises    ShapeError if x has no such axis, or the condition has another length
    """

    reads = ("condition",)
    keepsDtype = True
    masks = ("condition",)
    flopsPerElement = 0

    def __init__(self, axis: Whole | None = 0, mayBeShorter: Flag = False, name=None):
        super().__init__(name)
        self.axis, self.mayBeShorter = axis, mayBeShorter

    def dataShapeFrom(self, x, condition):
        x = (product(x),) if self.axis is None else x
        axis = normalAxis(self.axis or 0, len(x))
        isShort = self.mayBeShorter and len(condition) == 1 and not condition[0] > x[axis]
        isFitting = isShort or condition == (x[axis],)
        need(isFitting, f"a condition of shape ({x[axis]},)", condition)
        return (*x[:axis], None, *x[axis + 1 :])

    def updateData(self, x, condition):
        x = x.ravel() if self.axis is None else x
        axis = normalAxis(self.axis or 0, x.ndim)
        if condition.shape[0] != x.shape[axis]:
            return x.take(np.flatnonzero(condition), axis=axis)
        return x[(slice(None),) * axis + (condition,)]

    def updateGrad(self, grad, x, condition, y):
        shape = (x.size,) if self.axis is None else x.shape
        axis = normalAxis(self.axis or 0, len(shape))
        if y.shape[axis] == 0:
            return np.zeros_like(grad, shape=x.shape), None
        if condition.shape[0] != shape[axis]:
            condition = np.pad(condition, (0, shape[axis] - condition.shape[0]))
        chosen = grad.take(np.maximum(np.cumsum(condition) - 1, 0), axis=axis)  # CuPy cannot assign arrays by a mask
        isChosen = condition.reshape(-1, *(1,) * (len(shape) - axis - 1))
        return np.where(isChosen, chosen, grad.dtype.type(0)).reshape(x.shape), None

    def sample(self, rng, x, condition):
        return [rng.standard_normal(x), rng.random(condition) < 0.5]

    @classmethod
    def examples(cls):
        yield cls(), [(4, 3), (4,)]
        yield cls(axis=-1), [(2, 5), (5,)]
        yield cls(axis=None, mayBeShorter=True), [(2, 3), (4,)]
        yield cls(axis=-1, mayBeShorter=True), [(2, 5), (3,)]


class NonZero(Module):
    """y[:, k] = index of the k-th element of x that is not 0, in row-major order.

    Their number depends on the data; ahead of data it is a symbol named after the node.

    Shapes    x (any) -> y (rank of x, count)
    Source    the NumPy reference, numpy.nonzero; ONNX operator NonZero
    """

    reads = ()
    isDiscrete = True
    flopsPerElement = 0

    def dataShapeFrom(self, x):
        return (len(x), None)

    def dataTypeFrom(self, x):
        return np.dtype(np.int64)

    def updateData(self, x):
        if x.ndim:
            return np.stack(np.nonzero(x))
        count = np.nonzero(x.reshape(1))[0].shape[0]
        return np.zeros_like(x, shape=(0, count), dtype=np.int64)

    def sample(self, rng, x):
        return [rng.integers(0, 2, x).astype(float)]

    @classmethod
    def examples(cls):
        yield cls(), [(2, 3)]
        yield cls(), [(5,)]
        yield cls(), [()]


class Unique(Module):
    """values = the distinct elements of x, or with an `axis` its distinct slices; first, where each comes first;
    inverse, which one each element or slice is; counts, how often each occurs: x.ravel() = values[inverse].

    Sorted, or with `isSorted=False` in order of first occurrence. The number of values depends on the data; ahead of
    data it is a symbol named after the node.

    Shapes    x (any) -> values (count), first (count), inverse (size of x), counts (count)
              with an axis: x (*a, n, *b) -> values (*a, count, *b), first (count), inverse (n), counts (count)
    Source    the NumPy reference, numpy.unique; ONNX operator Unique
    Raises    ShapeError if x has no such axis
    """

    reads = ()
    isDiscrete = True
    sharesSize = True
    flopsPerElement = 0

    def __init__(self, axis: Whole | None = None, isSorted: Flag = True, name=None):
        super().__init__(name)
        self.axis, self.isSorted = axis, isSorted

    @property
    def outputNames(self):
        return ("values", "first", "inverse", "counts")

    def dataShapeFrom(self, x):
        if self.axis is None:
            return [(None,), (None,), (product(x),), (None,)]
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
            rank = np.argsort(order)
            values = values.take(order, axis=self.axis or 0)
            first, counts, inverse = first[order], counts[order], rank[inverse]
        return values, *[y.astype(np.int64) for y in (first, inverse, counts)]

    def sample(self, rng, x):
        return [rng.integers(0, 3, x).astype(float)]

    @classmethod
    def examples(cls):
        yield cls(), [(2, 3)]
        yield cls(), [(5,)]
        yield cls(0, isSorted=False), [(4, 2)]


class KMaxPool(Module):
    """y = the `topk` largest elements of x along `axis`, from the smallest to the largest

    Shapes    x (..., n, ...) -> y (..., topk, ...)
    Source    Kalchbrenner, Grefenstette, Blunsom 2014, arXiv:1404.2188, section 3.3, but sorted; PuzzleLib's KMaxPool
    Raises    ShapeError if there are fewer elements
    """

    reads = ("x",)
    keepsDtype = True

    def __init__(self, topk: Count, axis: Whole = -1, name=None):
        super().__init__(name)
        self.topk, self.axis = topk, axis

    def dataShapeFrom(self, x):
        axis = normalAxis(self.axis, len(x))
        need(x[axis] >= self.topk, f"at least {self.topk} elements along axis {axis}", x)
        return (*x[:axis], self.topk, *x[axis + 1 :])

    def updateData(self, x):
        return np.flip(sortAlong(x, self.axis, self.topk, largest=True)[0], self.axis)

    def updateGrad(self, grad, *values, needs):
        return derivedGrad(self.updateData, grad, values, needs)

    def sample(self, rng, x):
        return [rng.permutation(int(np.prod(x))).reshape(x) * 0.5]

    @classmethod
    def examples(cls):
        yield cls(2), [(2, 3)]
        yield cls(1, axis=1), [(2, 3, 2)]


class TopKValues(Module):
    """values, indices = the `count` largest (or smallest) elements of x along `axis`, in order; of equals the first.

    If `count` is None, `k` is a second input: the count.

    Shapes    x (..., n, ...), k () or (1,) -> values, indices (..., count, ...)
    Source    ONNX operator TopK
    Raises    ShapeError if there are fewer elements
    """

    reads = ("indices",)
    keepsDtype = True
    indices = shapeInputs = ("k",)

    def __init__(self, count: Size | None = None, axis: Whole = -1, largest: Flag = True, name=None):
        super().__init__(name)
        self.count, self.axis, self.largest = count, axis, largest
        if count is not None:
            self.k = None

    @property
    def outputNames(self):
        return ("values", "indices")

    def dataShapeFrom(self, x, k=None):
        axis = normalAxis(self.axis, len(x))
        count = givenNumber(k, "k", "count") if self.count is None else self.count
        need(count is None or not count < 0, "a count of at least 0", count)
        need(count is None or x[axis] >= count, f"at least {count} elements along axis {axis}", x)
        return [(*x[:axis], count, *x[axis + 1 :])] * 2

    def dataTypeFrom(self, x, k=None):
        inferredType(self, (x, k))
        return [x, np.dtype(np.int64)]

    def updateData(self, x, k=None):
        return sortAlong(x, self.axis, self.count if k is None else int(sizesOf(k)[0]), self.largest)

    def updateGrad(self, grad, x, k, values, indices):
        g = grad[0]
        if g is None:
            return np.zeros_like(values, shape=x.shape), None
        return addAlong(g, indices, normalAxis(self.axis, x.ndim), x.shape[self.axis]), None

    def sample(self, rng, x, *k):
        return [rng.permutation(int(np.prod(x))).reshape(x) * 0.5, *[np.full(shape, 2) for shape in k]]

    @classmethod
    def examples(cls):
        yield cls(2), [(2, 3)]
        yield cls(2, axis=0, largest=False), [(3, 2)]
        yield cls(), [(2, 3), (1,)]


class Trilu(Module):
    """y[..., i, j] = x[..., i, j] where j >= i + diagonal, or j <= i + diagonal if not `upper`; else 0.

    If `diagonal` is None, `k` is a second input: the diagonal.

    Shapes    x (..., n, m), k () or (1,) -> y as x
    Source    ONNX operator Trilu
    Raises    ShapeError if x is no matrix
    """

    reads = ("k",)
    keepsDtype = True
    indices = shapeInputs = ("k",)

    def __init__(self, upper: Flag = True, diagonal: Whole | None = 0, name=None):
        super().__init__(name)
        self.upper, self.diagonal = upper, diagonal
        if diagonal is not None:
            self.k = None

    def dataShapeFrom(self, x, k=None):
        need(len(x) >= 2, "a matrix", x)
        if self.diagonal is None:
            givenNumber(k, "k", "diagonal")
        return x

    def kept(self, x, k):
        """Return a mask of the elements that are kept."""
        diagonal = self.diagonal if k is None else sizesOf(k)[0]
        rows, columns = np.arange(x.shape[-2])[:, None], np.arange(x.shape[-1])
        far = columns - rows
        return arrayLike(x, far >= diagonal if self.upper else far <= diagonal)

    def updateData(self, x, k=None):
        return np.where(self.kept(x, k), x, np.zeros_like(x))

    def updateGrad(self, grad, x, k, y):
        return np.where(self.kept(grad, k), grad, np.zeros_like(grad)), None

    def sample(self, rng, x, *k):
        return [rng.standard_normal(x), *[np.ones(shape, int) for shape in k]]

    @classmethod
    def examples(cls):
        yield cls(), [(3, 2)]
        yield cls(upper=False, diagonal=-1), [(2, 3, 3)]
        yield cls(diagonal=None), [(2, 3), ()]


class OneHot(Module):
    """y[..., k, ...] = 1 where x is k, else 0, for k below `classes`, along a new `axis`; no class gives only zeros.

    If `classes` is None, further inputs are `depth`, their number, and `values`, which stand for 0 and 1 and have the
    dtype of y; an index, which may be a float then, counts from the end if it is negative.

    Shapes    x (...) integers, depth () or (1,), values (2,) -> y (..., classes, ...)
    Source    ONNX operator OneHot
    Raises    ShapeError if y has no such axis; DtypeError if x holds no integers

    >>> OneHot(None)(np.array([2, -2]), np.array(3), np.array([0.0, 5.0])).tolist()
    [[0.0, 0.0, 5.0], [0.0, 5.0, 0.0]]
    """

    namesFloats = True
    reads = ("x", "depth")
    indices: tuple[str, ...] = ("x",)
    shapeInputs = ("depth",)
    isDiscrete = True

    def __init__(self, classes: Count | None, dtype: Dtype = "float32", name=None, axis: Whole = -1):
        super().__init__(name)
        self.classes, self.dtype, self.axis = classes, nativeType(dtype), axis
        if classes is None:
            self.indices, self.namesFloats, self.isDiscrete = (), False, False
        else:
            self.depth = self.values = None

    def dataShapeFrom(self, x, depth=None, values=None):
        axis = normalAxis(self.axis, len(x) + 1)
        count = self.classes
        if count is None:
            need(values == (2,), "classes, or inputs depth and values, of which there are two", values)
            count = givenNumber(depth, "depth", "classes")
            need(count is None or not count < 0, "a depth of at least 0", count)
        return (*x[:axis], count, *x[axis:])

    def dataTypeFrom(self, x, depth=None, values=None):
        super().dataTypeFrom(x, depth, values)
        return self.dtype if self.classes is not None else values

    def isClass(self, x, depth):
        """True where the index along the new axis is the class."""
        axis = normalAxis(self.axis, x.ndim + 1)
        count: Any = self.classes if depth is None else sizesOf(depth)[0]
        classes = arrayLike(x, np.arange(count)).reshape(-1, *(1,) * (x.ndim - axis))
        labels = np.expand_dims(x, axis)
        return (labels if depth is None else np.where(labels < 0, labels + count, labels)) == classes

    def updateData(self, x, depth=None, values=None):
        isClass = self.isClass(x, depth)
        return isClass.astype(self.dtype) if values is None else np.where(isClass, values[1], values[0])

    def updateGrad(self, grad, x, depth, values, y):
        isClass = self.isClass(x, depth)
        sums = [np.where(isClass, 0, grad).sum(), np.where(isClass, grad, 0).sum()]
        return None, None, np.stack(sums).astype(grad.dtype, copy=False)

    def sample(self, rng, x, *others):
        if not others:
            return [rng.integers(-1, self.classes, x)]
        return [rng.integers(-1, 3, x), np.full(others[0], 3), np.array([0.0, 1.0])]

    @classmethod
    def examples(cls):
        yield cls(3), [(4,)]
        yield cls(2, dtype="int64"), [(2, 3)]
        yield cls(4, dtype="bool"), [()]
        yield cls(3, axis=1), [(2, 4)]
        yield cls(None), [(4,), (), (2,)]
        yield cls(None, axis=1), [(2, 3), (1,), (2,)]
