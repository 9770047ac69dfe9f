"""Scattering: write updates by index into a copy of x, replacing, adding, multiplying, or taking extremes."""

from collections.abc import Callable
from typing import Annotated, Any

from puregraph.core.arguments import Whole, choice
from puregraph.core.base.widen import asResultType
from puregraph.core.dim import Dim
from puregraph.core.errors import need
from puregraph.core.shape import normalAxis
from puregraph.graph.module import Module
from puregraph.modules.gathering import integers, pointRows, refusing
from puregraph.ops.gather.alongaxis import putAlong
from puregraph.ops.gather.derivatives import putAlongRule

KINDS = {"none": "set", "add": "add", "mul": "multiply", "max": "maximum", "min": "minimum"}


class _Scatter(Module):
    """Base class: y = x, with `updates` written along an axis; those for one element are applied in their order."""

    arranged: Callable[..., Any]
    reads = ("x", "index", "updates")
    keepsDtype = True
    indices = ("index",)
    flopsPerElement = 0

    def setKind(self, reduction):
        self.reduction = reduction
        self.isDiscrete = False

    def updateData(self, x, index, updates):
        x, updates = asResultType(x, updates)
        with refusing(type(self).__name__):
            rows, along, axis = self.arranged(x, integers(index, type(self).__name__))
            return putAlong(rows, along, updates.reshape(along.shape), axis, KINDS[self.reduction]).reshape(x.shape)

    def updateGrad(self, grad, x, index, updates, y):
        x, updates = asResultType(x, updates)
        rows, along, axis = self.arranged(x, index)
        arguments = (rows, along, updates.reshape(along.shape), axis, KINDS[self.reduction])
        dx, _, dupdates = putAlongRule(grad.reshape(rows.shape), None, *arguments)
        return dx.reshape(x.shape), None, dupdates.reshape(updates.shape)


class ScatterElements(_Scatter):
    """y = x, except y[..., index[i, j, ...], ...] = updates[i, j, ...]: the index is the coordinate along `axis`.

    With a `reduction` the update is added to the element, multiplied with it, or the larger or smaller is kept; ties
    share their gradient evenly.

    Shapes    x (any), index, updates (as x, at most as long along other axes) -> y as x
    Source    ONNX operator ScatterElements
    Raises    DataError if an index is out of range; ShapeError if index and updates differ
    """

    def __init__(self, axis: Whole = 0, reduction: Annotated[str, choice(*KINDS)] = "none", name=None):
        super().__init__(name)
        self.axis = axis
        self.setKind(reduction)

    def dataShapeFrom(self, x, index, updates):
        axis = normalAxis(self.axis, len(x))
        fits = len(index) == len(x) and all(i == axis or not m > n for i, (n, m) in enumerate(zip(x, index)))
        wanted = f"index and updates of one shape of rank {len(x)}, no longer than x but along axis {axis}"
        need(index == updates and fits, wanted, [x, index, updates])
        return x

    def arranged(self, x, index):
        return x, index, self.axis

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

    def __init__(self, reduction: Annotated[str, choice(*KINDS)] = "none", name=None):
        super().__init__(name)
        self.setKind(reduction)

    def dataShapeFrom(self, x, index, updates):
        isKnown = len(index) >= 1 and not isinstance(index[-1], Dim) and 0 < index[-1] <= len(x)
        need(isKnown, f"an index whose last axis has from 1 to {len(x)} elements", index)
        wanted = (*index[:-1], *x[index[-1] :])
        need(updates == wanted, f"updates of shape {wanted}", updates)
        return x

    def arranged(self, x, index):
        rows, along, _ = pointRows(x, index, 0)
        return rows[0], along[0], 0

    def sample(self, rng, x, index, updates):
        need(min(x[: index[-1]]), "an element to update", x)
        return [rng.standard_normal(x), rng.integers(0, min(x[: index[-1]]), index), rng.standard_normal(updates)]

    @classmethod
    def examples(cls):
        yield cls(), [(4, 2), (2, 1), (2, 2)]
        for kind in ("add", "mul", "max", "min"):
            yield cls(kind), [(3, 3), (4, 2), (4,)]
