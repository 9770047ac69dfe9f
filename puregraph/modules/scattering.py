"""Scattering: write updates by index into a copy of x, replacing, adding, multiplying, or taking extremes."""

import numpy as np

from puregraph.core.arguments import Whole, choice
from puregraph.core.base.widen import asResultType, divided
from puregraph.core.dim import Dim
from puregraph.core.errors import need
from puregraph.core.hostrule import onHost
from puregraph.core.shape import normalAxis
from puregraph.graph.module import Module
from puregraph.modules.gathering import elementKey, pointKey

KINDS = {"none": None, "add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}


class _Scatter(Module):
    """Base class: y = x, with `updates` written at `key`; updates with equal keys are applied in their order."""

    reads = ("x", "index", "updates")
    keepsDtype = True
    indices = ("index",)
    flopsPerElement = 0

    def setKind(self, reduction):
        self.reduction = reduction
        self.isDiscrete = False

    @onHost
    def updateData(self, x, index, updates):
        x, updates = asResultType(x, updates)
        y, key = x.copy(), self.key(x, index)
        kind = KINDS[self.reduction]
        if kind is None:
            y[key] = updates
        else:
            kind.at(y, key, updates)
        return y

    @onHost
    def updateGrad(self, grad, x, index, updates, y):
        key = self.key(x, index)
        if self.reduction == "add":
            return grad, None, grad[key]
        if self.reduction == "mul":
            return productGrad(grad, x, key, updates)
        if self.reduction != "none":
            return extremeGrad(grad, x, key, updates, self.updateData(x, index, updates))
        order = np.arange(updates.size).reshape(updates.shape)
        last = np.full(x.shape, -1)
        last[key] = order
        return (
            np.where(last < 0, grad, 0).astype(grad.dtype, copy=False),
            None,
            np.where(last[key] == order, grad[key], 0).astype(grad.dtype, copy=False),
        )


def productGrad(grad, x, key, updates):
    """Return gradients of factors: the product of the others, from the count of zeros and the product of the rest."""
    zeros, nonzero = (x == 0).astype(np.int64), np.where(x == 0, x.dtype.type(1), x)
    np.add.at(zeros, key, (updates == 0).astype(np.int64))
    np.multiply.at(nonzero, key, np.where(updates == 0, x.dtype.type(1), updates))

    def others(factor, zeros, nonzero):
        isZero = factor == 0
        return np.where(zeros == isZero, nonzero / np.where(isZero, factor.dtype.type(1), factor), factor.dtype.type(0))

    return grad * others(x, zeros, nonzero), None, grad[key] * others(updates, zeros[key], nonzero[key])


def extremeGrad(grad, x, key, updates, y):
    """Return gradients: all elements and updates that equal the result share the gradient evenly."""
    isKept, isTaken = x == y, updates == y[key]
    count = isKept.astype(np.int64)
    np.add.at(count, key, isTaken.astype(np.int64))
    share = divided(grad, np.maximum(count, np.int64(1)))  # the count is 0 where y is NaN
    nothing = grad.dtype.type(0)
    return np.where(isKept, share, nothing), None, np.where(isTaken, share[key], nothing)


class ScatterElements(_Scatter):
    """y = x, except y[..., index[i, j, ...], ...] = updates[i, j, ...]: the index is the coordinate along `axis`.

    With a `reduction` the update is added to the element, multiplied with it, or the larger or smaller is kept; ties
    share their gradient evenly.

    Shapes    x (any), index, updates (as x, at most as long along other axes) -> y as x
    Source    ONNX operator ScatterElements
    Raises    DataError if an index is out of range; ShapeError if index and updates differ
    """

    def __init__(self, axis: Whole = 0, reduction: choice(*KINDS) = "none", name=None):
        super().__init__(name)
        self.axis = axis
        self.setKind(reduction)

    def dataShapeFrom(self, x, index, updates):
        axis = normalAxis(self.axis, len(x))
        fits = len(index) == len(x) and all(i == axis or not m > n for i, (n, m) in enumerate(zip(x, index)))
        wanted = f"index and updates of one shape of rank {len(x)}, no longer than x but along axis {axis}"
        need(index == updates and fits, wanted, [x, index, updates])
        return x

    def key(self, x, index):
        """The index of the updates in x."""
        return elementKey(x, index, self.axis, "ScatterElements")

    def sample(self, rng, x, index, updates):
        need(x[self.axis], "an element to update", x)
        return [rng.standard_normal(x), rng.integers(0, x[self.axis], index), rng.standard_normal(updates)]

    @classmethod
    def examples(cls):
        yield cls(), [(3, 2), (2, 2), (2, 2)]
        for kind in ("add", "mul", "max", "min"):
            yield cls(1, kind), [(2, 3), (2, 4), (2, 4)]


class ScatterND(_Scatter):
    """y = x, except y[index[i, 0], index[i, 1], ...] = updates[i].

    With a `reduction` the update is added to the element, multiplied with it, or the larger or smaller is kept; ties
    share their gradient evenly.

    Shapes    x (*n), index (*i, k), updates (*i, *n without its first k axes) -> y as x
    Source    ONNX operator ScatterND
    Raises    DataError if an index is out of range; ShapeError if updates have another shape
    """

    def __init__(self, reduction: choice(*KINDS) = "none", name=None):
        super().__init__(name)
        self.setKind(reduction)

    def dataShapeFrom(self, x, index, updates):
        isKnown = len(index) >= 1 and not isinstance(index[-1], Dim) and 0 < index[-1] <= len(x)
        need(isKnown, f"an index whose last axis has from 1 to {len(x)} elements", index)
        wanted = (*index[:-1], *x[index[-1] :])
        need(updates == wanted, f"updates of shape {wanted}", updates)
        return x

    def key(self, x, index):
        """The index of the updates in x."""
        return pointKey(x, index, 0, "ScatterND")

    def sample(self, rng, x, index, updates):
        need(min(x[: index[-1]]), "an element to update", x)
        return [rng.standard_normal(x), rng.integers(0, min(x[: index[-1]]), index), rng.standard_normal(updates)]

    @classmethod
    def examples(cls):
        yield cls(), [(4, 2), (2, 1), (2, 2)]
        for kind in ("add", "mul", "max", "min"):
            yield cls(kind), [(3, 3), (4, 2), (4,)]
