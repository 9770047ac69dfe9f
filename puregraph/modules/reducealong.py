"""ReduceAlong: a reduction whose axes may be an input."""

from typing import Annotated

import numpy as np

from puregraph.core.arguments import Flag, Wholes, choice
from puregraph.core.dim import Dim
from puregraph.core.errors import need
from puregraph.core.shape import normalAxis, sizesOf, valueOf
from puregraph.graph.module import Module
from puregraph.modules.normreduction import L1Norm, L2Norm, LogSum, LogSumExp, Prod, SumSquares
from puregraph.modules.reduction import Max, Mean, Min, Sum

REDUCTIONS = {
    "Sum": Sum,
    "Mean": Mean,
    "Max": Max,
    "Min": Min,
    "Prod": Prod,
    "L1": L1Norm,
    "L2": L2Norm,
    "LogSum": LogSum,
    "LogSumExp": LogSumExp,
    "SumSquare": SumSquares,
}


def reduction(kind, axes, keepdims):
    """The module of a kind; no elements give the neutral one, so that an axis may turn out to be empty."""
    options = {"mayBeEmpty": True} if kind in ("Max", "Min", "Mean") else {}
    return REDUCTIONS[kind](axes, keepdims, **options)


class ReduceAlong(Module):
    """y = the sum, mean, product ... of x over `axes`, in the dtype of x; no elements give the neutral one.

    Without `axes`, `along` is an optional second input of them; without both, or with none in it, x is reduced over all
    axes, or with `ifEmpty` over none.

    Shapes    x (any), along (count) -> y without the axes, or of length one there
    Source    ONNX operators ReduceSum, ReduceMean, ReduceProd, ReduceMax ...
    Raises    ShapeError if x has no such axis, or one is named twice

    >>> ReduceAlong("Max", keepdims=False)(np.array([[1, 2], [3, 0]]), np.array([1]))
    array([2, 3])
    """

    reads = ("x", "along", "y")
    keepsDtype = True
    flopsPerElement = 1
    indices = shapeInputs = ("along",)

    def __init__(
        self,
        kind: Annotated[str, choice(*REDUCTIONS)] = "Sum",
        axes: Wholes | None = None,
        keepdims: Flag = True,
        ifEmpty: Flag = False,
        name=None,
    ):
        super().__init__(name)
        self.kind, self.keepdims, self.ifEmpty = kind, keepdims, ifEmpty
        self.axes = None if axes is None else tuple(axes)
        if axes is not None:
            self.along = None

    def reduction(self, rank, along):
        """The module for these axes, an array or None."""
        axes = self.axes
        if axes is None:
            axes = () if along is None else tuple(sizesOf(along))
            axes = tuple(range(rank)) if not axes and not self.ifEmpty else axes
        return reduction(self.kind, tuple(normalAxis(axis, rank) for axis in axes), self.keepdims)

    def dataShapeFrom(self, x, along=None):
        if along is not None:
            isList = len(along) == 1 and not isinstance(along[0], Dim) and along[0] <= len(x)
            need(isList, f"along of shape (count,), at most {len(x)} axes", along)
            value = valueOf(along)
            if value is None or value.dtype.kind == "O":
                return (None,) * (len(x) if self.keepdims else len(x) - along[0])
            along = value
        return self.reduction(len(x), along).dataShapeFrom(x)

    def valueFrom(self, x, along=None):
        value, axes = valueOf(x), None if along is None else valueOf(along)
        isKnown = value is not None and (along is None or axes is not None)
        return self.reduction(value.ndim, axes).valueFrom(x) if isKnown else None

    def updateData(self, x, along=None):
        return self.reduction(x.ndim, along).updateData(x).astype(x.dtype, copy=False)

    def updateGrad(self, grad, x, along, y):
        module = self.reduction(x.ndim, along)
        if module.updateGrad is None:
            return None, None
        gx = module.updateGrad(grad, x, y)
        return gx[0] if type(gx) is tuple else gx, None

    def sample(self, rng, x, *along):
        return [1 + rng.random(x), *[np.arange(count) for (count,) in along]]

    @classmethod
    def examples(cls):
        for kind in REDUCTIONS:
            yield cls(kind), [(2, 3), (1,)]
        yield cls("Sum", keepdims=False), [(2, 3)]
        yield cls("Mean", axes=(-1, 0), keepdims=False), [(2, 3, 2)]
        yield cls("Max", axes=(), ifEmpty=True), [(2, 3)]
